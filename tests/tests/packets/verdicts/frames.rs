//! How frames are read, and what becomes of those that cannot be.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{Counter, Reason};
use ratelimit_tests::{
    frames::{
        ACK, ARP, ICMP, ICMPV6, IPV4, IPV6, Ipv4, Ipv6, QINQ, SYN, TCP, UDP, VLAN, ethernet, extension,
        fragment, icmp, tag, tcp, udp,
    },
    loaded::{Loaded, Outcome},
    policies,
};

use super::{FRAGMENT, GENEROUS, v4, v6};

const HOP_BY_HOP: u8 = 0;

const ROUTING: u8 = 43;

const AUTHENTICATION: u8 = 51;

const NO_NEXT: u8 = 59;

const DESTINATION: u8 = 60;

/// Every frame must end with its reason, counted once, with its whole length, and nothing else may move.
fn assert_reasons(cases: &[(&str, Vec<u8>, Reason)]) {
    let mut loaded = Loaded::new(&policies::limits(GENEROUS));
    for (name, frame, reason) in cases {
        let expected = Outcome {
            verdict: reason.verdict(),
            moved: vec![(*reason, Counter { packets: 1, bytes: frame.len() as u64 })],
        };
        assert_eq!(loaded.outcome(frame), expected, "{name}");
    }
}

/// A chain of destination options of this length, then UDP.
fn chain(headers: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for index in 0..headers {
        let next = if index + 1 == headers { UDP } else { DESTINATION };
        payload.extend(extension(next, 1));
    }
    payload.extend(udp(8));
    ethernet(IPV6, &v6().carrying(DESTINATION, &payload))
}

#[test]
fn frames_that_are_not_ip_pass_and_neighbours_always_find_the_host() {
    let ipv4_discovery =
        |kind, hop_limit| ethernet(IPV6, &Ipv6 { hop_limit, ..v6() }.carrying(ICMPV6, &icmp(kind)));
    assert_reasons(&[
        ("ARP", ethernet(ARP, &[0; 28]), Reason::Arp),
        ("ARP in a VLAN", ethernet(VLAN, &tag(ARP, &[0; 28])), Reason::Arp),
        ("LLDP", ethernet(0x88cc, &[0; 46]), Reason::NotIp),
        ("an 802.3 length instead of a type", ethernet(0x0026, &[0x42; 38]), Reason::NotIp),
        ("MPLS", ethernet(0x8847, &[0; 46]), Reason::NotIp),
        ("router solicitation", ipv4_discovery(133, 255), Reason::NeighbourDiscovery),
        ("router advertisement", ipv4_discovery(134, 255), Reason::NeighbourDiscovery),
        ("neighbour solicitation", ipv4_discovery(135, 255), Reason::NeighbourDiscovery),
        ("neighbour advertisement", ipv4_discovery(136, 255), Reason::NeighbourDiscovery),
        ("redirect", ipv4_discovery(137, 255), Reason::NeighbourDiscovery),
        ("neighbour solicitation from beyond a router", ipv4_discovery(135, 254), Reason::Conforming),
        ("echo request with hop limit 255", ipv4_discovery(128, 255), Reason::Conforming),
        ("the type after discovery", ipv4_discovery(138, 255), Reason::Conforming),
    ]);
}

