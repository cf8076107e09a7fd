//! Verdict tables through the loaded program: for each shape of header, which counter moves, and that no other does.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{Counter, ListEntry, Reason, list};
use ratelimit_tests::{
    frames::{
        ACK, ARP, ICMP, ICMPV6, IPV4, IPV6, Ipv4, Ipv6, QINQ, SYN, TCP, UDP, VLAN, ethernet, extension,
        fragment, icmp, tag, tcp, udp,
    },
    loaded::{Loaded, Outcome},
    policies,
};
use ratelimit_user::{
    compile::{
        Desired,
        lists::{self, Lists, Prefix},
    },
    dataplane::probe,
};

/// A limit that no single packet reaches: what is tested here is how frames are read.
const GENEROUS: &[&str] = &["100 packets/day", "100 syns/day", "100 MB/day"];

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

fn v4() -> Ipv4 {
    Ipv4::from([192, 0, 2, 1])
}

fn v6() -> Ipv6 {
    Ipv6::from("2001:db8::1".parse().unwrap())
}

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

#[test]
fn without_a_limit_everything_passes_as_unlimited() {
    let mut policy = policies::limits(GENEROUS);
    policy.policy.source.set.limit_count = 0;
    let frame = v4().udp_frame(8);
    let moved = Loaded::new(&policy).outcome(&frame).moved;
    assert_eq!(moved, [(Reason::Unlimited, Counter { packets: 1, bytes: frame.len() as u64 })]);
}

#[test]
fn each_meter_counts_what_it_says_and_refuses_by_its_own_name() {
    let syn = v4().tcp_frame(SYN);
    let syn_ack = v4().tcp_frame(SYN | ACK);
    let small = v4().udp_frame(8);
    let table: &[(&str, &Vec<u8>, usize, Reason)] = &[
        ("3 packets/day", &small, 3, Reason::LimitPackets),
        ("3 packets/day", &syn, 3, Reason::LimitPackets),
        ("2 syns/day", &syn, 2, Reason::LimitSyns),
        ("6000 bytes/day burst 1514", &small, 1514 / small.len(), Reason::LimitBytes),
    ];
    for (limit, frame, admitted, reason) in table {
        let mut loaded = Loaded::new(&policies::limits(&[limit]));
        for _ in 0..*admitted {
            assert_eq!(loaded.outcome(frame).moved[0].0, Reason::Conforming, "{limit}");
        }
        assert_eq!(loaded.outcome(frame).moved[0].0, *reason, "{limit}");
    }
    let mut loaded = Loaded::new(&policies::limits(&["1 syns/day"]));
    for _ in 0..10 {
        assert_eq!(loaded.outcome(&syn_ack).moved[0].0, Reason::Conforming, "an answer opens nothing");
    }
}

#[test]
fn a_packet_that_one_limit_refuses_costs_the_others_nothing() {
    let mut loaded = Loaded::new(&policies::limits(&["4 packets/day", "1 syns/day"]));
    let (syn, ack) = (v4().tcp_frame(SYN), v4().tcp_frame(ACK));
    let reasons: Vec<_> = [&syn, &syn, &syn, &ack, &ack, &ack, &ack]
        .iter()
        .map(|frame| loaded.outcome(frame).moved[0].0)
        .collect();
    use Reason::{Conforming, LimitPackets, LimitSyns};
    let expected = [Conforming, LimitSyns, LimitSyns, Conforming, Conforming, Conforming, LimitPackets];
    assert_eq!(reasons, expected);
}

#[test]
fn four_limits_hold_at_once() {
    let limits = ["6 packets/hour", "9 packets/day", "2 syns/day", "100 kB/day"];
    let mut loaded = Loaded::new(&policies::limits(&limits));
    for _ in 0..2 {
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::LimitSyns);
    for _ in 0..4 {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::LimitPackets);
}

#[test]
fn a_source_is_an_ipv4_address_or_an_ipv6_slash_64_unless_configured() {
    let admitted = |policy, frames: &[Vec<u8>]| {
        let mut loaded = Loaded::new(&policy);
        frames.iter().filter(|frame| loaded.outcome(frame).moved[0].0 == Reason::Conforming).count()
    };
    let v4_frames: Vec<_> = (1..=6).map(|host| Ipv4::from([192, 0, 2, host]).udp_frame(8)).collect();
    let v6_frames: Vec<_> = (1..=6)
        .map(|host| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, host * 0x1111, 0, 0, host)).udp_frame(8))
        .collect();
    let one = "limits = [\"1 packets/day\"]\nladder = false";
    assert_eq!(admitted(policies::source(one), &v4_frames), 6);
    assert_eq!(admitted(policies::source(one), &v6_frames), 1, "one /64 is one source");
    assert_eq!(admitted(policies::source(&format!("{one}\nipv4_prefix = 24")), &v4_frames), 1);
    assert_eq!(admitted(policies::source(&format!("{one}\nipv4_prefix = 31")), &v4_frames), 4);
    assert_eq!(admitted(policies::source(&format!("{one}\nipv6_prefix = 128")), &v6_frames), 6);
}

