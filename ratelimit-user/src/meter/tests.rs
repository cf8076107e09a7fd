//! What every algorithm promises, on random schedules, and the bound of each.

mod large;
mod refunds;
mod told;

use proptest::prelude::*;

use super::{calendar::CalendarUnit, *};

const SECOND: u64 = 1_000_000;
/// The first number behind which not every integer is a double.
const DOUBLES: u64 = 1 << 53;
/// A moment at which no window begins: windows must not depend on when the clock was 0.
const START: u64 = 1_790_000_000 * SECOND + 123_456;

fn meters() -> Vec<Meter> {
    let utc = Calendar::new("UTC", CalendarUnit::Day, START).unwrap();
    vec![
        Meter::Bucket(RequestBucket::new(15, SECOND, 15)),
        Meter::Bucket(RequestBucket::new(7, 60 * SECOND, 3)),
        Meter::Bucket(RequestBucket::new(1_000, SECOND, 1)),
        Meter::Soft(Soft::new(RequestBucket::new(15, SECOND, 15), 10, 10)),
        Meter::Fixed(Fixed::new(10, SECOND)),
        Meter::Fixed(Fixed::new(3, 60 * SECOND)),
        Meter::Fixed(Fixed::by(5, utc)),
        Meter::Sliding(Sliding::new(10, SECOND)),
        Meter::Sliding(Sliding::new(500, 3_600 * SECOND)),
        Meter::Weighted(Weighted::new(10, SECOND)),
        Meter::Weighted(Weighted::new(100, 60 * SECOND)),
        Meter::Weighted(Weighted::new(1, 60 * SECOND)),
        Meter::Weighted(Weighted::new(3, 60 * SECOND)),
        Meter::Log(Log::new(10, SECOND)),
        Meter::Log(Log::new(3, 60 * SECOND)),
    ]
}

/// Returns the length of a meter's window in microseconds; for a bucket, its period.
fn window_us(meter: &Meter) -> u64 {
    match meter {
        Meter::Bucket(_) | Meter::Soft(_) => meter.bucket().unwrap().period_us(),
        Meter::Fixed(fixed) if fixed.calendar().is_some() => 86_400 * SECOND,
        Meter::Fixed(fixed) => fixed.period_us(),
        Meter::Sliding(sliding) => sliding.part_us() * 60,
        Meter::Weighted(weighted) => weighted.period_us(),
        Meter::Log(log) => log.period_us(),
    }
}

/// The most that any interval of the window's length, both ends included, may admit.
fn bound(meter: &Meter) -> u64 {
    match meter {
        Meter::Bucket(_) | Meter::Soft(_) => meter.capacity() + meter.bucket().unwrap().amount(),
        Meter::Fixed(fixed) => 2 * fixed.capacity(),
        Meter::Sliding(_) | Meter::Log(_) => meter.capacity(),
        Meter::Weighted(weighted) => 2 * weighted.capacity() - 1,
    }
}

/// Steps of a schedule: thousandths of a window that pass, and units that are asked for.
fn schedule() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![4 => Just(0_u64), 4 => 0..20_u64, 2 => 100..400_u64, 1 => 900..2_500_u64];
    prop::collection::vec((gap, 1..4_u64), 1..200)
}

/// Asks by a schedule and returns when units were admitted, and how many.
fn run(meter: &Meter, steps: &[(u64, u64)], words: &mut [u64]) -> Vec<(u64, u64)> {
    let mut now = START;
    let mut admitted = Vec::new();
    for (gap, units) in steps {
        now += gap * window_us(meter) / 1_000;
        if meter.left(words, now) >= *units {
            meter.charge(words, now, *units);
            admitted.push((now, *units));
        }
    }
    admitted
}

/// The words of a new key, followed by words of another limit, which no meter may read or change.
fn fresh(meter: &Meter) -> Vec<u64> {
    let mut words = vec![0; meter.words()];
    words.extend([u64::MAX; 40]);
    words
}

