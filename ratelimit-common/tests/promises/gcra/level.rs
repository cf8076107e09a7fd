//! What people are told of a bucket is what the bucket then does.

use proptest::prelude::*;
use ratelimit_common::abi::{Limit, Meter};
use ratelimit_common::limit::gcra::{self, GcraOutcome, MAX_AMOUNT, Start};
use ratelimit_common::limit::level::Level;
use ratelimit_common::limit::rate::Rate;

use super::model::{Bucket, any_rate, byte_rate, count_rate, magnitude};

const START_NS: u64 = 1 << 50;

/// A bucket that has part (of 256) of its burst spent.
fn spent(rate: Rate, part: u8) -> Bucket {
    let mut bucket = Bucket::new(rate, START_NS);
    bucket.tat_q8 += (bucket.limit.tolerance_q8 >> 8) * u64::from(part) + u64::from(part == u8::MAX);
    bucket
}

fn level(bucket: &Bucket, now_ns: u64) -> Level {
    Level::of(bucket.tat_q8, bucket.limit.tolerance_q8, gcra::time_q8(now_ns), Start::FULL)
}

proptest! {
    #![proptest_config(super::config(4000))]

    #[test]
    fn what_is_left_is_admitted_and_one_more_is_not(rate in count_rate(300), part: u8) {
        let mut bucket = spent(rate, part);
        let level = level(&bucket, START_NS);
        prop_assert_eq!(level.capacity(&bucket.limit), rate.burst);
        prop_assert_eq!(level.left(&bucket.limit), bucket.drain(START_NS));
    }

    #[test]
    fn bytes_that_are_left_are_admitted_at_once_and_one_more_is_not(rate in byte_rate(MAX_AMOUNT / 2), part: u8) {
        let bucket = spent(rate, part);
        let left = level(&bucket, START_NS).left(&bucket.limit);
        prop_assert!(left < MAX_AMOUNT);
        prop_assert!(left == 0 || { bucket }.ask(START_NS, left), "{} of {}", left, rate);
        prop_assert!(!{ bucket }.ask(START_NS, left + 1), "{} and one more of {}", left, rate);
    }

    #[test]
    fn a_refusal_ends_when_it_is_said_to_end_and_not_a_nanosecond_before(rate in any_rate(1 << 20), raw in magnitude(1 << 20)) {
        let amount = if rate.meter == Meter::Bytes { raw.min(rate.burst / 2).max(1) } else { 1 };
        let bucket = spent(rate, u8::MAX);
        let wait_ns = level(&bucket, START_NS).wait_ns(gcra::charge_q8(&bucket.limit, amount));
        prop_assert!({ bucket }.ask(START_NS + wait_ns, amount), "{} after {} ns", rate, wait_ns);
        prop_assert!(wait_ns == 0 || !{ bucket }.ask(START_NS + wait_ns - 1, amount), "{} before {} ns", rate, wait_ns);
    }

    #[test]
    fn a_bucket_is_full_when_it_is_said_to_be_and_not_a_nanosecond_before(rate in any_rate(1 << 20), part in 1_u8..) {
        let bucket = spent(rate, part);
        let full_in_ns = level(&bucket, START_NS).full_in_ns();
        prop_assert!(full_in_ns > 0);
        prop_assert_eq!(level(&bucket, START_NS + full_in_ns), Level::full(bucket.limit.tolerance_q8));
        prop_assert_ne!(level(&bucket, START_NS + full_in_ns - 1), Level::full(bucket.limit.tolerance_q8));
    }

    /// Also for buckets that start again with something spent, and for words from before a change of limits.
    #[test]
    fn the_answer_to_any_charge_is_known_beforehand(rate in any_rate(1 << 20), restart_part: u8, ahead: u64, raw in magnitude(MAX_AMOUNT)) {
        let limit = rate.limit().unwrap();
        let restart_q8 = (limit.tolerance_q8 >> 11) * u64::from(restart_part);
        let now_q8 = gcra::time_q8(START_NS);
        // Up to twice the tolerance and two seconds ahead, or just as far in the past.
        let span = 2 * limit.tolerance_q8 + gcra::time_q8(2_000_000_000);
        let tat_q8 = now_q8.wrapping_add(ahead % (2 * span)).wrapping_sub(span);
        let charge_q8 = gcra::charge_q8(&limit, if rate.meter == Meter::Bytes { raw } else { 1 });
        let start = Start::after(restart_q8);
        let told = Level::of(tat_q8, limit.tolerance_q8, now_q8, start);
        let outcome = gcra::take_restarting(tat_q8, &limit, now_q8, charge_q8, start);
        prop_assert_eq!(told.wait_ns(charge_q8) == 0, matches!(outcome, GcraOutcome::Conforms { .. }), "{}", rate);
    }

    /// A cell gives what it has left, then an entry starts with the cell's whole share spent.
    #[test]
    fn somebody_behind_a_cell_finds_what_cell_and_entry_give_together(rate in count_rate(300), given in 0_u64..40) {
        let rate = Rate { burst: rate.burst.max(8), ..rate };
        let limit = rate.limit().unwrap();
        let share = rate.burst / 8;
        let cell_limit = Limit { tolerance_q8: share * limit.cost_fp, ..limit };
        let now_q8 = gcra::time_q8(START_NS);
        let mut cell_q8 = now_q8 + given.min(share) * limit.cost_fp;
        let told = Level::behind(Level::of(cell_q8, cell_limit.tolerance_q8, now_q8, Start::FULL), limit.tolerance_q8);
        let mut admitted = 0;
        while let GcraOutcome::Conforms { tat_q8 } = gcra::take(cell_q8, &cell_limit, now_q8, limit.cost_fp) {
            (cell_q8, admitted) = (tat_q8, admitted + 1);
        }
        let mut entry_q8 = now_q8 + cell_limit.tolerance_q8;
        while let GcraOutcome::Conforms { tat_q8 } = gcra::take(entry_q8, &limit, now_q8, limit.cost_fp) {
            (entry_q8, admitted) = (tat_q8, admitted + 1);
        }
        prop_assert_eq!(told.left(&limit), admitted);
    }
}
