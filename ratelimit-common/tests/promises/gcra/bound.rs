//! The bound from above, the bound from below, and the rounding in between.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::gcra::{TIME_FRAC_BITS, charge_q8};
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{Period, Rate};

use super::model::{Admitted, Bucket, Step, amount, any_rate, assert_bound, count_rate, rate_of, schedule};

/// The smallest frame on a wire, as the limiter counts it.
const SMALLEST_FRAME: u64 = 60;

/// Up to 25 million charges a second, the rounding of one charge is below 1/10000 of it.
const PRECISE_PER_SEC: u64 = 25_000_000;

fn run(rate: Rate, start_ns: u64, calls: &[(Step, u64)]) -> Vec<Admitted> {
    let mut bucket = Bucket::new(rate, start_ns);
    let mut now_ns = start_ns;
    let mut admitted = Vec::new();
    for (step, raw) in calls {
        let amount = amount(&rate, *raw);
        now_ns += step.ns(&bucket, now_ns, amount);
        if bucket.ask(now_ns, amount) {
            admitted.push(Admitted { now_ns, amount });
        }
    }
    admitted
}

/// Asks at every moment at which something could be admitted, for `interval_ns`. What was let through?
fn greedy(bucket: &mut Bucket, start_ns: u64, interval_ns: u64, amount: u64) -> u64 {
    let (mut now_ns, mut total) = (start_ns, 0);
    loop {
        let most = bucket.ideal_times_period(now_ns - start_ns) / u128::from(bucket.rate.period.ns());
        while bucket.ask(now_ns, amount) {
            total += amount;
            assert!(u128::from(total) <= most, "{total} of at most {most}: {bucket:?} at {now_ns}");
        }
        let wait_ns = bucket.wait_ns(now_ns, amount);
        assert!(wait_ns > 0, "refused although it conforms: {bucket:?} at {now_ns}");
        now_ns += wait_ns;
        if now_ns > start_ns + interval_ns {
            return total;
        }
    }
}

