//! Another limit on a bucket that is in use.
//!
//! The word is a time, so what a change preserves is the time until the bucket is full. A limit that is made
//! faster takes effect at once and grants nothing; one that is made slower grants at most what its tolerance has
//! grown by: nothing at all while burst and rate shrink together.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::gcra::{self, TIME_FRAC_BITS};
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};

use super::model::{Bucket, count_rate};

const SECOND_NS: u64 = 1_000_000_000;
/// Words as little ahead as this may be those of a CPU whose clock is ahead.
const SKEW_NS: u64 = 1_000_000;

/// The bucket under another limit.
fn changed(bucket: Bucket, rate: Rate) -> Bucket {
    Bucket { tat_q8: bucket.tat_q8, ..Bucket::new(rate, 0) }
}

proptest! {
    #![proptest_config(super::config(4000))]

    #[test]
    fn an_empty_bucket_gets_no_more_than_what_the_tolerance_grew_by(
        old in count_rate(300),
        new in count_rate(300),
        tokens in 0_u64..200,
    ) {
        let start_ns = 1 << 50;
        let mut bucket = Bucket::new(old, start_ns);
        bucket.drain(start_ns);
        let old_tolerance = bucket.limit.tolerance_q8;
        let mut bucket = changed(bucket, new);
        let grown = bucket.limit.tolerance_q8.saturating_sub(old_tolerance);
        let cost = gcra::charge_q8(&bucket.limit, 1);

        let mut total = bucket.drain(start_ns);
        prop_assert!(total <= grown / cost, "{} -> {}: {} at once", old, new, total);
        let token_ns = cost >> TIME_FRAC_BITS;
        for token in 1..=tokens {
            total += bucket.drain(start_ns + token * token_ns);
        }
        let interval_q8 = (tokens * token_ns) << TIME_FRAC_BITS;
        prop_assert!(total <= (grown + interval_q8) / cost, "{} -> {}: {} later", old, new, total);
    }

    #[test]
    fn a_limit_made_faster_admits_again_within_milliseconds(old in count_rate(100), new in count_rate(100)) {
        let tolerance = |rate: Rate| rate.limit().unwrap().tolerance_q8;
        let (old, new) = if tolerance(old) < tolerance(new) { (new, old) } else { (old, new) };
        let start_ns = 1 << 50;
        let mut bucket = Bucket::new(old, start_ns);
        bucket.drain(start_ns);
        let mut bucket = changed(bucket, new);
        // The source keeps asking: once at the change, then when it should be served.
        prop_assert!(!bucket.ask(start_ns, 1), "{} -> {}: a fresh token", old, new);
        let token_ns = new.period.ns().div_ceil(new.amount) + 1;
        prop_assert!(bucket.ask(start_ns + SKEW_NS + token_ns, 1), "{} -> {}: still refused", old, new);
    }

    #[test]
    fn a_limit_made_slower_with_its_burst_in_proportion_grants_nothing(
        per_sec in 2_u64..10_000,
        slower_by in 2_u64..1000,
        burst_seconds in 1_u64..60,
    ) {
        let new_per_sec = per_sec.div_ceil(slower_by);
        let rate = |amount| Rate { meter: Meter::Packets, amount, period: Period::Second, burst: amount * burst_seconds, manner: Manner::PLAIN, units: Rate::UNTYPED };
        let mut bucket = Bucket::new(rate(per_sec), 1 << 50);
        // Empty without asking 600 000 times.
        bucket.tat_q8 = bucket.tat_q8.wrapping_add(bucket.limit.tolerance_q8);
        let mut bucket = changed(bucket, rate(new_per_sec));
        prop_assert_eq!(bucket.drain(1 << 50), 0);
        // A second later: one second's worth at the new rate, short of one token that rounding delays.
        let later = bucket.drain((1 << 50) + SECOND_NS);
        prop_assert!(later == new_per_sec || later + 1 == new_per_sec, "{} of {}", later, new_per_sec);
    }
}

#[test]
fn a_bucket_filled_under_a_much_slower_limit_is_emptied_not_refilled() {
    let slow = Rate {
        meter: Meter::Packets,
        amount: 1,
        period: Period::Day,
        burst: 10,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let fast = Rate {
        meter: Meter::Packets,
        amount: 1000,
        period: Period::Second,
        burst: 10,
        manner: Manner::PLAIN,
        units: Rate::UNTYPED,
    };
    let mut bucket = Bucket::new(slow, 0);
    assert_eq!(bucket.drain(0), 10);
    let mut bucket = changed(bucket, fast);
    assert!(!bucket.ask(0, 1));
    assert_eq!(bucket.tat_q8, bucket.limit.tolerance_q8, "exactly empty");
    // As far as clocks differ, a word may be another CPU's, and stays.
    let near_q8 = bucket.limit.tolerance_q8 + gcra::time_q8(SKEW_NS);
    for (tat_q8, after_q8) in [(near_q8, near_q8), (near_q8 + 1, bucket.limit.tolerance_q8)] {
        bucket.tat_q8 = tat_q8;
        assert!(!bucket.ask(0, 1));
        assert_eq!(bucket.tat_q8, after_q8);
    }
}
