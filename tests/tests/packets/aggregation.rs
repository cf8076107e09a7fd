//! Prefix aggregation: what a whole neighbourhood may send, on the packet path with time as a number and in the kernel.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use ratelimit_common::{
    abi::{EntryKey, Event, PrefixKey, Reason, SourceKey, Verdict, counter::Fate, prefix::MAX_PREFIX_LEVELS},
    limit::{aggregation, fair, gcra, prefilter},
};
use ratelimit_ebpf::tables::Tables as _;
use ratelimit_tests::{
    frames::{Ipv4, Ipv6},
    loaded::Loaded,
    memory::Memory,
    policies,
};
use ratelimit_user::compile::Desired;

/// What one source may have.
const BURST: u64 = 80;
const PER_SEC: u64 = 100;
/// What the lag of the coarse clock takes out of a burst, in packets of one source and rounded up.
const LAG: u64 = 1;
/// How many sources' worth a prefix may have.
const MULTIPLE: u64 = 4;
const SECOND: u64 = 1_000_000_000;

/// Sources are limited to a burst of 80 and 100 packets/s, and so are four sources' worth of a /24 and of a /48.
fn policy() -> Desired {
    policies::source(&format!(
        "limits = [\"{PER_SEC} packets/s burst {BURST}\"]\n\
         ladder = {{ ipv4 = [\"/24 x{MULTIPLE}\"], ipv6 = [\"/48 x{MULTIPLE}\"] }}"
    ))
}

/// A source in 2001:db8:<site>::/48.
fn in_site(site: u16, subnet: u16) -> Vec<u8> {
    Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, site, subnet, 1, 2, 3, 4)).udp_frame(8)
}

fn admitted(memory: &Memory, frames: impl IntoIterator<Item = Vec<u8>>) -> u64 {
    frames.into_iter().filter(|frame| memory.run(frame) == Verdict::Pass).count() as u64
}

#[test]
fn an_attacker_who_rotates_through_a_slash_48_is_held_to_its_limit_and_leaves_no_entries() {
    let memory = Memory::new(&policy(), Default::default());
    let passed = admitted(&memory, (0..u16::MAX).map(|subnet| in_site(1, subnet)));
    // Untracked sources may use three quarters of the prefix's burst.
    let most = MULTIPLE * BURST * 3 / 4;
    assert!(passed <= most, "{passed} admitted, {most} are the most");
    assert!(passed >= MULTIPLE * (BURST - LAG) * 3 / 4 - MULTIPLE, "{passed} admitted of {most}");
    assert_eq!(memory.sources(), 0, "no source of it is remembered");
    assert_eq!(memory.prefixes(), 1, "and the prefix once");
    assert!(memory.counters()[Reason::LimitPrefix as usize].1.packets > 60_000);
    // Afterwards the prefix gets what four sources get.
    memory.now_ns.set(memory.now_ns.get() + SECOND / 4);
    let passed = admitted(&memory, (0..u16::MAX).map(|subnet| in_site(1, subnet)));
    let earned = MULTIPLE * PER_SEC / 4;
    assert!((earned - 1..=earned).contains(&passed), "{passed} in a quarter of a second, {earned} earned");
}

#[test]
fn the_kernel_holds_a_slash_48_too() {
    let mut loaded =
        Loaded::new(&policies::source("limits = [\"800 packets/day\"]\nladder = { ipv6 = [\"/48 x4\"] }"));
    for subnet in 0..20_000 {
        loaded.run(&in_site(7, subnet));
    }
    let passed = loaded.count(Reason::Conforming);
    // Less the lag of the coarse clock and room for the CPUs.
    assert!((2_380..=2_400).contains(&passed), "{passed} admitted of 2400 for untracked sources");
    assert_eq!(loaded.count(Reason::LimitPrefix), 20_000 - passed);
    assert_eq!(loaded.maps.event(Event::PrefixPromoted).unwrap(), 1);
    assert_eq!(loaded.run(&in_site(8, 0)), Verdict::Pass, "the neighbour is not concerned");
}

