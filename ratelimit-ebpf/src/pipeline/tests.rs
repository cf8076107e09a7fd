//! Whole frames through the packet path.

extern crate std;

use std::{vec, vec::Vec};

use ratelimit_common::abi::{
    ListEntry, Reason, Verdict,
    counter::Fate,
    destination::{BY_DESTINATION, destination_key},
    list::ALLOWED,
    service::{Protocol, port_slot, protocol_slot},
};

use crate::{
    frame::{Frame, Link},
    packet::{Address, Transport},
    parse,
    testbed::{FrameEnd, IpFrame, SYN, TestHost, empty, set, total, udp},
};

fn ip(is_v6: bool, protocol: u8, payload: &[u8]) -> IpFrame {
    IpFrame { source: [0, 1], is_v6, protocol, fragment: 0, payload: payload.to_vec() }
}

/// The transport header of a datagram.
fn datagram() -> Vec<u8> {
    udp([0, 1], 53, 8)[34..].to_vec()
}

fn segment(flags: u8) -> Vec<u8> {
    crate::testbed::tcp([0, 1], 80, flags)[34..].to_vec()
}

/// A frame with VLAN tags of these types between its addresses and its type.
fn tagged(frame: &[u8], types: &[[u8; 2]]) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    for ether_type in types {
        tagged.extend(ether_type);
        tagged.extend([0, 100]);
    }
    tagged.extend(&frame[12..]);
    tagged
}

fn parsed(frame: &[u8]) -> Result<(Transport, u16, bool), Reason> {
    parse::parse(&Frame::new(Link::Ethernet, frame))
        .map(|packet| (packet.transport, packet.port, packet.fragment))
}

#[test]
fn frames_are_followed_to_their_transport_header() {
    let udp_v4 = ip(false, 17, &datagram()).frame();
    let udp_v6 = ip(true, 17, &datagram()).frame();
    let is_udp = Ok((Transport::UDP, 53, false));
    for frame in [&udp_v4, &udp_v6] {
        assert_eq!(parsed(frame), is_udp);
        for tags in [&[[0x81, 0x00]][..], &[[0x88, 0xa8]], &[[0x91, 0x00]], &[[0x88, 0xa8], [0x81, 0x00]]] {
            assert_eq!(parsed(&tagged(frame, tags)), is_udp, "{tags:x?}");
        }
        assert_eq!(parsed(&tagged(frame, &[[0x81, 0]; 3])), Err(Reason::VlanDepth));
        // A frame that is cut off anywhere is truncated.
        for len in 0..frame.len() {
            assert_eq!(parsed(&frame[..len]), Err(Reason::Truncated), "{len}");
        }
        let two = tagged(frame, &[[0x88, 0xa8], [0x81, 0]]);
        for len in 14..two.len() {
            assert_eq!(parsed(&two[..len]), Err(Reason::Truncated), "{len}");
        }
        // Padding behind the packet changes nothing.
        assert_eq!(parsed(&[&frame[..], &[0; 20]].concat()), is_udp);
    }
    let opens = Ok((Transport::TCP_SYN, 80, false));
    let goes_on = Ok((Transport::TCP, 80, false));
    for (flags, expected) in
        [(SYN, opens), (SYN | 1, opens), (0x12, goes_on), (0x10, goes_on), (0x04, goes_on), (0, goes_on)]
    {
        assert_eq!(parsed(&ip(false, 6, &segment(flags)).frame()), expected, "{flags:x}");
        assert_eq!(parsed(&ip(true, 6, &segment(flags)).frame()), expected, "{flags:x}");
    }
    assert_eq!(parsed(&ip(false, 47, &[]).frame()), Ok((Transport::OTHER, 0, false)));
    assert_eq!(
        parsed(&ip(false, 6, &segment(0)[..19]).frame()),
        Err(Reason::Truncated),
        "a header cut short"
    );
    assert_eq!(parsed(&ip(false, 17, &datagram()[..7]).frame()), Err(Reason::Truncated));
    assert_eq!(parsed(&ip(true, 58, &[128, 0, 0]).frame()), Err(Reason::Truncated));
    assert_eq!(parsed(&ip(true, 58, &[128, 0, 0, 0]).frame()), Ok((Transport::icmpv6(128), 0, false)));
    // Bytes behind the packet are padding, and no header.
    for (protocol, header, len) in
        [(6, segment(0), 19), (17, datagram(), 7), (6, segment(0), 3), (17, datagram(), 0)]
    {
        let padded = [&ip(false, protocol, &header[..len]).frame()[..], &[0; 40]].concat();
        assert_eq!(parsed(&padded), Err(Reason::Truncated), "{len} of {protocol}");
    }
    assert_eq!(parsed(&[&ip(true, 58, &[128, 0]).frame()[..], &[0; 40]].concat()), Err(Reason::Truncated));
    let mut arp = udp_v4.clone();
    arp[13] = 6;
    assert_eq!(parsed(&arp), Err(Reason::Arp));
    arp[12] = 0x88;
    assert_eq!(parsed(&arp), Err(Reason::NotIp));
}

