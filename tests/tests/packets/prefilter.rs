//! The prefilter's bound, on the packet path itself with time as a number: adversarial schedules, shared cells, idle times,
//! and sources that come and go between cell and entry.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use ratelimit_common::abi::{Reason, SourceKey, Verdict};
use ratelimit_tests::{frames::Ipv4, memory::Memory, policies};
use ratelimit_user::compile::Desired;

const BURST: u64 = 80;
const PER_SEC: u64 = 100;
/// What a cell gives out: an eighth of the burst.
const SHARE: u64 = BURST / 8;

/// What the lag of the coarse clock takes out of the burst, in packets and rounded up.
const LAG: u64 = 1;

/// A packet costs ten milliseconds.
fn limit() -> Desired {
    let desired = policies::limits(&[&format!("{PER_SEC} packets/s burst {BURST}")[..]]);
    assert!(desired.policy.source.set.prefilter_tolerance_q8 > 0, "this is about the prefilter");
    desired
}

/// Addresses that share a cell under the tests' secret.
fn neighbours(count: usize) -> Vec<Ipv4Addr> {
    let secret = policies::FACTS.secret;
    let cell = |address: Ipv4Addr| {
        let key = SourceKey::from_v4(u32::from_ne_bytes(address.octets()));
        ratelimit_common::limit::prefilter::cell_index(ratelimit_common::limit::prefilter::hash(key, secret))
    };
    let first = Ipv4Addr::new(10, 0, 0, 1);
    let others = (0x0a00_0002_u32..).map(Ipv4Addr::from_bits).filter(|a| cell(*a) == cell(first));
    std::iter::once(first).chain(others).take(count).collect()
}

/// One packet: which source, and how long after the one before, in ms.
fn schedule() -> impl Strategy<Value = Vec<(usize, u64)>> {
    let step = (0_usize..4, prop_oneof![6 => Just(0_u64), 3 => 1_u64..30, 1 => 100_u64..3_000]);
    proptest::collection::vec(step, 50..900)
}