proptest! {
    #![proptest_config(super::config(5000))]

    #[test]
    fn no_interval_admits_more_than_burst_plus_rate(
        rate in any_rate(1 << 30),
        start_ns in 0_u64..1 << 62,
        calls in schedule(200),
    ) {
        assert_bound(&rate, &run(rate, start_ns, &calls))?;
    }

    #[test]
    fn no_interval_admits_more_even_when_every_moment_is_used(
        rate in any_rate(100),
        raw in 1_u64..2000,
        start_ns in 0_u64..1 << 62,
    ) {
        let calls = vec![(Step::Edge(0), raw); 300];
        let admitted = run(rate, start_ns, &calls);
        assert_bound(&rate, &admitted)?;
    }

    /// Lower bound for counts: over W, a source that always asks gets at least
    /// floor(burst + W x rate x (1 - 1/10000)), for rates up to 25 M/s and bursts from 2. (A bucket of one token
    /// cannot hold what is left of the nanosecond in which it fills, so it loses up to 1 ns a token: see below.)
    #[test]
    fn a_source_that_always_asks_is_admitted_at_its_rate(
        rate in rate_of(Meter::Packets, PRECISE_PER_SEC, 100),
        start_ns in 0_u64..1 << 62,
        intervals in 1_u64..1000,
        part in 0_u64..1000,
    ) {
        let rate = Rate { burst: rate.burst + 1, ..rate };
        let mut bucket = Bucket::new(rate, start_ns);
        let token_ns = rate.period.ns().div_ceil(rate.amount);
        let interval_ns = token_ns * intervals + token_ns * part / 1000;
        let total = greedy(&mut bucket, start_ns, interval_ns, 1);
        let refill = u128::from(interval_ns) * u128::from(rate.amount) * 9_999 / 10_000;
        let least = (u128::from(rate.burst) * u128::from(rate.period.ns()) + refill) / u128::from(rate.period.ns());
        prop_assert!(u128::from(total) >= least, "{} of {} over {} ns at {}", total, least, interval_ns, rate);
    }

    /// Lower bound for bytes: the same, short of one frame (what is left is too small for one) and one byte (the
    /// tolerance rounds down), where frames come at up to 25 M/s and the burst holds two.
    #[test]
    fn frames_that_always_come_are_admitted_at_their_rate_in_bytes(
        rate in rate_of(Meter::Bytes, PRECISE_PER_SEC * SMALLEST_FRAME, 200_000),
        start_ns in 0_u64..1 << 62,
        frame in SMALLEST_FRAME..=1514,
        frames in 1_u64..1000,
    ) {
        let rate = Rate { burst: rate.burst + frame, ..rate };
        let mut bucket = Bucket::new(rate, start_ns);
        let interval_ns = (u128::from(frame * frames) * u128::from(rate.period.ns()) / u128::from(rate.amount)) as u64;
        let total = greedy(&mut bucket, start_ns, interval_ns, frame);
        let refill = u128::from(interval_ns) * u128::from(rate.amount) * 9_999 / 10_000;
        let least = (u128::from(rate.burst) * u128::from(rate.period.ns()) + refill) / u128::from(rate.period.ns());
        // The price of each frame rounds up, also of those in the first burst: 1/10000 of it at most.
        let least = (least - u128::from(rate.burst) / 10_000).saturating_sub(u128::from(frame) + 1);
        prop_assert!(u128::from(total) >= least, "{} of {} over {} ns at {}", total, least, interval_ns, rate);
    }

    #[test]
    fn a_burst_of_one_loses_less_than_a_nanosecond_a_token(
        rate in rate_of(Meter::Packets, PRECISE_PER_SEC, 1),
        tokens in 1_u64..1000,
    ) {
        let mut bucket = Bucket::new(rate, 1 << 50);
        let token_ns = rate.period.ns().div_ceil(rate.amount) + 1;
        prop_assert!(greedy(&mut bucket, 1 << 50, token_ns * tokens, 1) > tokens);
    }

    #[test]
    fn parameters_are_never_faster_than_the_rate_and_slower_by_less_than_one_in_ten_thousand(
        rate in prop_oneof![
            rate_of(Meter::Packets, PRECISE_PER_SEC, 100),
            rate_of(Meter::Bytes, PRECISE_PER_SEC * SMALLEST_FRAME, 1 << 20),
        ],
    ) {
        let limit = rate.limit().unwrap();
        let paid = u128::from(limit.cost_fp) * u128::from(rate.amount);
        let ideal = u128::from(rate.period.ns()) << (TIME_FRAC_BITS + limit.frac_bits);
        prop_assert!(paid >= ideal, "{} is too cheap", rate);
        prop_assert!((paid - ideal) * 10_000 < ideal, "{} is too dear: {} of {}", rate, paid, ideal);
        // Back from the parameters to the burst: never more, and less than one unit less.
        let burst = u128::from(rate.burst) * u128::from(limit.cost_fp);
        let back = u128::from(limit.tolerance_q8) << limit.frac_bits;
        prop_assert!(back <= burst && burst - back < u128::from(limit.cost_fp), "{}: {} of {}", rate, back, burst);
    }

    #[test]
    fn a_fresh_source_gets_its_whole_burst_and_not_one_more(rate in count_rate(1000), start_ns in any::<u64>()) {
        let mut bucket = Bucket::new(rate, start_ns);
        prop_assert_eq!(bucket.drain(start_ns), rate.burst);
    }
}

/// A million calls at uneven moments, none of which is a multiple of the price of a token.
#[test]
fn no_token_is_lost_to_rounding_over_a_million_small_steps() {
    for (amount, period, step_ns) in [
        (999_983, Period::Second, 13),
        (7, Period::Second, 997),
        (25_000_000, Period::Second, 3),
        (1_000_003, Period::Day, 1_234_567),
    ] {
        let rate = Rate {
            meter: Meter::Packets,
            amount,
            period,
            burst: 10,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        };
        let start_ns = 1 << 40;
        let mut bucket = Bucket::new(rate, start_ns);
        let (mut now_ns, mut total) = (start_ns, 0_u64);
        for i in 0..1_000_000 {
            now_ns += step_ns + i % 3;
            total += u64::from(bucket.ask(now_ns, 1));
        }
        // Steps are shorter than a token, so the bucket is only full at the start: 10, and then every token.
        let cost_q8 = u128::from(charge_q8(&bucket.limit, 1));
        let spent_q8 = (u128::from(now_ns - start_ns) << TIME_FRAC_BITS) + 10 * cost_q8;
        assert_eq!(u128::from(total), spent_q8 / cost_q8, "{rate}");
    }
}