#[test]
fn ipv4_headers_that_contradict_themselves_are_refused_and_pieces_are_known() {
    let frame = ip(false, 17, &datagram()).frame();
    let with = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        parsed(&frame)
    };
    assert_eq!(with(14, 0x55), Err(Reason::BadIpHeader));
    assert_eq!(with(14, 0x44), Err(Reason::BadIpHeader), "a header of sixteen bytes");
    assert_eq!(with(17, 19), Err(Reason::BadIpHeader), "less than the header");
    assert_eq!(with(17, 37), Err(Reason::Truncated), "one byte more than there is");
    let mut with_options = frame.clone();
    with_options[14] = 0x46;
    with_options.splice(34..34, [1, 1, 1, 1]);
    with_options[17] += 4;
    assert_eq!(parsed(&with_options), Ok((Transport::UDP, 53, false)));
    for (field, expected) in [
        (0x4000, Ok((Transport::UDP, 53, false))),
        (0x2000, Ok((Transport::UDP, 53, true))),
        (0x0001, Ok((Transport::FRAGMENT, 0, true))),
        (0x1000, Ok((Transport::FRAGMENT, 0, true))),
        (0x2001, Ok((Transport::FRAGMENT, 0, true))),
    ] {
        assert_eq!(
            parsed(&IpFrame { fragment: field, ..ip(false, 17, &datagram()) }.frame()),
            expected,
            "{field:x}"
        );
    }
}

/// An IPv6 packet with these extension headers, each a number and a body whose first byte is to be the next header's number.
fn chain(headers: &[(u8, Vec<u8>)], last: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut next = headers.iter().skip(1).map(|(number, _)| *number).chain([last]);
    for (_, header) in headers {
        let mut header = header.clone();
        header[0] = next.next().unwrap();
        body.extend(header);
    }
    body.extend(payload);
    ip(true, headers.first().map_or(last, |(number, _)| *number), &body).frame()
}

#[test]
fn ipv6_is_followed_through_seven_extension_headers_of_every_kind() {
    let options = |units: u8| {
        let mut header = vec![0; usize::from(units) * 8];
        header[1] = units - 1;
        header
    };
    let is_udp = Ok((Transport::UDP, 53, false));
    for number in [0, 43, 60, 135, 139, 140] {
        for units in [1, 3] {
            let frame = chain(&[(number, options(units))], 17, &datagram());
            assert_eq!(parsed(&frame), is_udp, "{number} of {units} units");
        }
    }
    // The length of an authentication header is in words of four bytes, less two.
    let mut authentication = vec![0; 24];
    authentication[1] = 4;
    assert_eq!(parsed(&chain(&[(51, authentication)], 17, &datagram())), is_udp);
    for (count, expected) in [(7, is_udp), (8, Err(Reason::ExtensionChain))] {
        let headers: Vec<(u8, Vec<u8>)> = (0..count).map(|_| (60, options(1))).collect();
        assert_eq!(parsed(&chain(&headers, 17, &datagram())), expected, "{count}");
    }
    let fragment = |offset: u16, more: bool| {
        let field = (offset << 3 | u16::from(more)).to_be_bytes();
        (44, vec![0, 0, field[0], field[1], 0, 0, 0, 7])
    };
    assert_eq!(parsed(&chain(&[fragment(0, true)], 17, &datagram())), Ok((Transport::UDP, 53, true)));
    assert_eq!(parsed(&chain(&[fragment(0, false)], 17, &datagram())), is_udp, "all of it in one piece");
    assert_eq!(parsed(&chain(&[fragment(5, false)], 17, &datagram())), Ok((Transport::FRAGMENT, 0, true)));
    assert_eq!(
        parsed(&chain(&[fragment(0, true), (60, options(1))], 17, &datagram())),
        Ok((Transport::UDP, 53, true))
    );
    // A header that is longer than the packet.
    let mut long = options(1);
    long[1] = 40;
    assert_eq!(parsed(&chain(&[(60, long)], 17, &datagram())), Err(Reason::Truncated));
    let mut version = ip(true, 17, &datagram()).frame();
    version[14] = 0x50;
    assert_eq!(parsed(&version), Err(Reason::BadIpHeader));
}