/// The longest run of debts: how many tokens any interval admitted beyond `rate x W`.
fn largest_excess(admitted_ms: &[u64]) -> f64 {
    let mut worst = 0.0_f64;
    // The ideal bucket's debt in tokens, which is the largest excess over all intervals ending now.
    let (mut debt, mut last) = (0.0_f64, 0);
    for now in admitted_ms {
        debt = (debt - (now - last) as f64 * PER_SEC as f64 / 1_000.0).max(0.0) + 1.0;
        last = *now;
        worst = worst.max(debt);
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_source_gets_more_than_burst_plus_rate_whoever_shares_its_cell(steps in schedule()) {
        let sources = neighbours(4);
        let memory = Memory::new(&limit(), Default::default());
        let mut admitted: Vec<Vec<u64>> = vec![Vec::new(); sources.len()];
        let mut now_ms = 1_000;
        for (source, wait_ms) in steps {
            now_ms += wait_ms;
            memory.now_ns.set(now_ms * 1_000_000);
            if memory.run(&Ipv4::from(sources[source]).udp_frame(8)) == Verdict::Pass {
                admitted[source].push(now_ms);
            }
        }
        for admitted in admitted {
            let excess = largest_excess(&admitted);
            prop_assert!(excess <= BURST as f64 + 1e-6, "{excess} in one burst");
        }
    }

    #[test]
    fn a_source_within_burst_less_share_is_never_refused_whatever_its_neighbours_do(steps in schedule()) {
        let sources = neighbours(4);
        let memory = Memory::new(&limit(), Default::default());
        // The honest source asks only when an ideal bucket of the guaranteed burst would admit it.
        let (mut debt, mut last_ms) = (0.0_f64, 1_000);
        let mut now_ms = 1_000;
        for (source, wait_ms) in steps {
            now_ms += wait_ms;
            memory.now_ns.set(now_ms * 1_000_000);
            let frame = Ipv4::from(sources[source]).udp_frame(8);
            if source > 0 {
                memory.run(&frame);
                continue;
            }
            debt = (debt - (now_ms - last_ms) as f64 * PER_SEC as f64 / 1_000.0).max(0.0);
            last_ms = now_ms;
            if debt + 1.0 <= (BURST - SHARE - LAG) as f64 {
                debt += 1.0;
                prop_assert_eq!(memory.run(&frame), Verdict::Pass, "at {} ms with {} owed", now_ms, debt);
            }
        }
    }

    #[test]
    fn eviction_is_the_only_way_to_a_fresh_burst_and_grants_no_more_than_one(
        steps in schedule(), evictions in proptest::collection::btree_set(0_usize..900, 0..5),
    ) {
        let source = neighbours(1)[0];
        let memory = Memory::new(&limit(), Default::default());
        let (mut admitted, mut now_ms, mut evicted) = (Vec::new(), 1_000, 0);
        for (number, (_, wait_ms)) in steps.into_iter().enumerate() {
            now_ms += wait_ms;
            memory.now_ns.set(now_ms * 1_000_000);
            if evictions.contains(&number) {
                memory.evict(SourceKey::from_v4(u32::from_ne_bytes(source.octets())));
                evicted += 1;
            }
            if memory.run(&Ipv4::from(source).udp_frame(8)) == Verdict::Pass {
                admitted.push(now_ms);
            }
        }
        let excess = largest_excess(&admitted);
        prop_assert!(excess <= (BURST * (1 + evicted)) as f64 + 1e-6, "{excess} after {evicted} evictions");
    }
}

#[test]
fn a_flood_from_one_source_is_answered_by_its_cell_without_a_look_at_the_table() {
    let memory = Memory::new(&limit(), Default::default());
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    for _ in 0..200 {
        memory.run(&frame);
    }
    // With its entry gone the source would start over, if anybody looked.
    memory.evict(SourceKey::from_v4(u32::from_ne_bytes([10, 0, 0, 1])));
    let before = memory.counters()[Reason::LimitPackets as usize].1.packets;
    for _ in 0..50 {
        assert_eq!(memory.run(&frame), Verdict::Drop);
    }
    assert_eq!(memory.counters()[Reason::LimitPackets as usize].1.packets, before + 50);
    assert_eq!(memory.sources(), 0);
}

#[test]
fn an_idle_cell_forgets_its_sources_and_they_begin_with_the_cell_again() {
    let memory = Memory::new(&limit(), Default::default());
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    let burst = || (0..200).filter(|_| memory.run(&frame) == Verdict::Pass).count() as u64;
    let first = burst();
    // The coarse clock's lag has been taken out of the burst: three ticks, which is between one packet and two.
    assert_eq!(first, BURST - 2);
    // Long enough for every bucket to be full and the cell to be untracked.
    memory.now_ns.set(memory.now_ns.get() + 10_000_000_000);
    assert_eq!(burst(), first, "a full burst again, cell and entry together, and not one more");
}

fn count(memory: &Memory, reason: Reason) -> u64 {
    memory.counters()[reason as usize].1.packets
}

#[test]
fn a_source_that_the_table_has_no_room_for_is_refused_beyond_its_cells_share() {
    let memory = Memory::new(&limit(), Default::default());
    memory.full.set(true);
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    let admitted = (0..200).filter(|_| memory.run(&frame) == Verdict::Pass).count() as u64;
    assert!(admitted <= SHARE, "{admitted} admitted");
    assert_eq!(count(&memory, Reason::TableFull), 200 - admitted);
}

#[test]
fn a_packet_that_loses_every_race_for_its_bucket_is_refused() {
    let memory = Memory::new(&limit(), Default::default());
    let frame = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    memory.lost_races.set(3);
    assert_eq!(memory.run(&frame), Verdict::Pass, "the fourth attempt succeeds");
    memory.lost_races.set(4);
    assert_eq!(memory.run(&frame), Verdict::Drop, "in the cell");
    for _ in 0..20 {
        memory.run(&frame);
    }
    assert_eq!(memory.sources(), 1);
    memory.lost_races.set(4);
    assert_eq!(memory.run(&frame), Verdict::Drop, "in the entry");
    assert_eq!(count(&memory, Reason::Contended), 2);
    assert_eq!(memory.run(&frame), Verdict::Pass);
}