#[test]
fn ipv4_and_ipv6_sources_never_share_a_bucket() {
    // 192.0.2.1 as the last bytes of an IPv6 address, with everything around it zero.
    let compatible: Ipv6Addr = "::192.0.2.1".parse().unwrap();
    let mut loaded = Loaded::new(&policies::source("limits = [\"1 packets/day\"]\nipv6_prefix = 128"));
    for frame in [v4().udp_frame(8), Ipv6::from(compatible).udp_frame(8)] {
        assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::Conforming);
        assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::LimitPackets);
    }
}

fn blocked_until(until_ns: u64) -> ListEntry {
    ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY }
}

const ALLOWED: ListEntry = ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY };

#[test]
fn lists_decide_by_prefix_and_the_allow_list_wins() {
    let hour_ns = 3_600_000_000_000;
    let now_ns = probe::now_ns();
    let entries = [
        ("198.51.100.0/24", blocked_until(list::FOREVER_NS)),
        ("198.51.100.7/32", ALLOWED),
        ("203.0.113.0/24", blocked_until(now_ns + hour_ns)),
        ("203.0.113.9/32", blocked_until(now_ns - 1)),
        ("100.64.0.0/10", blocked_until(now_ns - 1)),
        ("2001:db8:bad::/48", blocked_until(now_ns + hour_ns)),
        ("2001:db8:bad:1::/64", ALLOWED),
    ];
    let lists: Lists = entries.map(|(prefix, entry)| (prefix.parse().unwrap(), entry)).into();
    let mut loaded = Loaded::new(&policies::limits(&["1 packets/day"]));
    loaded.set_lists(lists);
    let from_v4 = |a: [u8; 4]| Ipv4::from(a).udp_frame(8);
    let from_v6 = |a: &str| Ipv6::from(a.parse().unwrap()).udp_frame(8);
    for (name, frame, first, second) in [
        ("blocked for good", from_v4([198, 51, 100, 6]), Reason::Blocked, Reason::Blocked),
        ("allowed inside a block", from_v4([198, 51, 100, 7]), Reason::Allowed, Reason::Allowed),
        ("blocked for an hour", from_v4([203, 0, 113, 8]), Reason::Blocked, Reason::Blocked),
        ("own block ran out inside a live one", from_v4([203, 0, 113, 9]), Reason::Blocked, Reason::Blocked),
        ("block ran out", from_v4([100, 64, 1, 1]), Reason::Conforming, Reason::LimitPackets),
        ("not listed", from_v4([192, 0, 2, 200]), Reason::Conforming, Reason::LimitPackets),
        ("blocked IPv6", from_v6("2001:db8:bad:2::1"), Reason::Blocked, Reason::Blocked),
        ("allowed IPv6 inside a block", from_v6("2001:db8:bad:1::1"), Reason::Allowed, Reason::Allowed),
        ("IPv6 beside the block", from_v6("2001:db8:bae::1"), Reason::Conforming, Reason::LimitPackets),
    ] {
        assert_eq!(loaded.outcome(&frame).moved[0].0, first, "{name}");
        assert_eq!(loaded.outcome(&frame).moved[0].0, second, "{name}, again");
    }
}

#[test]
fn arp_and_neighbour_discovery_pass_even_from_a_blocked_host() {
    let mut loaded = Loaded::new(&policies::limits(GENEROUS));
    loaded.set_lists([("::/0".parse().unwrap(), blocked_until(list::FOREVER_NS))].into());
    let discovery = ethernet(IPV6, &Ipv6 { hop_limit: 255, ..v6() }.carrying(ICMPV6, &icmp(135)));
    assert_eq!(loaded.outcome(&discovery).moved[0].0, Reason::NeighbourDiscovery);
    assert_eq!(loaded.outcome(&v6().udp_frame(8)).moved[0].0, Reason::Blocked);
}

#[test]
fn a_changed_limit_takes_effect_on_the_next_packet_without_a_fresh_burst() {
    let mut loaded = Loaded::new(&policies::limits(&["80 packets/day"]));
    let frame = v4().udp_frame(8);
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(NEARLY_80.contains(&loaded.count(Reason::Conforming)));
    // Twice as many a day: what was spent is a whole day's worth, and so is the new burst.
    loaded.maps.set_policy(&next(policies::limits(&["160 packets/day"]), 2)).unwrap();
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(
        loaded.count(Reason::Conforming) <= 82,
        "at most the packet of before that was left, at half the price"
    );
    // A much faster limit does not wait for the slow one's debt: the bucket is empty, not overdrawn for a day.
    loaded.maps.set_policy(&next(policies::limits(&["1000000 packets/s burst 1"]), 3)).unwrap();
    assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::LimitPackets, "this one settles the debt");
    assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::Conforming);
}

