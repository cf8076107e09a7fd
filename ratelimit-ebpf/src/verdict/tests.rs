//! Packets for services that drop nothing, mark or reject.

extern crate std;

use std::{boxed::Box, vec, vec::Vec};

use ratelimit_common::abi::{
    ListEntry, Mode, OnLimit, Policy, Reason, Service, Verdict,
    counter::Fate,
    service::{Protocol, port_slot},
};

use crate::{
    packet::{Address, Family},
    tables::Successor,
    testbed::{FrameEnd, IpFrame, TestHost, empty, set, total, udp},
};

/// A policy with a service that admits two packets a day of each source, and `on_limit` for the others.
fn policy(on_limit: OnLimit) -> Box<Policy> {
    let mut policy = empty();
    policy.source.set = set(&["1000 packets/s"]);
    policy.service_count = 1;
    policy.services[0] = Service {
        per_source: set(&["2 packets/day"]),
        on_limit: on_limit as u32,
        dscp: 46,
        ..Service::UNUSED
    };
    policy.ports[port_slot(Protocol::Udp, 53) as usize] = 1;
    policy.lenient = 1;
    policy
}

/// The end of the third datagram of a source.
fn third(host: &TestHost) -> FrameEnd {
    let frame = udp([0, 1], 53, 8);
    assert_eq!(host.passed(&frame, 2), 2);
    host.end(&frame)
}

fn ending(verdict: Verdict, reason: Reason, fate: Fate) -> FrameEnd {
    FrameEnd { verdict, service: 1, reason, fate }
}

#[test]
fn what_is_above_a_limit_of_a_service_has_the_fate_that_the_service_says() {
    for (on_limit, verdict, fate) in [
        (OnLimit::Drop, Verdict::Drop, Fate::Decided),
        (OnLimit::Monitor, Verdict::Pass, Fate::Waived),
        (OnLimit::Mark, Verdict::Pass, Fate::Marked),
        (OnLimit::Reject, Verdict::Reply, Fate::Rejected),
    ] {
        let mut host = TestHost::new(policy(on_limit));
        host.programs = vec![Successor::Mark, Successor::Reject];
        assert_eq!(third(&host), ending(verdict, Reason::LimitPackets, fate), "{on_limit:?}");
        let marks: &[(usize, Family, u32)] =
            if on_limit == OnLimit::Mark { &[(14, Family::V4, 46)] } else { &[] };
        assert_eq!(*host.marked.borrow(), marks);
    }
}

#[test]
fn a_block_is_no_limit_of_a_service_and_no_service_waives_it() {
    for on_limit in [OnLimit::Monitor, OnLimit::Mark, OnLimit::Reject] {
        let mut host = TestHost::new(policy(on_limit));
        host.programs = vec![Successor::Mark, Successor::Reject];
        let blocked = ListEntry { blocked_until_ns: u64::MAX, ..ListEntry::EMPTY };
        host.list(Address::v4(u32::from_ne_bytes([10, 0, 0, 1])).key, blocked);
        let end = host.end(&udp([0, 1], 53, 8));
        assert_eq!(end, ending(Verdict::Drop, Reason::Blocked, Fate::Decided), "{on_limit:?}");
    }
}

#[test]
fn a_policy_on_trial_waives_whatever_it_would_drop() {
    let mut host = TestHost::new(policy(OnLimit::Drop));
    host.policy.mode = Mode::Monitor as u32;
    assert_eq!(third(&host), ending(Verdict::Pass, Reason::LimitPackets, Fate::Waived));
    let blocked = ListEntry { blocked_until_ns: u64::MAX, ..ListEntry::EMPTY };
    host.list(Address::v4(u32::from_ne_bytes([10, 0, 0, 2])).key, blocked);
    assert_eq!(host.end(&udp([0, 2], 53, 8)), ending(Verdict::Pass, Reason::Blocked, Fate::Waived));
    let cut =
        IpFrame { source: [0, 1], is_v6: false, protocol: 17, fragment: 0, payload: vec![0; 3] }.frame();
    let end = host.end(&cut);
    assert_eq!((end.verdict, end.reason, end.fate), (Verdict::Pass, Reason::Truncated, Fate::Waived));
}

#[test]
fn without_the_program_for_it_a_packet_is_neither_marked_nor_rejected_but_dropped() {
    for (on_limit, to) in [(OnLimit::Mark, Successor::Mark), (OnLimit::Reject, Successor::Reject)] {
        let host = TestHost::new(policy(on_limit));
        assert_eq!(third(&host), ending(Verdict::Drop, Reason::LimitPackets, Fate::Decided));
        assert_eq!(*host.handed_over.borrow(), [to]);
    }
}

#[test]
fn what_a_service_lets_pass_costs_the_host_and_is_dropped_when_the_host_has_nothing_left() {
    for (mode, waived) in [(Mode::Enforce, 4), (Mode::Monitor, 98)] {
        let mut host = TestHost::new(policy(OnLimit::Monitor));
        host.policy.mode = mode as u32;
        host.policy.host_total_count = 1;
        host.policy.host_totals[0] = total("8 packets/day");
        // Two are within the limits. Waived packets count as those of untracked sources: they find three quarters of eight, less these two.
        let frame = udp([0, 1], 53, 8);
        let ends: Vec<FrameEnd> = (0..100).map(|_| host.end(&frame)).collect();
        let is_waived = |end: &&FrameEnd| end.fate == Fate::Waived && end.reason == Reason::LimitPackets;
        assert_eq!(ends.iter().filter(is_waived).count(), waived, "{mode:?}");
        let dropped = ends.iter().filter(|end| end.verdict == Verdict::Drop).count();
        assert_eq!(dropped, if mode == Mode::Enforce { 94 } else { 0 }, "{mode:?}");
    }
}

#[test]
fn a_policy_without_an_exception_asks_no_service_what_becomes_of_a_packet() {
    let mut host = TestHost::new(policy(OnLimit::Monitor));
    host.policy.lenient = 0;
    assert_eq!(third(&host), ending(Verdict::Drop, Reason::LimitPackets, Fate::Decided));
}

#[test]
fn what_is_rejected_or_dropped_costs_the_host_nothing() {
    for on_limit in [OnLimit::Drop, OnLimit::Reject] {
        let mut host = TestHost::new(policy(on_limit));
        host.programs = vec![Successor::Reject];
        host.policy.host_total_count = 1;
        host.policy.host_totals[0] = total("8 packets/day");
        for _ in 0..50 {
            host.end(&udp([0, 1], 53, 8));
        }
        let others =
            (2..20).filter(|last| host.end(&udp([0, *last], 99, 8)).verdict == Verdict::Pass).count();
        assert_eq!(others, 4, "{on_limit:?}: three quarters of eight, less two");
    }
}