#[test]
fn ipv4_is_followed_to_its_transport_header() {
    let carrying =
        |packet: Ipv4, protocol, payload: &[u8]| ethernet(IPV4, &packet.carrying(protocol, payload));
    let padded = |mut frame: Vec<u8>| {
        frame.resize(60, 0);
        frame
    };
    assert_reasons(&[
        ("TCP", v4().tcp_frame(ACK), Reason::Conforming),
        ("UDP", v4().udp_frame(10), Reason::Conforming),
        ("ICMP", carrying(v4(), ICMP, &icmp(8)), Reason::Conforming),
        ("another protocol", carrying(v4(), 47, &[0; 8]), Reason::Conforming),
        ("four bytes of options", carrying(Ipv4 { options: 4, ..v4() }, UDP, &udp(8)), Reason::Conforming),
        (
            "forty bytes of options",
            carrying(Ipv4 { options: 40, ..v4() }, TCP, &tcp(SYN)),
            Reason::Conforming,
        ),
        ("one VLAN tag", ethernet(VLAN, &tag(IPV4, &v4().carrying(UDP, &udp(8)))), Reason::Conforming),
        (
            "two VLAN tags",
            ethernet(QINQ, &tag(VLAN, &tag(IPV4, &v4().carrying(UDP, &udp(8))))),
            Reason::Conforming,
        ),
        (
            "two tags of the old kind",
            ethernet(0x9100, &tag(VLAN, &tag(IPV4, &v4().carrying(UDP, &udp(8))))),
            Reason::Conforming,
        ),
        (
            "three VLAN tags",
            ethernet(QINQ, &tag(VLAN, &tag(VLAN, &tag(IPV4, &v4().carrying(UDP, &udp(8)))))),
            Reason::VlanDepth,
        ),
        ("a tag and nothing behind it", ethernet(VLAN, &[0, 1]), Reason::Truncated),
        ("first fragment", carrying(Ipv4 { fragment: 0x2000, ..v4() }, UDP, &udp(32)), Reason::Conforming),
        ("middle fragment", carrying(Ipv4 { fragment: 0x2010, ..v4() }, UDP, &[0; 32]), Reason::Conforming),
        (
            "last fragment of two bytes",
            carrying(Ipv4 { fragment: 0x0010, ..v4() }, TCP, &[0; 2]),
            Reason::Conforming,
        ),
        (
            "first fragment that hides the TCP flags",
            carrying(Ipv4 { fragment: 0x2000, ..v4() }, TCP, &tcp(SYN)[..8]),
            Reason::Truncated,
        ),
        ("Ethernet padding", padded(carrying(v4(), UDP, &udp(0))), Reason::Conforming),
        (
            "TCP flags that lie in the padding",
            padded(carrying(v4(), TCP, &tcp(SYN)[..10])),
            Reason::Truncated,
        ),
        ("header cut short", ethernet(IPV4, &v4().carrying(UDP, &udp(0))[..19]), Reason::Truncated),
        (
            "options cut short",
            ethernet(IPV4, &Ipv4 { options: 40, ..v4() }.carrying(UDP, &udp(0))[..24]),
            Reason::Truncated,
        ),
        (
            "total length beyond the frame",
            carrying(Ipv4 { total_len: Some(60), ..v4() }, UDP, &udp(8)),
            Reason::Truncated,
        ),
        ("UDP header cut short", carrying(v4(), UDP, &udp(0)[..7]), Reason::Truncated),
        ("TCP header cut short", carrying(v4(), TCP, &tcp(SYN)[..19]), Reason::Truncated),
        ("version 5", carrying(Ipv4 { version_ihl: Some(0x55), ..v4() }, UDP, &udp(8)), Reason::BadIpHeader),
        (
            "header length 16",
            carrying(Ipv4 { version_ihl: Some(0x44), ..v4() }, UDP, &udp(8)),
            Reason::BadIpHeader,
        ),
        (
            "total length below the header's",
            carrying(Ipv4 { total_len: Some(19), ..v4() }, UDP, &udp(8)),
            Reason::BadIpHeader,
        ),
        ("nothing behind Ethernet", ethernet(IPV4, &[]), Reason::Truncated),
    ]);
}

