//! Limits that are counted in windows.

use ratelimit_common::abi::{LimitSet, Reason, window::WindowKind};

use crate::testbed::{SECOND_NS, TestHost, WordTable, empty, limit, udp, window};

/// A host whose sources may send three packets a second, counted in windows.
fn host(kind: WindowKind) -> TestHost {
    let mut policy = empty();
    policy.window_count = 1;
    policy.windows[0] = window("3 packets/s fixed-window", kind);
    policy.source.set = LimitSet { windows: [1, 0, 0, 0, 0, 0, 0, 0], ..LimitSet::NONE };
    TestHost::new(policy)
}

#[test]
fn the_edge_of_a_window_is_a_moment_of_the_precise_clock() {
    let host = host(WindowKind::Fixed);
    let frame = udp([0, 1], 53, 8);
    host.lag_ns.set(4_000_000);
    host.now_ns.set(200 * SECOND_NS - 1);
    assert_eq!(host.passed(&frame, 10), 3);
    // The coarse clock is still in the window before this one.
    host.now_ns.set(200 * SECOND_NS);
    assert_eq!(host.passed(&frame, 10), 3, "a window has begun");
    host.now_ns.set(201 * SECOND_NS - 1);
    assert_eq!(host.passed(&frame, 10), 0);
}

#[test]
fn whose_window_is_new_is_paid_for_from_the_budget_of_newcomers() {
    let mut host = host(WindowKind::Fixed);
    host.policy.prefilter.new_sources = limit("2 packets/day");
    let from = |last| udp([0, last], 53, 8);
    assert_eq!(
        [1, 2, 3].map(|last| host.reason(&from(last))),
        [Reason::Conforming, Reason::Conforming, Reason::NewSourceBudget]
    );
    assert_eq!(host.reason(&from(1)), Reason::Conforming, "who has one needs none");
    assert_eq!(host.rows(WordTable::Window), 2);
}

#[test]
fn each_kind_of_window_holds_its_limit_and_begins_again() {
    for kind in [WindowKind::Fixed, WindowKind::Sliding, WindowKind::Weighted] {
        let mut host = host(kind);
        let rate = match kind {
            WindowKind::Fixed => "3 packets/s fixed-window",
            WindowKind::Sliding => "3 packets/s sliding-window",
            WindowKind::Weighted => "3 packets/s sliding-window-weighted",
        };
        host.policy.windows[0] = window(rate, kind);
        host.now_ns.set(200 * SECOND_NS);
        let frame = udp([0, 1], 53, 8);
        assert_eq!((host.passed(&frame, 20), host.reason(&frame)), (3, Reason::LimitPackets), "{kind:?}");
        host.now_ns.set(203 * SECOND_NS);
        assert_eq!(host.passed(&frame, 20), 3, "{kind:?}");
        // The window of a source that was over its limit cannot be displaced by new sources.
        assert_eq!((host.rows(WordTable::Window), host.rows(WordTable::KeptWindow)), (0, 1), "{kind:?}");
        host.now_ns.set(206 * SECOND_NS);
        host.lost_races.set(3);
        assert_eq!(host.reason(&frame), Reason::Conforming, "{kind:?}");
        host.lost_races.set(100);
        assert_eq!(host.reason(&frame), Reason::Contended, "{kind:?}");
        host.lost_races.set(0);
        // Another CPU has already opened a later window.
        host.now_ns.set(204 * SECOND_NS);
        assert_eq!(host.reason(&frame), Reason::Contended, "{kind:?}");
    }
}

#[test]
fn a_frame_that_fits_no_window_is_refused_and_nothing_is_kept_of_it() {
    let mut host = host(WindowKind::Fixed);
    host.policy.windows[0] = window("2000 bytes/s fixed-window", WindowKind::Fixed);
    let (small, large) = (udp([0, 1], 53, 58), udp([0, 1], 53, 2_000));
    assert_eq!((host.reason(&large), host.rows(WordTable::Window)), (Reason::LimitBytes, 0));
    assert_eq!(host.reason(&small), Reason::Conforming);
    assert_eq!(host.reason(&large), Reason::LimitBytes);
    assert_eq!((host.rows(WordTable::Window), host.rows(WordTable::KeptWindow)), (1, 0), "nobody is over it");
    assert_eq!(host.passed(&small, 19), 19);
    assert_eq!(host.rows(WordTable::KeptWindow), 0, "until a frame is refused that would fit");
    assert_eq!((host.reason(&small), host.rows(WordTable::KeptWindow)), (Reason::LimitBytes, 1));
}

#[test]
fn a_soft_window_lets_pass_what_is_above_it_and_the_one_behind_it_does_not() {
    let mut host = host(WindowKind::Fixed);
    host.policy.window_count = 2;
    host.policy.windows[1] = window("5 packets/s fixed-window", WindowKind::Fixed);
    host.policy.windows[0].soft = 1;
    host.policy.source.set.windows[1] = 2;
    use Reason::{Conforming as In, LimitPackets as Out, SoftMargin as Above};
    let frame = udp([0, 1], 53, 8);
    assert_eq!(super::reasons(&host, &frame), [In, In, In, Above, Above, Out, Out]);
    let names = host.keys(WordTable::Window);
    assert_eq!((names.len(), host.rows(WordTable::KeptWindow)), (1, 1), "the soft one is not kept");
    let [group] = [names[0][2]];
    assert_eq!((group >> 32, group >> 16 & 0xffff, group & 0xffff), (1, 0, 0), "name, place, service");
}

#[test]
fn a_window_counts_only_what_its_meter_counts() {
    let mut host = host(WindowKind::Fixed);
    host.policy.windows[0] = window("3 syns/s fixed-window", WindowKind::Fixed);
    assert_eq!((host.passed(&udp([0, 1], 53, 8), 50), host.rows(WordTable::Window)), (50, 0));
    let syn = crate::testbed::tcp([0, 1], 80, crate::testbed::SYN);
    assert_eq!((host.passed(&syn, 50), host.reason(&syn)), (3, Reason::LimitSyns));
}

#[test]
fn there_is_no_window_for_whoever_comes_when_the_table_is_full() {
    let host = host(WindowKind::Fixed);
    host.full.set(true);
    assert_eq!(host.reason(&udp([0, 1], 53, 8)), Reason::TableFull);
}