/// A burst of 80, less the packet that the coarse clock's lag may cost, which comes back within milliseconds.
const NEARLY_80: std::ops::RangeInclusive<u64> = 79..=80;

/// The same policy as a later one.
fn next(mut desired: Desired, generation: u64) -> Desired {
    desired.policy.generation = generation;
    desired
}

#[test]
fn a_denial_ends_with_the_policy_that_made_it() {
    let mut loaded = Loaded::new(&policies::limits(&["80 packets/day"]));
    let frame = v4().udp_frame(8);
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(NEARLY_80.contains(&loaded.count(Reason::Conforming)), "denied for the rest of the day");
    loaded.maps.set_policy(&next(policies::limits(&["1000000 packets/s burst 100"]), 2)).unwrap();
    for _ in 0..10 {
        loaded.run(&frame);
    }
    assert!(loaded.count(Reason::Conforming) > 80, "the new limit counts, not the old denial");
}

#[test]
fn a_source_within_its_cells_share_needs_no_entry_and_one_beyond_it_gets_one() {
    let mut loaded = Loaded::new(&policies::limits(&["800 packets/day"]));
    let entries = |loaded: &Loaded| loaded.maps.table().usage(probe::now_ns()).unwrap().entries;
    // An eighth of the burst comes from the cell. The coarse clock's lag costs one packet, there and in all; room for two
    // CPUs to add at once costs four.
    for _ in 0..98 {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(entries(&loaded), 0);
    for _ in 0..900 {
        loaded.run(&v4().udp_frame(8));
    }
    assert_eq!(entries(&loaded), 1);
    let admitted = loaded.count(Reason::Conforming);
    assert!((795..=796).contains(&admitted), "{admitted} admitted of 800");
}

#[test]
fn spoofed_sources_cost_no_entry() {
    let mut loaded = Loaded::new(&policies::limits(&["800 packets/day"]));
    for source in 0..20_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(source.wrapping_mul(0x9e37_79b9))).udp_frame(8));
    }
    assert_eq!(loaded.count(Reason::Conforming), 20_000);
    assert_eq!(loaded.maps.table().usage(probe::now_ns()).unwrap().entries, 0);
}

#[test]
fn new_sources_beyond_the_budget_are_refused_and_those_with_an_entry_are_not() {
    // So small a limit that every source needs an entry; ten new ones a second, one at once.
    let mut loaded =
        Loaded::new(&policies::source("limits = [\"3 packets/day\"]\nnew_sources_per_cpu = 10\n"));
    let known = v4().udp_frame(8);
    assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    for host in 0..2_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    assert!(loaded.count(Reason::NewSourceBudget) > 1_900);
    assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming, "it has an entry");
    assert!(loaded.maps.table().usage(probe::now_ns()).unwrap().entries < 100);
}

#[test]
fn the_total_of_a_service_holds_for_all_sources_together_and_for_nobody_else() {
    let mut loaded = Loaded::new(&policies::policy(
        "[source]\nlimits = [\"1000000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
         match = { protocol = \"udp\", ports = [53] }\ntotal = [\"1000 packets/day\"]\n",
    ));
    for host in 0..3_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    let admitted = loaded.count(Reason::Conforming);
    // Strangers stop at three quarters, and CPUs may hold a sixteenth unspent.
    assert!((650..=750).contains(&admitted), "{admitted} admitted");
    assert_eq!(loaded.count(Reason::ServiceTotal), 3_000 - admitted);
    assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming, "another service");
    let fragment = ethernet(IPV4, &Ipv4 { fragment: 0x0010, ..v4() }.carrying(UDP, &udp(8)));
    assert_eq!(
        loaded.outcome(&fragment).moved[0].0,
        Reason::Conforming,
        "ports of a later fragment are payload"
    );
}

#[test]
fn known_sources_still_find_tokens_when_strangers_have_used_their_part_of_a_total() {
    let mut loaded = Loaded::new(&policies::policy(
        "[source]\nlimits = [\"160 packets/day\"]\n[[service]]\nname = \"dns\"\n\
         match = { protocol = \"udp\", ports = [53] }\ntotal = [\"4000 packets/day\"]\n",
    ));
    // Beyond its cell's share, so it has an entry from here on.
    let known = v4().udp_frame(8);
    for _ in 0..30 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
    for host in 0..10_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    let stranger = Ipv4::from([172, 16, 0, 1]).udp_frame(8);
    assert_eq!(loaded.outcome(&stranger).moved[0].0, Reason::ServiceTotal);
    for _ in 0..100 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
}