#[test]
fn ipv6_is_followed_through_its_extension_headers() {
    let carrying = |next, payload: &[&[u8]]| ethernet(IPV6, &v6().carrying(next, &payload.concat()));
    let mapped: Ipv6Addr = Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped();
    let authentication = [UDP, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let discovery = Ipv6 { hop_limit: 255, ..v6() };
    assert_reasons(&[
        ("TCP", v6().tcp_frame(ACK), Reason::Conforming),
        ("UDP", v6().udp_frame(10), Reason::Conforming),
        ("echo request", carrying(ICMPV6, &[&icmp(128)]), Reason::Conforming),
        ("no next header", carrying(NO_NEXT, &[]), Reason::Conforming),
        ("hop-by-hop", carrying(HOP_BY_HOP, &[&extension(UDP, 1), &udp(8)]), Reason::Conforming),
        ("routing of 24 bytes", carrying(ROUTING, &[&extension(TCP, 3), &tcp(SYN)]), Reason::Conforming),
        ("authentication", carrying(AUTHENTICATION, &[&authentication, &udp(8)]), Reason::Conforming),
        (
            "the longest extension header",
            carrying(DESTINATION, &[&extension(UDP, 255), &udp(8)]),
            Reason::Conforming,
        ),
        ("seven extension headers", chain(7), Reason::Conforming),
        ("eight extension headers", chain(8), Reason::ExtensionChain),
        ("first fragment", carrying(FRAGMENT, &[&fragment(UDP, 0, true), &udp(16)]), Reason::Conforming),
        ("later fragment", carrying(FRAGMENT, &[&fragment(TCP, 8, true), &[0; 4]]), Reason::Conforming),
        (
            "first fragment that hides the TCP flags",
            carrying(FRAGMENT, &[&fragment(TCP, 0, true), &tcp(SYN)[..8]]),
            Reason::Truncated,
        ),
        (
            "fragmented neighbour discovery gets no privilege",
            ethernet(
                IPV6,
                &discovery.carrying(FRAGMENT, &[&fragment(ICMPV6, 1, false)[..], &icmp(135)].concat()),
            ),
            Reason::Conforming,
        ),
        (
            "the first piece of fragmented neighbour discovery gets none either",
            ethernet(
                IPV6,
                &discovery.carrying(FRAGMENT, &[&fragment(ICMPV6, 0, true)[..], &icmp(135)].concat()),
            ),
            Reason::Conforming,
        ),
        (
            "neighbour discovery behind hop-by-hop",
            ethernet(
                IPV6,
                &discovery.carrying(HOP_BY_HOP, &[&extension(ICMPV6, 1)[..], &icmp(135)].concat()),
            ),
            Reason::NeighbourDiscovery,
        ),
        ("IPv4-mapped source", Ipv6::from(mapped).udp_frame(8), Reason::MappedSource),
        (
            "version 4",
            ethernet(IPV6, &Ipv6 { version: Some(0x45), ..v6() }.carrying(UDP, &udp(8))),
            Reason::BadIpHeader,
        ),
        ("header cut short", ethernet(IPV6, &v6().carrying(UDP, &[])[..39]), Reason::Truncated),
        (
            "payload length beyond the frame",
            ethernet(IPV6, &Ipv6 { payload_len: Some(17), ..v6() }.carrying(UDP, &udp(8))),
            Reason::Truncated,
        ),
        (
            "extension beyond the payload",
            carrying(DESTINATION, &[&extension(UDP, 2)[..8]]),
            Reason::Truncated,
        ),
        ("extension header cut short", carrying(DESTINATION, &[&extension(UDP, 1)[..4]]), Reason::Truncated),
        (
            "jumbogram",
            ethernet(
                IPV6,
                &Ipv6 { payload_len: Some(0), ..v6() }
                    .carrying(HOP_BY_HOP, &[&extension(UDP, 1)[..], &udp(8)].concat()),
            ),
            Reason::Truncated,
        ),
        ("ICMPv6 cut short", carrying(ICMPV6, &[&icmp(135)[..3]]), Reason::Truncated),
        (
            "two VLAN tags",
            ethernet(QINQ, &tag(VLAN, &tag(IPV6, &v6().carrying(UDP, &udp(8))))),
            Reason::Conforming,
        ),
    ]);
}

#[test]
fn a_jumbo_frame_of_several_buffers_is_charged_with_its_whole_length() {
    let frame = v4().udp_frame(8930);
    let mut loaded = Loaded::new(&policies::limits(&["9100 bytes/day burst 9100"]));
    let expected = Counter { packets: 1, bytes: frame.len() as u64 };
    assert_eq!(loaded.outcome(&frame).moved, [(Reason::Conforming, expected)]);
    assert_eq!(
        loaded.outcome(&frame).moved,
        [(Reason::LimitBytes, expected)],
        "the first one used the budget up"
    );
}
