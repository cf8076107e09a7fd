//! Changes of `[source]`: margins, the prefilter and prefix lengths come and go while one source floods.

use proptest::prelude::*;
use ratelimit_common::abi::{Reason, counter::Fate};
use ratelimit_tests::policies;
use ratelimit_user::compile::HostFacts;

use super::{Host, source};

const BURST: u64 = 800;
const PER_SEC: u64 = 100;

/// The limit of [`BURST`] and [`PER_SEC`].
const HARD: &str = "limits = [\"100 packets/s burst 800\"]";

#[test]
fn a_limit_that_becomes_soft_hands_out_no_fresh_burst() {
    let mut host = Host::new(&source(HARD));
    host.flood(2_000);
    host.change(&source("limits = [\"100 packets/s burst 800 soft 10%\"]"));
    for _ in 0..110 {
        host.wait_ms(10);
        host.flood(200);
    }
    let (wide, admitted) = (host.bound(BURST, PER_SEC) * 11 / 10, host.admitted);
    assert!(admitted <= wide, "{admitted} admitted, {wide} are the most with a margin of 10 %");
    // The margin begins when its bucket would have filled: eight seconds.
    host.wait_ms(9_000);
    host.flood(2_000);
    assert!(host.memory.sum(Reason::SoftMargin, Fate::Decided).packets > 0, "and then it is there");
    assert!(host.admitted <= host.bound(BURST, PER_SEC) * 11 / 10);
}

#[test]
fn who_was_within_a_hard_limit_is_not_refused_when_it_becomes_soft() {
    let mut host = Host::new(&source(HARD));
    host.flood(100);
    host.change(&source("limits = [\"100 packets/s burst 800 soft 10%\"]"));
    assert_eq!(host.flood(500), 500);
}

#[test]
fn headroom_that_comes_and_goes_hands_out_no_fresh_burst_and_refuses_nobody_within_the_limit() {
    let elastic = source("limits = [\"100 packets/s burst 800 elastic 50%\"]");
    let facts = |headroom| HostFacts { headroom, ..policies::FACTS };
    let mut host = Host::new(&elastic);
    host.change_with(&elastic, &facts(false));
    for round in 0..40 {
        host.flood(2_000);
        host.wait_ms(50);
        host.change_with(&elastic, &facts(round % 2 == 0));
    }
    let (wide, admitted) = (host.bound(BURST, PER_SEC) * 3 / 2, host.admitted);
    assert!(admitted <= wide, "{admitted} admitted, {wide} are the most with a margin of 50 %");
    let mut idle = Host::new(&elastic);
    idle.change_with(&elastic, &facts(false));
    idle.wait_ms(100_000);
    idle.change_with(&elastic, &facts(true));
    assert!(idle.flood(600) == 600, "its burst is there after the change too");
    // 1200 less the eighth of the smaller burst that a cell may have given.
    assert!(idle.flood(1_000) >= 490, "and so is the margin, which was charged all the time");
}

#[test]
fn a_margin_that_goes_from_one_limit_to_another_hands_out_no_fresh_burst() {
    let limits = |fast: &str, slow: &str| {
        source(&format!("limits = [\"1000 packets/s burst 9000{fast}\", \"100 packets/s burst 800{slow}\"]"))
    };
    let mut host = Host::new(&limits(" soft 10%", ""));
    host.wait_ms(20_000);
    host.flood(3_000);
    host.change(&limits("", " soft 10%"));
    host.flood(3_000);
    // 20 s in which nobody sent do not count: the bucket was full.
    let (bound, admitted) = (BURST * 11 / 10, host.admitted);
    assert!(admitted <= bound, "{admitted} admitted, {bound} are the most with a margin of 10 %");
}

/// Ways to limit one source to the same packets, with a prefilter and without.
const PREFILTERS: [&str; 5] = [
    HARD,
    "gate = false\nlimits = [\"100 packets/s burst 800\"]",
    // So small a burst that there is no room for a prefilter.
    "limits = [\"100 packets/s burst 800\", \"100 syns/s burst 2\"]",
    // A prefilter that gives out less.
    "limits = [\"100 packets/s burst 800\", \"100 syns/s burst 64\"]",
    "limits = [\"100 packets/s burst 800\", \"1 MB/s burst 1 MB\"]",
];

#[test]
fn switching_the_prefilter_gives_nothing_twice() {
    for to in PREFILTERS {
        let mut host = Host::new(&source(HARD));
        for round in 0..8 {
            // First as much as a cell gives, then everything.
            host.flood(if round % 2 == 0 { 60 } else { 3_000 });
            host.change(&source(if round % 2 == 0 { to } else { HARD }));
            host.flood(3_000);
            host.wait_ms(20);
        }
        let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
        assert!(admitted <= bound, "{admitted} admitted, {bound} are the most, with {to}");
    }
}

#[test]
fn other_prefix_lengths_give_no_burst_again() {
    let mut host = Host::new(&source(HARD));
    host.flood(3_000);
    for length in [24, 32, 28, 32, 24, 32] {
        host.change(&source(&format!("ipv4_prefix = {length}\n{HARD}")));
        host.flood(3_000);
        host.wait_ms(100);
        host.flood(3_000);
    }
    let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
    assert!(admitted <= bound, "{admitted} admitted, {bound} are the most");
    assert!(admitted + 10 >= BURST + PER_SEC * 6 / 10, "and {admitted} are not much less");
}

#[test]
fn what_is_owed_of_a_long_limit_does_not_hide_what_a_short_one_lost() {
    let both = "limits = [\"100 packets/s burst 800\", \"1 syns/s burst 3600\"]";
    let mut host = Host::new(&source(both));
    host.flood(3_000);
    host.change(&source(&format!("ipv4_prefix = 24\n{both}")));
    host.wait_ms(1_000);
    host.change(&source(&format!("ipv4_prefix = 24\n{HARD}")));
    for length in [32, 28, 24, 30] {
        host.wait_ms(9_000);
        host.flood(3_000);
        host.change(&source(&format!("ipv4_prefix = {length}\n{HARD}")));
        host.flood(3_000);
        let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
        assert!(admitted <= bound, "{admitted} admitted, {bound} are the most, after a change to /{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Packets at once, times in ms, and which policy comes next.
    #[test]
    fn no_row_of_changes_admits_more_than_the_limit_that_all_of_them_have(
        steps in prop::collection::vec((0_usize..PREFILTERS.len(), prop_oneof![Just(32_u8), Just(24_u8)], 1_u64..900, prop_oneof![4 => 0_u64..50, 1 => 0_u64..12_000]), 1..40),
    ) {
        let mut host = Host::new(&source(HARD));
        for (prefilter, length, packets, later_ms) in steps {
            host.flood(packets);
            host.wait_ms(later_ms);
            host.flood(packets / 3);
            host.change(&source(&format!("ipv4_prefix = {length}\n{}", PREFILTERS[prefilter])));
            let (bound, admitted) = (host.bound(BURST, PER_SEC), host.admitted);
            prop_assert!(admitted <= bound, "{} admitted, {} are the most", admitted, bound);
        }
        host.flood(3_000);
        prop_assert!(host.admitted <= host.bound(BURST, PER_SEC), "{} admitted", host.admitted);
    }
}
