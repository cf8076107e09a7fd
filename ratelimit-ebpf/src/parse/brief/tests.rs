//! The short parser compared with the full one.

extern crate std;

use std::vec::Vec;

use super::*;
use crate::{
    origin::Origin,
    packet::Address,
    parse::parse,
    testbed::{IpFrame, tcp, udp},
};

/// Source, protocol and port of a packet.
type Told = (Address, u8, u16);

/// The result of the short parser.
fn short(link: Link, bytes: &[u8]) -> Option<Told> {
    let frame = Frame::new(link, bytes);
    let (family, at) = network(&frame)?;
    let brief = match family {
        Family::V4 => brief_v4(&frame, at)?.with(Origin::address),
        Family::V6 => brief_v6(&frame, at)?.with(Origin::address),
    };
    Some((brief.source, brief.protocol, brief.port))
}

/// The result of the full parser, for packets that are not fragments.
fn long(link: Link, bytes: &[u8]) -> Option<Told> {
    let packet = parse(&Frame::new(link, bytes)).ok().filter(|packet| !packet.fragment)?;
    Some((packet.source, packet.protocol, packet.port))
}

fn tagged(frame: &[u8], ether_type: [u8; 2]) -> Vec<u8> {
    [&frame[..12], &ether_type, &[0, 100], &frame[12..]].concat()
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    IpFrame { source: [3, 4], is_v6: true, protocol, fragment: 0, payload: payload.to_vec() }.frame()
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    IpFrame { source: [1, 2], is_v6: false, protocol, fragment: 0, payload: payload.to_vec() }.frame()
}

/// Frames of the most common kinds.
fn plain() -> Vec<(Link, Vec<u8>)> {
    let (datagram, segment) = (udp([1, 2], 53, 8), tcp([1, 2], 80, 0x10));
    let frames = [
        datagram.clone(),
        segment.clone(),
        v4(1, &[8; 8]),
        v4(47, &[0; 4]),
        v6(17, &datagram[34..]),
        v6(6, &segment[34..]),
    ];
    let of_each = |frame: &Vec<u8>| {
        [
            (Link::Ethernet, frame.clone()),
            (Link::Ethernet, tagged(frame, [0x81, 0])),
            (Link::Ip, frame[14..].to_vec()),
        ]
    };
    frames.iter().flat_map(of_each).collect()
}

#[test]
fn plain_packets_are_understood_as_the_long_way_understands_them() {
    let v4 = Address::v4(u32::from_ne_bytes([10, 0, 1, 2]));
    let v6 = Address::v6(
        u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 3]),
        u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 4]),
    );
    let told = [(v4, 17, 53), (v4, 6, 80), (v4, 1, 0), (v4, 47, 0), (v6, 17, 53), (v6, 6, 80)];
    for ((link, frame), expected) in plain().iter().zip(told.iter().flat_map(|one| [one; 3])) {
        assert_eq!(short(*link, frame), Some(*expected), "{link:?} {frame:x?}");
        assert_eq!(long(*link, frame), Some(*expected), "{link:?} {frame:x?}");
    }
}

#[test]
fn whatever_the_short_way_understands_the_long_one_understands_alike() {
    let mut understood = 0;
    for (link, frame) in plain() {
        let mut look = |bytes: &[u8]| {
            let Some(told) = short(link, bytes) else { return };
            understood += 1;
            assert_eq!(long(link, bytes), Some(told), "{link:?} {bytes:x?}");
        };
        for at in 0..frame.len() {
            for value in 0..=255 {
                let mut other = frame.clone();
                other[at] = value;
                look(&other);
            }
            look(&frame[..at]);
        }
        for padding in 0..200 {
            look(&[&frame[..], &[0; 200][..padding]].concat());
        }
    }
    assert!(understood > 100_000, "{understood}");
}

#[test]
fn unusual_packets_are_left_to_the_long_way() {
    let datagram = udp([1, 2], 53, 8);
    let with = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let segment = tcp([1, 2], 80, 0x10);
    let (datagram_v6, segment_v6) = (v6(17, &datagram[34..]), v6(6, &segment[34..]));
    let padded = |frame: &[u8], padding: usize| [frame, &[0; 65][..padding]].concat();
    for (what, frame) in [
        ("options", with(&datagram, 14, &[0x46])),
        ("another version", with(&datagram, 14, &[0x55])),
        ("more fragments", with(&datagram, 20, &[0x20, 0])),
        ("a later fragment", with(&datagram, 20, &[0, 1])),
        ("ICMPv6 in IPv4", v4(58, &[0; 8])),
        ("a datagram without all of its header", with(&datagram, 16, &[0, 27])),
        ("a segment without all of its header", with(&segment, 16, &[0, 39])),
        ("a packet that the frame has not to its end", datagram[..datagram.len() - 1].to_vec()),
        ("more behind it than padding", padded(&datagram, 65)),
        ("a service tag", tagged(&datagram, [0x88, 0xa8])),
        ("two tags", tagged(&tagged(&datagram, [0x81, 0]), [0x81, 0])),
        ("ARP", with(&datagram, 12, &[0x08, 0x06])),
        ("IPv6 of another version", with(&datagram_v6, 14, &[0x50])),
        ("an extension header", with(&datagram_v6, 20, &[0])),
        ("ICMPv6", with(&datagram_v6, 20, &[58])),
        ("a source in ::/64", with(&datagram_v6, 22, &[0; 8])),
        ("a datagram of IPv6 without all of its header", with(&datagram_v6, 18, &[0, 7])),
        ("a segment of IPv6 without all of its header", with(&segment_v6, 18, &[0, 19])),
        ("IPv6 that the frame has not to its end", datagram_v6[..datagram_v6.len() - 1].to_vec()),
        ("more behind IPv6 than padding", padded(&datagram_v6, 65)),
    ] {
        assert_eq!(short(Link::Ethernet, &frame), None, "{what}");
    }
    for (what, frame) in [
        ("a datagram that is nothing but its header", with(&datagram, 16, &[0, 28])),
        ("a segment that is nothing but its header", with(&segment, 16, &[0, 40])),
        ("a datagram of IPv6 that is nothing but its header", with(&datagram_v6, 18, &[0, 8])),
        ("do not fragment", with(&datagram, 20, &[0x40, 0])),
        ("padding", padded(&datagram, 64)),
        ("padding behind IPv6", padded(&datagram_v6, 64)),
    ] {
        assert!(short(Link::Ethernet, &frame).is_some(), "{what}");
    }
}