#[test]
fn one_line_switches_it_off() {
    let off = policies::source("limits = [\"100 packets/s burst 80\"]\nladder = false");
    let memory = Memory::new(&off, Default::default());
    assert_eq!(admitted(&memory, (0..5_000).map(|subnet| in_site(1, subnet))), 5_000);
}

#[test]
fn by_default_there_are_two_prefix_levels_for_ipv4_and_three_for_ipv6() {
    let aggregation = policies::source("limits = [\"1000 packets/s\"]").policy.aggregation;
    let multiples = aggregation.prefix_levels.map(|family| family.map(|prefix_level| prefix_level.multiple));
    assert_eq!(multiples, [[32, 256, 0], [4, 64, 1024]]);
    let mask = |prefix_level: ratelimit_common::abi::PrefixLevel| {
        SourceKey { hi: prefix_level.mask_hi, lo: prefix_level.mask_lo }.octets()
    };
    assert_eq!(mask(aggregation.prefix_levels[0][0])[12..], [0xff, 0xff, 0xff, 0]);
    assert_eq!(mask(aggregation.prefix_levels[0][1])[12..], [0xff, 0xff, 0xf0, 0]);
    assert_eq!(mask(aggregation.prefix_levels[1][2])[..5], [0xff, 0xff, 0xff, 0xff, 0]);
}

#[test]
fn a_proven_source_has_all_of_its_limits_when_somebody_forges_its_whole_prefix() {
    let memory = Memory::new(&policy(), Default::default());
    // The source sends more than its cell vouches for, and so gets an entry; then it shows a connection.
    let address = Ipv4Addr::new(192, 0, 2, 200);
    let honest = Ipv4::from(address).udp_frame(8);
    assert_eq!(admitted(&memory, vec![honest.clone(); 30]), 30);
    let SourceKey { hi, lo } = SourceKey::from_v4(u32::from_ne_bytes(address.octets()));
    let bucket = memory.bucket(&EntryKey { hi, lo, group: 0 }).expect("an entry");
    let proven_until_q8 = gcra::time_q8(memory.now_ns.get()) + fair::PROVEN_Q8;
    for (proven, least) in [(true, 100), (false, 0)] {
        memory.store(memory.proven_until(bucket), if proven { proven_until_q8 } else { 0 });
        if proven {
            let hash = prefilter::hash(SourceKey { hi, lo }, policies::FACTS.secret);
            memory.mark_proven(prefilter::cell_index(hash), gcra::time_q8(memory.now_ns.get()));
        }
        let mut passed = 0;
        for _ in 0..100 {
            memory.now_ns.set(memory.now_ns.get() + SECOND / 50);
            let forged = (0..5).flat_map(|_| (1..200).map(|host| Ipv4::from([192, 0, 2, host]).udp_frame(8)));
            admitted(&memory, forged);
            // The honest source sends half of what it may have alone.
            passed += u64::from(memory.run(&honest) == Verdict::Pass);
        }
        assert!(passed >= least, "{passed} of 100 passed, proven: {proven}");
        assert!(proven || passed < 50, "{passed} of 100 passed: who is not proven has an equal share");
    }
}