#[test]
fn an_ipv4_address_in_ipv6_is_no_source_and_its_neighbours_are() {
    let frame = ip(true, 17, &datagram()).frame();
    let from = |source: [u8; 16]| {
        let mut frame = frame.clone();
        frame[22..38].copy_from_slice(&source);
        parsed(&frame).map(|_| ())
    };
    assert_eq!(from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]), Err(Reason::MappedSource));
    assert_eq!(from([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 192, 0, 2, 1]), Ok(()));
    assert_eq!(from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 192, 0, 2, 1]), Ok(()));
}

#[test]
fn neighbour_discovery_is_what_came_from_this_link_in_one_piece() {
    let discovery = |kind: u8, hops: u8| {
        let mut frame = ip(true, 58, &[kind, 0, 0, 0, 0, 0, 0, 0]).frame();
        frame[21] = hops;
        frame
    };
    for kind in 133..=137 {
        assert_eq!(parsed(&discovery(kind, 255)), Err(Reason::NeighbourDiscovery), "{kind}");
        assert_eq!(
            parsed(&discovery(kind, 254)),
            Ok((Transport::icmpv6(kind), 0, false)),
            "{kind} from afar"
        );
        let bare = discovery(kind, 255)[14..].to_vec();
        let packet = parse::parse(&Frame::new(Link::Ip, &bare)).unwrap();
        assert_eq!(packet.transport, Transport::icmpv6(kind), "{kind} on a tunnel");
    }
    for kind in [128, 132, 138] {
        assert_eq!(parsed(&discovery(kind, 255)), Ok((Transport::icmpv6(kind), 0, false)), "{kind}");
    }
    let mut pieces = chain(&[(44, vec![0, 0, 0, 1, 0, 0, 0, 7])], 58, &[135, 0, 0, 0, 0, 0, 0, 0]);
    pieces[21] = 255;
    assert_eq!(parsed(&pieces), Ok((Transport::icmpv6(135), 0, true)));
}

#[test]
fn where_frames_are_ip_packets_the_version_says_which() {
    let bare =
        |frame: &[u8]| parse::parse(&Frame::new(Link::Ip, &frame[14..])).map(|packet| packet.transport);
    assert_eq!(bare(&ip(false, 17, &datagram()).frame()), Ok(Transport::UDP));
    assert_eq!(bare(&ip(true, 17, &datagram()).frame()), Ok(Transport::UDP));
    assert_eq!(bare(&[&[0; 14][..], &[0x10, 0]].concat()), Err(Reason::NotIp));
    assert_eq!(bare(&[&[0; 14][..], &[0x45]].concat()), Err(Reason::Truncated));
}

#[test]
fn both_ends_of_a_packet_are_found_behind_tags() {
    for (is_v6, source, destination) in [
        (
            false,
            Address::v4(u32::from_ne_bytes([10, 0, 0, 1])),
            Address::v4(u32::from_ne_bytes([192, 0, 2, 1])),
        ),
        (
            true,
            Address::v6(
                u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0]),
                u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]),
            ),
            Address::v6(
                u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0xff, 0, 0, 0]),
                u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]),
            ),
        ),
    ] {
        let frame = tagged(&ip(is_v6, 17, &datagram()).frame(), &[[0x88, 0xa8], [0x81, 0]]);
        let frame = Frame::new(Link::Ethernet, &frame);
        assert_eq!((parse::source(&frame), parse::destination(&frame)), (Some(source), Some(destination)));
        assert_eq!(parse::parse(&frame).unwrap().source, source);
        assert_eq!(parse::v6_source(&frame), is_v6.then_some(source));
        assert_eq!(parse::hardware_source(&frame), Some(0x0200_0000_0002));
    }
    let arp = Frame::new(Link::Ethernet, &[0; 14]);
    assert_eq!((parse::source(&arp), parse::destination(&arp)), (None, None));
}

