//! Totals of a service and of the host.

use ratelimit_common::abi::{Reason, Service, Share, service::Party};

use super::{PORT, reasons, with_service};
use crate::{
    limit::total::TotalView,
    tables::Tables as _,
    testbed::{TestHost, WordTable, empty, prefiltered, set, tcp, total, udp},
};

/// A service with these totals, on a host whose sources have high limits.
fn host(totals: &[&str]) -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["1000000 packets/s"]);
    let mut service = Service { total_count: totals.len() as u64, ..Service::UNUSED };
    for (place, rate) in service.totals.iter_mut().zip(totals) {
        *place = total(rate);
    }
    with_service(&mut policy, service);
    TestHost::new(policy)
}

#[test]
fn every_limit_of_a_total_is_spent() {
    let host = host(&["1000 packets/day", "100000 bytes/day burst 2000 bytes"]);
    let frame = udp([0, 1], PORT, 58);
    assert_eq!(frame.len(), 100);
    assert_eq!(host.passed(&frame, 100), 20, "as many as the second has bytes for");
    assert_eq!(reasons(&host, &frame), [Reason::ServiceTotal; 3]);
}

#[test]
fn who_has_an_account_finds_what_untracked_sources_may_not_have() {
    let mut host = host(&["8 packets/day"]);
    host.policy.source.set = prefiltered(&["800 packets/day"]);
    // Untracked sources may use three quarters.
    let untracked = (0..20).filter(|last| host.reason(&udp([1, *last], PORT, 8)) == Reason::Conforming);
    assert_eq!(untracked.count(), 6);
    // The tracked source may use the rest: it got its entry by sending more, elsewhere, than its cell gives.
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 200), 200);
    assert_eq!(host.passed(&udp([0, 1], PORT, 8), 9), 2);
    assert_eq!(host.reason(&udp([0, 1], PORT, 8)), Reason::ServiceTotal);
    assert_eq!(host.reason(&udp([0, 1], 53, 8)), Reason::Conforming, "it is the service that has nothing");
}

#[test]
fn this_cpu_takes_a_portion_at_a_time_and_spends_it_by_itself() {
    let mut host = host(&["100 packets/day"]);
    let cost = host.policy.services[0].totals[0].limit.cost_fp;
    host.policy.services[0].totals[0].portion_q8 = 10 * cost;
    let frame = udp([0, 1], PORT, 8);
    let taken = |host: &TestHost| (host.load((WordTable::Total, 0)) - host.now_q8()) / cost;
    let mut takes = [0; 22];
    for take in &mut takes {
        assert_eq!(host.reason(&frame), Reason::Conforming);
        *take = taken(&host);
    }
    assert_eq!(takes[..12], [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 20, 20]);
    assert_eq!(takes[21], 30);
    // The ordinary part comes first, and its three quarters are taken in whole portions.
    assert_eq!([0, 1].map(|pool| host.load((WordTable::Share, pool))), [8 * cost, 0]);
    assert_eq!(host.passed(&frame, 500), 78, "the rest is of the reserve");
    assert_eq!(taken(&host), 100);
}

#[test]
fn a_total_that_is_known_to_be_spent_is_not_asked_again_until_there_is_more() {
    let host = host(&["10 packets/s burst 10"]);
    let frame = udp([0, 1], PORT, 8);
    assert_eq!(host.passed(&frame, 50), 10);
    // The bucket is refilled from outside: this CPU does not know of it.
    host.store((WordTable::Total, 0), 0);
    assert_eq!(host.reason(&frame), Reason::ServiceTotal);
    host.wait_ms(100);
    assert_eq!(host.passed(&frame, 50), 10, "it looks again when there is more by its own account");
}

