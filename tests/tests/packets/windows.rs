//! Windows of sources when more sources come than the table has room for.

use std::net::Ipv4Addr;

use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{frames::Ipv4, loaded::Loaded, memory::Memory, policies};
use ratelimit_user::compile::Desired;

const LIMIT: u64 = 100;
/// Entries of the smallest table there is.
const TABLE: u32 = 1_024;
/// Every so many newcomers, who have filled the table several times over, the one who is over its limit tries again.
const ROUNDS: u32 = 6;
const NEWCOMERS: u32 = 6 * TABLE;

/// Windows of an hour, however they are counted, and newcomers as fast as a test can make them.
fn policies() -> [Desired; 3] {
    ["sliding-window", "fixed-window", "sliding-window-weighted"].map(|kind| {
        policies::source(&format!(
            "ladder = false\nlimits = [\"{LIMIT} packets/hour {kind}\"]\nnew_sources_per_cpu = 10000000"
        ))
    })
}

fn newcomer(number: u32) -> Vec<u8> {
    Ipv4::from(Ipv4Addr::from_bits(0x0b00_0000 + number)).udp_frame(8)
}

#[test]
fn a_source_that_was_over_its_window_stays_so_however_many_newcomers_fill_the_table() {
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    for policy in policies() {
        let mut loaded = Loaded::with_sources(&policy, TABLE);
        let mut admitted = 0;
        for round in 0..ROUNDS {
            admitted += (0..2 * LIMIT).filter(|_| loaded.run(&frame) == Verdict::Pass).count() as u64;
            for number in 0..NEWCOMERS {
                assert_eq!(loaded.run(&newcomer(round * NEWCOMERS + number)), Verdict::Pass, "a newcomer");
            }
        }
        // One more window may have begun meanwhile where they have edges.
        assert!(admitted <= 2 * LIMIT, "{admitted} admitted in a few seconds of {LIMIT} per hour");
        assert!(loaded.count(Reason::LimitPackets) >= u64::from(ROUNDS - 2) * 2 * LIMIT);
    }
}

#[test]
fn a_window_that_was_kept_goes_on_as_it_was() {
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    let hour = 3_600_000_000_000;
    for policy in policies() {
        let memory = Memory::new(&policy, Default::default());
        let burst = || (0..2 * LIMIT).filter(|_| memory.run(&frame) == Verdict::Pass).count() as u64;
        memory.now_ns.set(10 * hour);
        assert_eq!(burst(), LIMIT);
        memory.evict_windows();
        assert_eq!(burst(), 0, "it is still the same hour");
        memory.now_ns.set(12 * hour);
        assert_eq!(burst(), LIMIT, "and this is another");
        memory.evict_windows();
        assert_eq!(burst(), 0);
    }
}

#[test]
fn who_was_never_refused_begins_afresh_when_the_table_forgets_it() {
    // The bound without this condition would be wrong: docs/decisions/0015 says it.
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    let [sliding, ..] = policies();
    let memory = Memory::new(&sliding, Default::default());
    for _ in 0..3 {
        assert!((0..LIMIT).all(|_| memory.run(&frame) == Verdict::Pass));
        memory.evict_windows();
    }
}

#[test]
fn a_frame_that_fits_no_window_is_not_taken_for_one_too_many() {
    let policy = policies::source("ladder = false\nlimits = [\"1514 bytes/hour sliding-window\"]");
    let memory = Memory::new(&policy, Default::default());
    let [small, large] = [100, 3_000].map(|len| Ipv4::from([10, 0, 0, 1]).udp_frame(len));
    assert_eq!(memory.run(&small), Verdict::Pass);
    assert_eq!(memory.run(&large), Verdict::Drop);
    memory.evict_windows();
    // Nothing was kept of it, or there would be room for one less.
    assert_eq!((0..20).filter(|_| memory.run(&small) == Verdict::Pass).count(), 1_514 / small.len());
}

#[test]
fn a_window_begins_by_the_precise_clock_and_buckets_that_bear_the_lag_go_by_the_coarse_one() {
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    let hour = 3_600_000_000_000;
    let [_, fixed, _] = policies();
    let memory = Memory::new(&fixed, Default::default());
    memory.lag_ns.set(4_000_000);
    let burst =
        |memory: &Memory| (0..2 * LIMIT).filter(|_| memory.run(&frame) == Verdict::Pass).count() as u64;
    memory.now_ns.set(10 * hour - 1);
    assert_eq!(burst(&memory), LIMIT);
    memory.now_ns.set(10 * hour);
    assert_eq!(burst(&memory), LIMIT, "an hour begins when it begins, not a tick later");
    // A bucket of thousands, which has been made smaller by as much as the clock may lag.
    let bucket = policies::limits(&["1000 packets/s burst 1000"]);
    let memory = Memory::new(&bucket, Default::default());
    memory.now_ns.set(10 * hour);
    while memory.run(&frame) == Verdict::Pass {}
    memory.now_ns.set(10 * hour + 4_000_000);
    memory.lag_ns.set(4_000_000);
    assert_eq!(burst(&memory), 0, "no time has passed on its clock");
    memory.lag_ns.set(0);
    assert_eq!(burst(&memory), 4);
}