/// A host with a service of its own number in every slot that can have one.
fn host() -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["1000 packets/s"]);
    policy.service_count = 4;
    policy.ports[port_slot(Protocol::Udp, 53) as usize] = 1;
    policy.ports[port_slot(Protocol::Tcp, 80) as usize] = 2;
    policy.protocols[protocol_slot(47, false) as usize] = 3;
    policy.protocols[protocol_slot(17, true) as usize] = 4;
    TestHost::new(policy)
}

#[test]
fn a_packet_is_for_the_service_of_its_port_or_else_of_its_protocol() {
    let mut host = host();
    let later = IpFrame { fragment: 1, ..ip(false, 17, &datagram()) }.frame();
    let frames = [
        (ip(false, 17, &datagram()).frame(), 1),
        (ip(true, 6, &segment(SYN)).frame(), 2),
        (ip(false, 6, &segment(0x10)).frame(), 2),
        (udp([0, 1], 54, 8), 0),
        (ip(false, 47, &[]).frame(), 3),
        (later, 4),
        (ip(false, 1, &[8; 8]).frame(), 0),
    ];
    for (frame, service) in &frames {
        assert_eq!(host.end(frame).service, *service, "{frame:x?}");
    }
    host.policy.service_count = 0;
    assert_eq!(host.end(&frames[0].0).service, 0);
}

#[test]
fn services_that_share_a_port_are_told_apart_by_destination() {
    let mut host = host();
    host.policy.ports[port_slot(Protocol::Udp, 53) as usize] = (BY_DESTINATION | 5) as u16;
    let class = BY_DESTINATION | 5;
    let v4 = destination_key(class, 4, Address::v4(u32::from_ne_bytes([192, 0, 2, 1])).key.octets());
    let v6 = destination_key(class, 6, [0x20, 1, 0x0d, 0xb8, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    host.destinations.insert(v4.to_vec(), 7);
    assert_eq!(host.end(&ip(false, 17, &datagram()).frame()).service, 7);
    assert_eq!(host.end(&ip(true, 17, &datagram()).frame()).service, 0, "nobody's");
    host.destinations.insert(v6.to_vec(), 8);
    assert_eq!(host.end(&ip(true, 17, &datagram()).frame()).service, 8);
}

#[test]
fn lists_are_asked_before_limits_and_the_allow_list_wins() {
    let mut host = host();
    host.policy.source.set = set(&["1 packets/day"]);
    let key = |last| Address::v4(u32::from_ne_bytes([10, 0, 0, last])).key;
    let now_ns = host.now_ns.get();
    host.lag_ns.set(1_000);
    host.list(key(1), ListEntry { blocked_until_ns: now_ns - 999, ..ListEntry::EMPTY });
    host.list(key(2), ListEntry { blocked_until_ns: u64::MAX, allowed: ALLOWED, ..ListEntry::EMPTY });
    host.list(key(3), ListEntry { blocked_until_ns: now_ns - 1_000, ..ListEntry::EMPTY });
    let reason = |last| host.reason(&udp([0, last], 53, 8));
    assert_eq!([reason(1), reason(1)], [Reason::Blocked; 2], "by the coarse clock it is not over");
    assert_eq!([reason(2), reason(2)], [Reason::Allowed; 2]);
    assert_eq!([reason(3), reason(3)], [Reason::Conforming, Reason::LimitPackets], "the kernel ends it");
}

#[test]
fn a_policy_with_nothing_but_a_total_or_a_window_limits_too() {
    let mut host = TestHost::new(empty());
    let frame = udp([0, 1], 53, 8);
    let end = FrameEnd { verdict: Verdict::Pass, service: 0, reason: Reason::Unlimited, fate: Fate::Decided };
    assert_eq!(host.end(&frame), end);
    host.policy.host_total_count = 1;
    host.policy.host_totals[0] = total("4 packets/day");
    assert_eq!(
        (host.passed(&frame, 9), host.reason(&frame)),
        (3, Reason::HostTotal),
        "untracked sources all"
    );
}