#[test]
fn a_cpu_that_holds_exactly_what_a_packet_costs_needs_nobody_and_knows_of_no_end() {
    let host = host(&["10 packets/s burst 10"]);
    let view = TotalView::of(&host, &host.policy, 1).unwrap();
    let share = host.share(0).unwrap();
    let price = host.policy.services[0].totals[0].limit.cost_fp;
    let (now_q8, later) = (host.now_q8(), host.now_q8() + 5);
    let [untracked, tracked] = [Party::Untracked, Party::Tracked].map(|party| Share::place(0, party));
    // The columns: the party that asks, the CPU's pool for untracked and for tracked sources, until when the bucket refuses more, and what the CPU knows.
    for (party, for_untracked, for_tracked, until, spent, holds) in [
        (Party::Untracked, price - 1, 0, later, Some(later), false),
        (Party::Untracked, price, 0, later, None, true),
        (Party::Untracked, price + 1, 0, later, None, true),
        (Party::Untracked, price - 1, price, now_q8, None, false),
        (Party::Tracked, price - 1, price - 1, later, Some(later), false),
        (Party::Tracked, price - 1, price, later, None, true),
        (Party::Tracked, price, price - 1, later, Some(later), false),
        (Party::Tracked, price - 1, price - 1, now_q8, None, false),
    ] {
        host.store(host.share_pool(share, untracked), for_untracked);
        host.store(host.share_pool(share, tracked), for_tracked);
        for place in [untracked, tracked] {
            host.store(host.share_refused_until(share, place), until);
        }
        let case = (party, for_untracked, for_tracked, until);
        assert_eq!(view.spent_until(&host, 100, now_q8, party), spent, "{case:?}");
        assert_eq!(view.holds(&host, 100, party), holds, "{case:?}");
    }
}

#[test]
fn the_host_has_a_total_whatever_packets_are_for_and_a_refusal_elsewhere_costs_it_nothing() {
    let mut host = host(&["2 packets/day"]);
    host.policy.host_total_count = 2;
    host.policy.host_totals = [total("1000 packets/day"), total("100000 bytes/day burst 2000 bytes")];
    let [there, elsewhere] = [PORT, 53].map(|port| udp([0, 1], port, 58));
    assert_eq!((host.passed(&there, 50), host.reason(&there)), (2, Reason::ServiceTotal));
    assert_eq!((host.passed(&elsewhere, 50), host.reason(&elsewhere)), (18, Reason::HostTotal));
    assert_eq!(host.reason(&there), Reason::HostTotal);
}

#[test]
fn most_packets_of_a_spoofed_flood_end_before_anything_is_looked_up() {
    for of_host in [false, true] {
        let mut host = host(&["8 packets/day"]);
        host.policy.source.set = prefiltered(&["800 packets/day"]);
        if of_host {
            host.policy.host_total_count = 1;
            host.policy.host_totals[0] = total("8 packets/day");
            host.policy.services[0].total_count = 0;
        }
        let reason = if of_host { Reason::HostTotal } else { Reason::ServiceTotal };
        let from = |last| udp([3, last], PORT, 8);
        let ends: [Reason; 9] = core::array::from_fn(|last| host.reason(&from(last as u8)));
        assert_eq!(ends[..6], [Reason::Conforming; 6]);
        assert_eq!(ends[6..], [reason; 3]);
        // The daemon was told of the seventh packet; the next ones were refused before a report.
        assert_eq!(host.told.borrow().len(), 1);
        // TCP packets are reported, because they may belong to a connection.
        assert_eq!(host.reason(&tcp([3, 77], PORT, 0x10)), reason);
        assert_eq!(host.told.borrow().len(), 2);
        // Packets of tracked sources are reported too.
        assert_eq!(host.reason(&from(9)), reason);
        assert_eq!(host.told.borrow().len(), 2);
    }
}

#[test]
fn a_weight_is_the_bytes_of_a_frame_its_service_and_whether_it_is_a_segment() {
    use crate::limit::Weight;
    assert_eq!(Weight::new(true, 7, 1_500).to_bits(), 1_500 | 7 << 32 | 1 << 48);
    assert_eq!(Weight::new(false, 0, 64).to_bits(), 64);
    assert_eq!(
        Weight::new(false, 9, u64::MAX).to_bits(),
        0xffff_ffff | 9 << 32,
        "the bits of others are not touched"
    );
}