/// Prefixes whose cell is the same under the tests' secret.
fn neighbours(count: usize) -> Vec<[u8; 3]> {
    let cell = |prefix: u32| {
        let key = SourceKey::from_v4(u32::from_ne_bytes((prefix << 8).to_be_bytes()));
        aggregation::cell_index(0, prefilter::hash(key, policies::FACTS.secret))
    };
    let first = 0x0a_0000_u32;
    let same = (first..).filter(|prefix| cell(*prefix) == cell(first)).take(count);
    same.map(|prefix| [(prefix >> 16) as u8, (prefix >> 8) as u8, prefix as u8]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Several prefixes of one cell, packets from many addresses of each, times between them in ms.
    #[test]
    fn every_prefix_of_a_shared_cell_stays_within_its_bound_and_gets_its_share(
        schedule in prop::collection::vec((0_usize..3, 1_u8..255, prop_oneof![8 => Just(0_u64), 1 => 1_u64..20, 1 => 100_u64..2_000]), 1..3_000),
    ) {
        let memory = Memory::new(&policy(), Default::default());
        let prefixes = neighbours(3);
        let start = memory.now_ns.get();
        let mut logs = vec![Vec::new(); prefixes.len()];
        // Debt of each prefix in a bucket of what is guaranteed: three quarters for untracked sources, less what the cell may owe.
        let guaranteed = MULTIPLE * (BURST - LAG) * 3 / 4 - MULTIPLE * BURST / 8;
        let mut ideal = vec![(0_f64, start); prefixes.len()];
        for (which, host, later_ms) in schedule {
            memory.now_ns.set(memory.now_ns.get() + later_ms * 1_000_000);
            let now = memory.now_ns.get();
            let [a, b, c] = prefixes[which];
            let refused_by_prefix = || memory.counter(0, Reason::LimitPrefix, Fate::Decided).packets;
            let before = refused_by_prefix();
            let verdict = memory.run(&Ipv4::from([a, b, c, host]).udp_frame(8));
            let by_prefix = refused_by_prefix() > before;
            let (debt, last) = ideal[which];
            let debt = (debt - (now - last) as f64 * (MULTIPLE * PER_SEC) as f64 / SECOND as f64).max(0.0);
            prop_assert!(!by_prefix || debt + 1.0 > guaranteed as f64, "refused at a debt of {debt} of {guaranteed}");
            ideal[which] = (if verdict == Verdict::Pass { debt + 1.0 } else { debt }, now);
            if verdict == Verdict::Pass {
                logs[which].push(now);
            }
        }
        for log in logs {
            for (first, start) in log.iter().enumerate() {
                // The longest interval from here, and a few in between.
                for last in [log.len() - 1, first + (log.len() - 1 - first) / 2] {
                    let window = log[last] - start;
                    let bound = MULTIPLE * (BURST * SECOND + PER_SEC * window) / SECOND;
                    let count = (last - first + 1) as u64;
                    prop_assert!(count <= bound, "{count} in {window} ns, {bound} are the most");
                }
            }
        }
    }
}

/// A CPU that stalls between its look at a word and its mend of it must not undo what others charged meanwhile.
#[test]
fn a_debt_that_another_cpu_settles_and_charges_first_keeps_what_that_one_charged() {
    let memory = Memory::new(&policy(), Default::default());
    let frame = in_site(1, 1);
    // The cell of its /48, far beyond what any tolerance of now allows: the limit was slower once.
    let prefix = SourceKey { hi: 0x2001_0db8_0001_0000_u64.to_be(), lo: 0 };
    let prefix_level = MAX_PREFIX_LEVELS as u32;
    let cell = aggregation::cell_index(prefix_level, prefilter::hash(prefix, policies::FACTS.secret));
    let cell = memory.prefix_level_tat(memory.prefix_level_cell(cell).unwrap());
    let now_q8 = gcra::time_q8(memory.now_ns.get());
    let overdrawn = now_q8 + gcra::time_q8(100 * SECOND);
    let charged = now_q8 + gcra::time_q8(SECOND / 2);
    memory.store(cell, overdrawn);
    memory.rival.set(Some((cell, charged)));
    assert_eq!(memory.run(&frame), Verdict::Pass, "the prefix gets an entry");
    assert_eq!(memory.rival.get(), None, "the cell was looked at");
    assert_eq!(memory.load(cell), charged, "of the cell");
    // The race for the entry of the prefix ends as the race for the cell did.
    let prefix_level = prefix_level.into();
    let entry = memory.prefix(&PrefixKey { hi: prefix.hi, lo: prefix.lo, prefix_level }).expect("an entry");
    memory.store(entry, overdrawn);
    memory.rival.set(Some((entry, charged)));
    assert_eq!(memory.run(&frame), Verdict::Drop, "as it stood when it was looked at");
    assert_eq!(memory.load(entry), charged, "of the entry");
    // With no other CPU about, the debt is settled.
    memory.store(entry, overdrawn);
    assert_eq!(memory.run(&frame), Verdict::Drop);
    assert!(memory.load(entry) < overdrawn);
}
