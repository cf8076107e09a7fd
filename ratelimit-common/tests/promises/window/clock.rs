//! Clocks that step back, years of silence, and the wrap of window numbers.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};

use super::model::{Admitted, Kind, Source, amount, assert_bound, kind, magnitude, period, rate, schedule};

const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// Windows before a word's number comes round.
fn circle(source: &Source) -> u64 {
    let previous_bits = if source.kind == Kind::Weighted { 12 } else { 1 };
    1 << (64 - previous_bits - source.window.count_bits)
}

proptest! {
    #![proptest_config(super::config(4000))]

    /// By the clock readings that the packets were judged by, which is what the bound is stated in.
    #[test]
    fn a_clock_that_steps_back_keeps_the_bound_in_every_window(
        kind in kind(),
        rate in rate(),
        start_ns in (1_u64 << 50)..1 << 62,
        calls in schedule(150, 1 << 20),
        steps_back in prop::collection::vec(prop_oneof![2 => Just(0), 2 => 0_u64..5_000, 1 => magnitude(1_000_000_000)], 150),
    ) {
        let source = Source::new(kind, rate);
        let (mut real_ns, mut admitted) = (start_ns, Vec::new());
        for ((step, raw), back_ns) in calls.iter().zip(steps_back) {
            let amount = amount(&rate, *raw);
            real_ns = real_ns.saturating_add(step.ns(&source, real_ns));
            let now_ns = real_ns - back_ns;
            if source.ask(now_ns, amount) {
                admitted.push(Admitted { now_ns, amount });
            }
        }
        assert_bound(kind, &rate, &admitted)?;
    }

    /// Two CPUs whose clocks differ, both always asking, at every moment round an edge.
    #[test]
    fn two_clocks_at_an_edge_keep_the_bound(
        kind in kind(),
        limit in 1_u64..30,
        edges in 1_u64..70,
        skew_ns in 1_u64..50,
    ) {
        let rate = Rate { meter: Meter::Packets, amount: limit, period: Period::Second, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let source = Source::new(kind, rate);
        let mut admitted = Vec::new();
        for edge in 0..edges {
            let edge_ns = (1000 + edge) * source.window.length_ns;
            for real_ns in edge_ns - 60..edge_ns + 60 {
                for now_ns in [real_ns, real_ns - skew_ns] {
                    if (now_ns ^ edge) % 3 != 0 && source.ask(now_ns, 1) {
                        admitted.push(Admitted { now_ns, amount: 1 });
                    }
                }
            }
        }
        assert_bound(kind, &rate, &admitted)?;
    }

    /// Silence empties the window, except in the few windows in which its number cannot be told from one that is
    /// current or ahead: then it admits less.
    #[test]
    fn silence_of_any_length_admits_one_limit_or_in_a_stated_moment_less(
        kind in kind(),
        rate in rate(),
        start_ns in 0_u64..1 << 62,
        idle in prop_oneof![
            2 => magnitude(1 << 50).prop_map(|windows| (0, windows as i64)),
            // Round the multiples of the circle.
            2 => (1_u64..5, -300_i64..300),
        ],
    ) {
        let source = Source::new(kind, rate);
        prop_assert_eq!(source.drain(start_ns), source.window.limit_amount());
        let windows = (circle(&source) * idle.0).saturating_add_signed(idle.1);
        let Some(later_ns) = source.window.length_ns.checked_mul(windows).and_then(|ns| ns.checked_add(start_ns)) else {
            return Ok(());
        };
        let drained = source.drain(later_ns);
        prop_assert!(drained <= source.window.limit_amount());
        let into = windows % circle(&source);
        let (late, reach) = (u64::from(source.window.late), kind.words().max(2));
        if into >= reach && into + late + reach <= circle(&source) {
            prop_assert_eq!(drained, source.window.limit_amount(), "{:?} {} after {} windows", kind, rate, windows);
        }
    }

    #[test]
    fn a_source_that_was_silent_for_a_year_is_not_refused_for_longer_than_stated(
        kind in kind(),
        rate in rate(),
        start_ns in 0_u64..1 << 61,
        years in 1_u64..50,
        offset_ns in 0..YEAR_NS,
    ) {
        let source = Source::new(kind, rate);
        source.drain(start_ns);
        let back_ns = start_ns + years * YEAR_NS + offset_ns;
        if source.drain(back_ns) < source.window.limit_amount() {
            // A minute or two windows; for sub-windows two rounds of the words; then a window until all is forgotten.
            let wait_ns = 60_000_000_000_u64.max(3 * rate.period.ns());
            let later_ns = back_ns + wait_ns + 2 * rate.period.ns() + 2 * source.window.length_ns;
            prop_assert_eq!(source.drain(later_ns), source.window.limit_amount());
        }
    }

    /// An unused word is window 0, which is just ahead when the numbers are about to wrap.
    #[test]
    fn a_fresh_source_is_served_just_before_a_wrap(kind in kind(), rate in rate(), wrap in 1_u64..4, before in 1_u64..70) {
        let source = Source::new(kind, rate);
        let Some(now_ns) = (circle(&source) * wrap - before).checked_mul(source.window.length_ns) else { return Ok(()) };
        prop_assert_eq!(source.drain(now_ns), source.window.limit_amount());
    }

    #[test]
    fn a_lower_limit_takes_effect_at_once_and_a_higher_one_grants_the_difference(
        kind in kind(),
        period in period(),
        old in 1_u64..4000,
        new in 1_u64..4000,
        start_ns in 0_u64..1 << 62,
    ) {
        let rate = |amount| Rate { meter: Meter::Packets, amount, period, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let before = Source::new(kind, rate(old));
        prop_assert_eq!(before.drain(start_ns), old);
        let after = Source { memory: before.memory, ..Source::new(kind, rate(new)) };
        prop_assert_eq!(after.window.layout(), before.window.layout());
        prop_assert_eq!(after.drain(start_ns), new.saturating_sub(old));
    }
}

#[test]
fn words_are_kept_where_they_can_be_read_and_not_elsewhere() {
    let rate = |amount, period| Rate {
        meter: Meter::Bytes,
        amount,
        period,
        burst: 1,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let base = rate(5_000_000, Period::Second);
    for kind in Kind::ALL {
        let reads = |new: Rate, old: Rate| kind.window(&new).layout() == kind.window(&old).layout();
        assert!(reads(rate(5_100_000, Period::Second), base), "{kind:?}: another limit");
        // The window before the current one is kept in coarser units.
        let much_higher = reads(rate(9_000_000, Period::Second), base);
        assert_eq!(much_higher, kind != Kind::Weighted, "{kind:?}: a much higher limit");
        assert!(!reads(rate(5_000_000, Period::Minute), base), "{kind:?}: another window");
        assert!(!reads(rate(1 << 33, Period::Second), base), "{kind:?}: longer counts");
        assert!(
            !reads(rate(1 << 44, Period::Second), rate(1 << 42, Period::Second)),
            "{kind:?}: coarser counts"
        );
    }
}
