//! Clocks that step back, silence for a year, and the wrap of the time word.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::gcra::{self, TIME_FRAC_BITS};
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};

use super::model::{Admitted, Bucket, amount, any_rate, assert_bound, count_rate, schedule};

const SECOND_NS: u64 = 1_000_000_000;
const YEAR_NS: u64 = 365 * 86_400 * SECOND_NS;
/// The time word comes round after this.
const WRAP_NS: u64 = 1 << (64 - TIME_FRAC_BITS);

proptest! {
    #![proptest_config(super::config(4000))]

    /// Held still means: at the latest time any call has seen so far. Counts, so that no call is larger than another:
    /// with mixed sizes a refused large frame leaves room for several small ones, whatever the clock does.
    #[test]
    fn a_clock_that_steps_back_admits_nothing_extra(
        rate in count_rate(50),
        calls in schedule(200),
        steps_back in prop::collection::vec(prop_oneof![Just(0), 0..SECOND_NS], 200),
    ) {
        let start_ns = 1 << 50;
        let mut stepping = Bucket::new(rate, start_ns);
        let mut held = stepping;
        let (mut latest_ns, mut real_ns) = (start_ns, start_ns);
        let (mut with_steps, mut without) = (0, 0);
        for ((step, raw), back_ns) in calls.iter().zip(steps_back) {
            let amount = amount(&rate, *raw);
            real_ns += step.ns(&held, real_ns, amount);
            let now_ns = real_ns - back_ns;
            latest_ns = latest_ns.max(now_ns);
            with_steps += u64::from(stepping.ask(now_ns, amount));
            without += u64::from(held.ask(latest_ns, amount));
            prop_assert!(with_steps <= without, "{}: {} with steps back, {} without", rate, with_steps, without);
        }
    }

    #[test]
    fn a_clock_that_steps_back_keeps_the_bound_in_every_interval(
        rate in any_rate(1 << 20),
        calls in schedule(200),
        steps_back in prop::collection::vec(prop_oneof![Just(0), 0..SECOND_NS], 200),
    ) {
        let mut real_ns = 1 << 50;
        let mut bucket = Bucket::new(rate, real_ns);
        let mut admitted = Vec::new();
        for ((step, raw), back_ns) in calls.iter().zip(steps_back) {
            let amount = amount(&rate, *raw);
            real_ns += step.ns(&bucket, real_ns, amount);
            let now_ns = real_ns - back_ns;
            if bucket.ask(now_ns, amount) {
                admitted.push(Admitted { now_ns, amount });
            }
        }
        assert_bound(&rate, &admitted)?;
    }

    #[test]
    fn a_year_of_silence_fills_the_bucket_and_no_more(rate in count_rate(500), start_ns in 0..u64::MAX - 3 * YEAR_NS) {
        let mut bucket = Bucket::new(rate, start_ns);
        prop_assert_eq!(bucket.drain(start_ns), rate.burst);
        prop_assert_eq!(bucket.drain(start_ns + YEAR_NS), rate.burst);
        // 1.7 years is the longest that the word can tell from the future, counted from the bucket's fullest moment.
        prop_assert_eq!(bucket.drain(start_ns + YEAR_NS + 17 * YEAR_NS / 10 - 1), rate.burst);
    }

    /// The same calls, once far from a wrap and once across the wrap: the same answers.
    #[test]
    fn no_wrap_of_the_time_word_changes_an_answer(
        rate in any_rate(1 << 20),
        calls in schedule(100),
        wrap in 1_u64..256,
        before in 0_u64..1 << 44,
    ) {
        let far_ns = 1 << 50;
        let near_ns = wrap * WRAP_NS - before % 1_000_000 - 1;
        let (mut far, mut near) = (Bucket::new(rate, far_ns), Bucket::new(rate, near_ns));
        let mut elapsed_ns = 0;
        for (step, raw) in &calls {
            let amount = amount(&rate, *raw);
            elapsed_ns += step.ns(&far, far_ns + elapsed_ns, amount);
            let Some(now_ns) = near_ns.checked_add(elapsed_ns) else { break };
            prop_assert_eq!(near.ask(now_ns, amount), far.ask(far_ns + elapsed_ns, amount), "{} at {}", rate, now_ns);
        }
    }
}

#[test]
fn every_wrap_is_crossed_nanosecond_by_nanosecond_without_an_extra_token() {
    // 10 ns a packet: 400 ns refill 40.
    let rate = Rate {
        meter: Meter::Packets,
        amount: 100_000_000,
        period: Period::Second,
        burst: 5,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    for wrap in 1..256 {
        let start_ns = wrap * WRAP_NS - 200;
        let mut bucket = Bucket::new(rate, start_ns);
        let total: u64 = (0..=400).map(|ns| bucket.drain(start_ns + ns)).sum();
        assert_eq!(total, 5 + 40, "wrap {wrap}");
    }
}

#[test]
fn an_empty_bucket_is_still_empty_on_the_other_side_of_a_wrap() {
    // 1/day, burst 100: the word stands 100 days ahead, behind the wrap.
    let rate = Rate {
        meter: Meter::Packets,
        amount: 1,
        period: Period::Day,
        burst: 100,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    for wrap in 1..256 {
        let start_ns = wrap * WRAP_NS - 10;
        let mut bucket = Bucket::new(rate, start_ns);
        assert_eq!(bucket.drain(start_ns), 100);
        assert!(bucket.tat_q8 < gcra::time_q8(start_ns), "the word has wrapped");
        assert_eq!(bucket.drain(start_ns + 20), 0, "wrap {wrap}");
        assert_eq!(bucket.drain(start_ns + Period::Day.ns()), 1, "wrap {wrap}");
    }
}