#[test]
fn fragments_have_a_budget_of_their_own_and_whole_packets_do_not_touch_it() {
    let mut loaded = Loaded::new(&policies::limits(&["1000 packets/day", "4 fragments/day"]));
    let pieces = [
        ethernet(IPV4, &Ipv4 { fragment: 0x2000, ..v4() }.carrying(UDP, &udp(32))),
        ethernet(IPV4, &Ipv4 { fragment: 0x2010, ..v4() }.carrying(UDP, &[0; 32])),
        ethernet(IPV4, &Ipv4 { fragment: 0x0020, ..v4() }.carrying(UDP, &[0; 32])),
        ethernet(IPV4, &Ipv4 { fragment: 0x2000, ..v4() }.carrying(UDP, &udp(32))),
    ];
    for piece in &pieces {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
        assert_eq!(loaded.outcome(piece).moved[0].0, Reason::Conforming);
    }
    for piece in &pieces {
        assert_eq!(loaded.outcome(piece).moved[0].0, Reason::LimitFragments);
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    let v6_piece = |offset, more| {
        let payload = [&fragment(UDP, offset, more)[..], &udp(16)].concat();
        ethernet(IPV6, &v6().carrying(FRAGMENT, &payload))
    };
    for piece in [v6_piece(0, true), v6_piece(2, true), v6_piece(4, false), v6_piece(0, true)] {
        assert_eq!(loaded.outcome(&piece).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v6_piece(2, true)).moved[0].0, Reason::LimitFragments);
    let atomic = v6_piece(0, false);
    assert_eq!(
        loaded.outcome(&atomic).moved[0].0,
        Reason::Conforming,
        "a fragment header alone makes no fragment"
    );
}

#[test]
fn a_limit_keeps_what_was_spent_when_the_file_is_reordered() {
    let before = policies::limits(&["1000 packets/s", "5 syns/day"]);
    let mut loaded = Loaded::new(&before);
    for _ in 0..5 {
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming);
    }
    for (generation, limits) in [
        (2, &["5 syns/day", "1000 packets/s"][..]),
        (3, &["100 MB/s", "5 syns/day", "1000 packets/s"]),
        (4, &["5 syns/day"]),
    ] {
        let now = loaded.maps.policy();
        loaded.maps.set_policy(&policies::after(limits, generation, now.as_deref())).unwrap();
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::LimitSyns, "{limits:?}");
        assert_eq!(loaded.outcome(&v4().tcp_frame(ACK)).moved[0].0, Reason::Conforming, "{limits:?}");
    }
}

#[test]
fn a_list_change_that_fails_half_way_is_undone() {
    let mut loaded = Loaded::new(&policies::limits(GENEROUS));
    let blocked = blocked_until(list::FOREVER_NS);
    // Every room in the list is taken, 198.51.100.1 among them.
    let mut full: Lists = (0..list::MAX_LISTED - 1)
        .map(|n| (Prefix::masked(Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 32), blocked))
        .collect();
    full.insert("198.51.100.1/32".parse().unwrap(), blocked);
    loaded.set_lists(full);
    let mut observed = loaded.maps.lists().unwrap();
    assert!(observed == loaded.lists, "the kernel has what was written");
    let edits = Lists::from([("198.51.100.0/24".parse().unwrap(), ALLOWED)]);
    let changes = lists::edited(&observed, &edits);
    assert_eq!(changes.len(), 2, "the entry inside is let in first");
    let refused = loaded.maps.change_lists(&mut observed, &changes).unwrap_err().to_string();
    assert!(refused.contains("the IPv4 list is full at 1048576 prefixes"), "{refused}");
    assert!(loaded.maps.lists().unwrap() == observed && observed == loaded.lists, "as it was");
    let frame = Ipv4::from([198, 51, 100, 1]).udp_frame(8);
    assert_eq!(
        loaded.outcome(&frame).moved[0].0,
        Reason::Blocked,
        "not let in by the half of the change that worked"
    );
}

#[test]
fn a_denied_source_is_counted_for_the_limit_that_refused_it() {
    // Bytes run out first, although packets come first in the file.
    let mut loaded = Loaded::new(&policies::limits(&["100000 packets/day", "200 kB/day"]));
    let frame = v4().udp_frame(1_000);
    for _ in 0..1_000 {
        loaded.run(&frame);
    }
    let admitted = loaded.count(Reason::Conforming);
    assert!((190..=192).contains(&admitted), "{admitted}");
    assert_eq!(loaded.count(Reason::LimitBytes), 1_000 - admitted);
    assert_eq!(loaded.count(Reason::LimitPackets), 0);
}
