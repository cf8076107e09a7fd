//! Frames without a source, and the cap of an interface.

extern crate std;

use std::{vec, vec::Vec};

use ratelimit_common::abi::{LinkLimits, ListEntry, Reason, link::NEIGHBOUR_HOLD_Q8, list::ALLOWED};

use crate::{
    frame::Link,
    packet::Address,
    testbed::{IpFrame, TestHost, arp, empty, from_mac, limit},
};

/// A host whose interfaces hand on four frames a day for all senders, and two for each known neighbour.
fn host() -> TestHost {
    let mut policy = empty();
    policy.link = LinkLimits { shared: limit("4 packets/day"), own: limit("2 packets/day") };
    TestHost::new(policy)
}

/// Neighbour discovery of 2001:db8:0:x::y, sent from a hardware address.
fn discovery(mac: u8, last: u8) -> Vec<u8> {
    let payload = vec![135, 0, 0, 0, 0, 0, 0, 0];
    let mut frame = IpFrame { source: [0, last], is_v6: true, protocol: 58, fragment: 0, payload }.frame();
    frame[11] = mac;
    frame[21] = 255;
    frame
}

#[test]
fn a_neighbour_has_its_own_and_then_what_is_for_everybody() {
    let host = host();
    assert_eq!((host.passed(&arp(7), 50), host.reason(&arp(7))), (6, Reason::LinkCap));
    assert_eq!(host.passed(&arp(8), 50), 2, "another has its own still");
    assert_eq!(host.passed(&from_mac(7, [0x88, 0xcc]), 50), 2, "and so has another kind of frame");
    assert_eq!(host.reason(&from_mac(9, [0x88, 0xcc])), Reason::NotIp);
    assert_eq!(host.passed(&discovery(7, 1), 50), 2);
    host.interface.set(2);
    assert_eq!(host.passed(&arp(7), 50), 6, "another interface");
}

#[test]
fn places_are_for_those_who_were_there_first_until_they_are_silent_for_an_hour() {
    let host = host();
    // More neighbours than all cells of every set; each takes a cell of its own.
    let frame = |mac: u16| {
        let mut frame = arp(mac as u8);
        frame[10] = (mac >> 8) as u8;
        frame
    };
    for mac in 0..4_000 {
        host.end(&frame(mac));
    }
    let fresh: Vec<u16> = (5_000..5_400).collect();
    assert!(
        fresh.iter().all(|mac| host.reason(&frame(*mac)) == Reason::LinkCap),
        "no place, and nothing left"
    );
    // Their buckets fill within a day; an hour later their cells are free.
    host.now_ns.set(host.now_ns.get() + (NEIGHBOUR_HOLD_Q8 >> 8) + 86_400_000_000_000);
    let admitted = fresh.iter().filter(|mac| host.reason(&frame(**mac)) == Reason::Arp).count();
    assert!(admitted > 300, "{admitted} of {}", fresh.len());
}

#[test]
fn without_a_cap_and_without_hardware_addresses() {
    let mut off = host();
    off.policy.link = LinkLimits::OFF;
    assert_eq!(off.passed(&arp(7), 500), 500);
    let mut tunnel = host();
    tunnel.link = Link::Ip;
    assert_eq!(tunnel.passed(&[0x00, 0x01, 0x02, 0x03], 50), 4, "what is for everybody, and nothing else");
}

#[test]
fn neighbour_discovery_has_a_source_that_lists_know() {
    let mut host = host();
    let key = |last| {
        Address::v6(
            u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0]),
            u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, last]),
        )
        .key
    };
    host.list(key(1), ListEntry { blocked_until_ns: u64::MAX, ..ListEntry::EMPTY });
    host.list(key(2), ListEntry { allowed: ALLOWED, ..ListEntry::EMPTY });
    host.list(key(3), ListEntry { blocked_until_ns: host.now_ns.get(), ..ListEntry::EMPTY });
    assert_eq!(host.reason(&discovery(7, 1)), Reason::Blocked);
    let told = host.told.borrow()[0];
    assert_eq!(
        (told.reason, told.family, told.len, told.service, told.port),
        (Reason::Blocked as u32, 1, 62, 0, 0)
    );
    assert_eq!((told.hi, told.lo), (key(1).hi, 0), "cut to its prefix");
    assert_eq!(host.passed(&discovery(7, 2), 50), 50, "never capped");
    assert_eq!(host.passed(&discovery(7, 3), 50), 6, "a block that is over is none");
}

#[test]
fn whoever_loses_the_race_for_a_place_has_what_is_for_everybody() {
    let host = host();
    host.lost_races.set(1);
    assert_eq!(host.reason(&arp(7)), Reason::Arp);
    host.lost_races.set(5);
    assert_eq!(host.reason(&arp(8)), Reason::LinkCap, "and not if it loses that too");
}

#[test]
fn an_interface_with_a_high_number_hands_on_as_many_as_one_with_a_low_number() {
    let host = host();
    for interface in [3, 63, 64 + 5, 1_000] {
        host.interface.set(interface);
        assert_eq!(host.passed(&arp(7), 50), 6, "{interface}");
    }
}
