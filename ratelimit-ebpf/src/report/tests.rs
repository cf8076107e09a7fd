//! Drop events for refused packets.

use ratelimit_common::abi::{
    Event, ListEntry, OnLimit, Reason, Service,
    counter::Fate,
    service::{Protocol, port_slot},
};

use super::Refused;
use crate::{
    packet::Address,
    testbed::{IpFrame, TestHost, empty, limit, set, udp},
};

extern crate std;

fn host() -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["1 packets/day"]);
    policy.service_count = 1;
    policy.services[2] = Service { on_limit: OnLimit::Monitor as u32, ..Service::UNUSED };
    policy.ports[port_slot(Protocol::Udp, 53) as usize] = 3;
    policy.lenient = 1;
    TestHost::new(policy)
}

#[test]
fn a_refusal_is_told_with_everything_that_is_known_of_the_packet() {
    let host = host();
    host.lag_ns.set(4_000_000);
    let frame = udp([0, 1], 53, 58);
    host.passed(&frame, 2);
    let source = Address::v4(u32::from_ne_bytes([10, 0, 0, 1])).key;
    let [event] = host.told.borrow()[..] else { panic!() };
    assert_eq!((event.time_ns, event.hi, event.lo), (host.now_ns.get(), source.hi, source.lo));
    assert_eq!((event.reason, event.fate), (Reason::LimitPackets as u32, Fate::Waived as u32));
    assert_eq!((event.service, event.port, event.len, event.family), (3, 53, 100, 0));
    host.told.borrow_mut().clear();
    let v6 = IpFrame {
        source: [7, 9],
        is_v6: true,
        protocol: 17,
        fragment: 0,
        payload: udp([0, 0], 4711, 8)[34..].to_vec(),
    };
    host.passed(&v6.frame(), 2);
    let [event] = host.told.borrow()[..] else { panic!() };
    assert_eq!((event.fate, event.service, event.port, event.family), (Fate::Decided as u32, 0, 4711, 1));
    assert_eq!(event.hi.to_ne_bytes(), [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 7]);
}

#[test]
fn a_source_is_told_of_once_in_a_tenth_of_a_second() {
    let host = host();
    let frame = udp([0, 1], 53, 8);
    for (ms, told) in [(0, 1), (99, 1), (1, 2), (50, 2), (50, 3)] {
        host.wait_ms(ms);
        host.passed(&frame, 9);
        assert_eq!(host.told.borrow().len(), told, "{ms}");
    }
}

#[test]
fn each_cpu_tells_of_so_many_and_what_is_lost_is_counted() {
    let mut host = host();
    host.policy.prefilter.reports = limit("3 packets/day");
    for last in 0..50 {
        host.passed(&udp([1, last], 53, 8), 2);
    }
    assert_eq!(host.told.borrow().len(), 3);
    assert!(host.noted.borrow().iter().all(|event| *event == Event::Promoted));
    let mut host = self::host();
    host.hears = false;
    host.passed(&udp([2, 2], 53, 8), 2);
    assert_eq!(host.noted.borrow().iter().filter(|event| **event == Event::ReportLost).count(), 1);
}

#[test]
fn a_block_is_told_of_too_and_what_passes_is_not() {
    let mut host = host();
    let blocked = ListEntry { blocked_until_ns: u64::MAX, ..ListEntry::EMPTY };
    host.list(Address::v4(u32::from_ne_bytes([10, 0, 0, 9])).key, blocked);
    assert_eq!(host.reason(&udp([0, 9], 99, 58)), Reason::Blocked);
    assert_eq!(host.reason(&udp([0, 8], 99, 58)), Reason::Conforming);
    let [event] = host.told.borrow()[..] else { panic!() };
    assert_eq!((event.reason, event.port, event.len), (Reason::Blocked as u32, 99, 100));
}

#[test]
fn all_parts_of_a_refusal_fit_into_one_number() {
    for (reason, family, port, service, len) in [
        (Reason::Conforming, 0, 0, 0, 0),
        (Reason::ExtensionChain, 1, u16::MAX, u16::MAX, 1 << 20),
        (Reason::LimitBytes, 0, 0x1234, 0x0101, 1_514),
        (Reason::LimitUser, 1, 1, 2, 3),
    ] {
        let refused = Refused::from_bits(Refused::new(reason, family, port, service, len).to_bits());
        assert_eq!(refused.reason(), reason);
        assert_eq!((refused.family(), refused.port()), (u32::from(family), u32::from(port)));
        assert_eq!((refused.service(), refused.len()), (u32::from(service), len));
    }
    assert_eq!(Refused::new(Reason::Blocked, 0, 0, 0, u32::MAX).len(), 1 << 20, "as long as a frame can be");
    assert_eq!(Refused::new(Reason::Blocked, 2, 0, 0, 0).family(), 0);
}

#[test]
fn a_source_that_was_told_of_hides_few_others() {
    let host = host();
    for last in 0..200 {
        host.passed(&udp([1, last], 53, 8), 2);
    }
    let told = host.told.borrow().len();
    assert!((160..=200).contains(&told), "{told} of 200 have a slot of 1024");
}

#[test]
fn sources_have_all_words_that_remember_when_somebody_was_told() {
    let slots = super::QUIET_SLOTS;
    assert_eq!([0, 1 << 63, u64::MAX].map(super::quiet_slot), [0, slots / 2, slots - 1]);
}

#[test]
fn a_source_is_quiet_for_a_moment_after_it_was_told_of_and_no_other_is() {
    let host = host();
    let now_q8 = 1 << 50;
    let word = crate::tables::Tables::quiet_until(&host, super::quiet_slot(1 << 63)).unwrap();
    crate::tables::Tables::store(&host, word, now_q8 + 5);
    let is_quiet = |hash, later| super::is_quiet(&host, hash, now_q8 + later);
    assert!(is_quiet(1 << 63, 0) && is_quiet(1 << 63, 4));
    assert!(!is_quiet(1 << 63, 5) && !is_quiet(0, 0));
}
