//! Limits whose buckets are as large as a policy or a caller may make them: debts beyond what a double counts exactly.

use ratelimit_common::limit::text::parse_rate;

use super::*;

/// Counts what one key is admitted of many more units than it may have, all at one moment.
fn admitted_at_once(meter: &Meter) -> u64 {
    let mut words = vec![0; meter.words()];
    // Most of it in one piece, and the rest unit by unit: that is where a bucket that forgets debt would go on for ever.
    let most = meter.capacity() - meter.capacity().min(50);
    assert!(meter.left(&words, START) >= most);
    meter.charge(&mut words, START, most);
    let ones = (0..200).filter(|_| {
        let fits = meter.left(&words, START) > 0;
        if fits {
            meter.charge(&mut words, START, 1);
        }
        fits
    });
    most + ones.count() as u64
}

/// A limit of requests with this text, if a policy may have it.
fn limit(text: &str) -> Option<RequestLimit> {
    RequestLimit::new(parse_rate(text).ok()?, None).ok()
}

proptest! {
    #[test]
    fn no_bucket_that_a_policy_may_have_admits_more_at_once_than_its_burst_and_margin(
        amount in 1_u64..200_000,
        burst in 1_u64..60_000,
        period in prop::sample::select(&["s", "min", "hour", "day"][..]),
        margin in prop::sample::select(&["", " soft 1%", " soft 10%", " soft 100%", " elastic 50%"][..]),
        (permille, hosts) in (0_u64..=500, 1_u64..64),
        part in 1_u64..64,
    ) {
        let text = format!("{amount}/{period} burst {burst}{margin}");
        let Some(limit) = limit(&text) else { return Ok(()) };
        for percent in [0, limit.rate.manner.margin(true)] {
            let whole = Meter::of(&limit, percent, START);
            let rest = whole.without_parts(permille, hosts);
            for meter in [&whole, &rest, &whole.share(part)] {
                prop_assert_eq!(admitted_at_once(meter), meter.capacity(), "{}: {:?}", text, meter);
            }
            prop_assert_eq!(whole.capacity(), burst * u64::from(100 + percent) / 100);
            // The store counts the whole and the rest in doubles.
            for meter in [whole, rest] {
                let [_, amount, period, burst] = meter.script(START);
                prop_assert!((burst + 1) * period + amount < DOUBLES, "{}: {:?}", text, meter);
            }
        }
    }
}

#[test]
fn what_a_larger_limit_has_left_behind_stays_owed_when_a_smaller_one_is_asked() {
    let month_ns = 2_592_000_000_000_000;
    let (large, small) = (RequestBucket::new(1_000, month_ns, 10), RequestBucket::new(1_000, SECOND, 1));
    let mut words = [0; 2];
    Meter::Bucket(large).charge(&mut words, START, 10);
    Meter::Bucket(small).charge(&mut words, START, 0);
    assert_eq!(words, [START, 10 * month_ns]);
    assert_eq!(Meter::Bucket(large).left(&words, START), 0);
}

#[test]
fn a_bucket_may_owe_more_than_doubles_count_and_still_runs_empty() {
    // 5 units, one every 30 days, in ns as callers of the Redis protocol describe limits; and the largest that they may.
    for (period, burst) in [(2_592_000_000_000_000, 5), (i64::MAX as u64 / 40_000, 40_000)] {
        let bucket = RequestBucket::new(1_000, period, burst);
        let meter = Meter::Bucket(bucket);
        assert_eq!(admitted_at_once(&meter), burst);
        // What is owed to another bucket is not cut either.
        let (half, spent) = (period / 2, [START, burst * period]);
        let quicker = RequestBucket::new(1_000, half, burst);
        assert_eq!(bucket.carried(&quicker, &[START, burst * half]), spent);
        assert_eq!(meter.left(&spent, START), 0);
    }
}

#[test]
fn a_margin_that_is_too_fine_for_a_large_bucket_is_rounded_down_to_whole_units_in_a_period() {
    let numbers = |text: &str, percent| {
        let Meter::Soft(soft) = Meter::of(&limit(text).unwrap(), percent, START) else { panic!("{text}") };
        let of = |bucket: &RequestBucket| {
            (bucket.amount(), bucket.period_us() / (86_400 * SECOND), bucket.capacity())
        };
        (of(soft.whole()), of(soft.own()))
    };
    assert_eq!(numbers("1000/day soft 10%", 10), ((1_100, 1, 1_100), (1_000, 1, 1_000)));
    assert_eq!(numbers("501/day soft 1%", 1), ((50_601, 100, 506), (50_100, 100, 501)));
    assert_eq!(numbers("518/day soft 1%", 1), ((523, 1, 523), (518, 1, 518)));
    assert_eq!(numbers("10001/day soft 1%", 1), ((10_101, 1, 10_101), (10_001, 1, 10_001)));
    // The unit of words is the same while there is no headroom.
    assert_eq!(numbers("10001/day elastic 1%", 0), ((10_001, 1, 10_001), (10_001, 1, 10_001)));
    assert_eq!(numbers("513/day elastic 1%", 0).0.1, numbers("513/day elastic 1%", 1).0.1);
    assert_eq!(numbers("514/day elastic 1%", 0).0.1, numbers("514/day elastic 1%", 1).0.1);
}