proptest! {
    /// Dividends next to multiples of the divisor, where rounding would show, and on both sides of 2^53.
    #[test]
    fn a_quotient_by_doubles_is_that_of_integers(divisor_bits in 1_u32..64, dividend_bits in 1_u32..64, any: (u64, u64)) {
        let divisor = (any.0 >> (64 - divisor_bits)).max(1);
        let multiple = (any.1 >> (64 - dividend_bits)) / divisor * divisor;
        let edges = [multiple, DOUBLES, u64::MAX, divisor];
        for dividend in edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge.saturating_add(1)]) {
            prop_assert_eq!(bucket::quotient(dividend, divisor), dividend / divisor);
            prop_assert_eq!(bucket::quotient_up(dividend, divisor), dividend.div_ceil(divisor));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_interval_admits_more_than_the_bound(steps in schedule()) {
        for meter in meters() {
            let admitted = run(&meter, &steps, &mut fresh(&meter));
            for (at, (from, _)) in admitted.iter().enumerate() {
                let inside = admitted[at..].iter().take_while(|(when, _)| when - from <= window_us(&meter));
                let sum: u64 = inside.map(|(_, units)| units).sum();
                prop_assert!(sum <= bound(&meter), "{meter:?}: {sum} from {from}");
            }
        }
    }

    #[test]
    fn what_fits_after_the_wait_does_not_fit_a_moment_before(steps in schedule(), units in 1..4_u64) {
        for meter in meters() {
            let mut words = fresh(&meter);
            let last = run(&meter, &steps, &mut words).last().map_or(START, |(when, _)| *when);
            match meter.wait(&words, last, units) {
                0 => prop_assert!(meter.left(&words, last) >= units, "{meter:?}"),
                NEVER_US => prop_assert!(units > meter.capacity(), "{meter:?}"),
                wait => {
                    prop_assert!(meter.left(&words, last + wait) >= units, "{meter:?} after {wait}");
                    prop_assert!(meter.left(&words, last + wait - 1) < units, "{meter:?} before {wait}");
                }
            }
        }
    }

    #[test]
    fn what_a_new_key_may_have_at_once_fits_again_some_time(steps in schedule()) {
        for meter in meters() {
            let mut words = fresh(&meter);
            let last = run(&meter, &steps, &mut words).last().map_or(START, |(when, _)| *when);
            let all = meter.capacity();
            let wait = meter.wait(&words, last, all);
            prop_assert!(wait != NEVER_US, "{meter:?}");
            prop_assert_eq!(meter.left(&words, last + wait), all, "{:?} after {}", meter, wait);
        }
    }

    #[test]
    fn after_the_reset_everything_is_there_again(steps in schedule()) {
        for meter in meters() {
            let mut words = fresh(&meter);
            let last = run(&meter, &steps, &mut words).last().map_or(START, |(when, _)| *when);
            let reset = meter.reset(&words, last);
            prop_assert_eq!(meter.left(&words, last + reset), meter.capacity(), "{:?}", meter);
        }
    }

    #[test]
    fn a_refund_gives_back_what_was_taken_and_no_more(steps in schedule(), units in 1..4_u64) {
        for meter in meters() {
            let mut words = fresh(&meter);
            let last = run(&meter, &steps, &mut words).last().map_or(START, |(when, _)| *when);
            let before = meter.left(&words, last);
            if before >= units {
                meter.charge(&mut words, last, units);
                prop_assert_eq!(meter.left(&words, last), before - units, "{:?}", meter);
                meter.refund(&mut words, last, 0, units);
                prop_assert_eq!(meter.left(&words, last), before, "{:?}", meter);
            }
            meter.refund(&mut words, last, 0, 1_000_000);
            prop_assert!(meter.left(&words, last) <= meter.capacity(), "{meter:?}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing(steps in schedule(), back in 1..5_000_u64) {
        for meter in meters() {
            let mut words = fresh(&meter);
            let last = run(&meter, &steps, &mut words).last().map_or(START, |(when, _)| *when);
            meter.charge(&mut words, last, 1);
            let earlier = last - back * window_us(&meter) / 1_000;
            prop_assert!(meter.left(&words, earlier) <= meter.left(&words, last), "{meter:?}");
            let before = meter.left(&words, last);
            meter.charge(&mut words, earlier, 1);
            prop_assert!(meter.left(&words, last) <= before.saturating_sub(1), "{meter:?}");
        }
    }
}

#[test]
fn whoever_always_asks_gets_the_rate_of_a_bucket_exactly() {
    let meter = Meter::Bucket(RequestBucket::new(3, SECOND, 1));
    let mut words = fresh(&meter);
    // Every 7 us for 100 s: 3 a second, with no remainder lost, and the burst.
    let mut admitted = 0;
    for now in (START..START + 100 * SECOND).step_by(7) {
        if meter.left(&words, now) > 0 {
            meter.charge(&mut words, now, 1);
            admitted += 1;
        }
    }
    assert!((299..=301).contains(&admitted), "{admitted}");
}

#[test]
fn a_fixed_window_admits_twice_its_limit_across_an_edge_and_a_sliding_one_does_not() {
    // Three a minute, three at the last second of one minute and three at the first of the next.
    let minute = 60 * SECOND;
    let edge = START / minute * minute + minute;
    let admitted = |meter: Meter| {
        let mut words = fresh(&meter);
        let moments = [edge - SECOND; 3].into_iter().chain([edge + SECOND; 3]);
        let admit = |now| {
            let fits = meter.left(&words, now) > 0;
            meter.charge(&mut words, now, u64::from(fits));
            fits
        };
        moments.map(admit).filter(|fits| *fits).count()
    };
    assert_eq!(admitted(Meter::Fixed(Fixed::new(3, minute))), 6);
    assert_eq!(admitted(Meter::Sliding(Sliding::new(3, minute))), 3);
    assert_eq!(admitted(Meter::Log(Log::new(3, minute))), 3);
}

#[test]
fn idle_for_years_is_as_good_as_new() {
    for meter in meters() {
        let mut words = fresh(&meter);
        meter.charge(&mut words, START, meter.capacity());
        assert_eq!(meter.left(&words, START), 0, "{meter:?}");
        let later = START + 20 * 366 * 86_400 * SECOND;
        assert_eq!(meter.left(&words, later), meter.capacity(), "{meter:?}");
    }
}

#[test]
fn more_than_there_is_can_be_charged_and_counts() {
    // As when a host reports late what it has spent.
    for meter in meters() {
        let mut words = fresh(&meter);
        meter.charge(&mut words, START, meter.capacity() + 5);
        assert_eq!(meter.left(&words, START), 0, "{meter:?}");
    }
}

#[test]
fn what_was_left_a_while_ago_is_left_at_least_and_after_two_windows_everything() {
    for meter in meters() {
        let mut words = vec![0; meter.words()];
        meter.charge(&mut words, START, meter.capacity() / 2 + 1);
        let (left, window_us) = (meter.left(&words, START), window_us(&meter));
        assert_eq!(meter.left_since(left, START, START), left, "{meter:?}");
        for now_us in (START..START + 3 * window_us).step_by((window_us / 97) as usize) {
            let (reckoned, real) = (meter.left_since(left, START, now_us), meter.left(&words, now_us));
            assert!(reckoned <= real, "{meter:?} after {} us: {reckoned} of {real}", now_us - START);
        }
        assert_eq!(meter.left_since(left, START, START + 3 * window_us), meter.capacity(), "{meter:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_log_that_grows_and_shrinks_decides_like_one_that_is_as_large_as_its_limit(
        steps in prop::collection::vec((0..400_u64, 1..30_u64, 0..4_u32), 1..200)
    ) {
        for limit in [1, 3, 10, 100] {
            let log = Log::new(limit, SECOND);
            let meter = Meter::Log(log);
            let (mut whole, mut grown, mut is_new) = (vec![0; meter.words()], vec![0; 2], true);
            let mut now_us = START;
            for (gap, units, kind) in &steps {
                now_us += gap * SECOND / 1_000;
                if *kind == 0 {
                    let came = [&mut whole, &mut grown].map(|words| meter.refund(words, now_us, 0, *units));
                    prop_assert_eq!(came[0], came[1]);
                } else {
                    if let Some(ring) = log.refit(&grown, is_new, now_us, *units) {
                        (grown, is_new) = (ring, false);
                    }
                    meter.charge(&mut whole, now_us, *units);
                    meter.charge(&mut grown, now_us, *units);
                    let counting = limit - meter.left(&whole, now_us);
                    prop_assert!(grown.len() as u64 <= (1 + limit).min(8 * (1 + counting)), "{grown:?}");
                    prop_assert!(Log::newest_us(&grown) >= now_us);
                }
                let told = |words: &[u64]| {
                    let left = meter.left(words, now_us);
                    (left, meter.wait(words, now_us, *units), meter.reset(words, now_us), meter.more(words, now_us, 0))
                };
                prop_assert_eq!(told(&whole), told(&grown));
            }
        }
    }
}

#[test]
fn a_log_of_a_key_that_was_asked_about_once_takes_four_words_and_one_that_was_busy_shrinks_again() {
    let log = Log::new(10_000, 86_400 * SECOND);
    let mut ring = log.refit(&[0; 2], true, START, 1).unwrap();
    assert_eq!(ring.len(), 4);
    for n in 0..10_000 {
        if let Some(larger) = log.refit(&ring, false, START + n, 1) {
            ring = larger;
        }
        log.charge(&mut ring, START + n, 1);
    }
    assert_eq!((ring.len(), log.left(&ring, START + 10_000)), (10_001, 0));
    let later = START + 2 * 86_400 * SECOND;
    assert_eq!(log.refit(&ring, false, later, 1).unwrap().len(), 4);
}
