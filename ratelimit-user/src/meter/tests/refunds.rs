//! What each algorithm gives back, depending on how long ago it was taken.

use super::*;

/// The words of a key of which units were taken at these moments.
fn taken(meter: &Meter, units_at: &[(u64, u64)]) -> Vec<u64> {
    let mut words = fresh(meter);
    units_at.iter().for_each(|(units, at)| meter.charge(&mut words, *at, *units));
    words
}

/// Refunds units. Returns whether anything came back, what is left then, and how long until everything is there, in microseconds.
fn back(meter: &Meter, words: &[u64], now_us: u64, age_us: u64, units: u64) -> (bool, u64, u64) {
    let mut words = words.to_vec();
    let came = meter.refund(&mut words, now_us, age_us, units);
    (came, meter.left(&words, now_us), meter.reset(&words, now_us))
}

#[test]
fn where_nothing_was_taken_nothing_comes_back_and_nothing_changes() {
    for meter in meters() {
        for age_us in [0, 1, window_us(&meter), START] {
            let mut words = fresh(&meter);
            assert!(!meter.refund(&mut words, START, age_us, 1), "{meter:?} {age_us}");
            assert_eq!(words, fresh(&meter), "{meter:?} {age_us}");
        }
        let mut words = taken(&meter, &[(1, START)]);
        let before = words.clone();
        let more_than_there_is = meter.capacity() + 1;
        assert!(!meter.refund(&mut words, START, 0, more_than_there_is), "{meter:?}");
        assert_eq!(words, before, "{meter:?}");
    }
}

#[test]
fn a_bucket_gives_back_what_has_not_leaked_away_since() {
    let meter = Meter::Bucket(RequestBucket::new(15, SECOND, 15));
    let (words, now) = (taken(&meter, &[(15, START)]), START + SECOND / 5);
    // Three have leaked away in a fifth of a second.
    assert_eq!(back(&meter, &words, now, SECOND / 5, 15), (true, 15, 0));
    assert_eq!(back(&meter, &words, now, SECOND / 5, 4), (true, 4, 733_334));
    assert_eq!(back(&meter, &words, now, SECOND / 5, 3), (false, 3, 800_000));
    assert_eq!(back(&meter, &words, now, 0, 3), (true, 6, 600_000), "of any age");
    assert_eq!(
        back(&meter, &taken(&meter, &[(2, START)]), START, 0, 5),
        (true, 15, 0),
        "no more than it owes"
    );
}

#[test]
fn a_soft_bucket_gives_back_of_both_and_of_one_if_the_other_has_nothing() {
    let soft = Soft::new(RequestBucket::new(1, SECOND, 2), 100, 100);
    let meter = Meter::Soft(soft);
    let mut words = taken(&meter, &[(2, START), (1, START)]);
    assert_eq!((meter.left(&words, START), soft.below(&words, START)), (1, 0));
    assert!(meter.refund(&mut words, START, 0, 1));
    assert_eq!((meter.left(&words, START), soft.below(&words, START)), (2, 1));
    // The bucket with the margin is full after 1.5 seconds, the bucket of the limit alone after 2: it still has a debt that can be given back.
    let mut words = taken(&meter, &[(2, START)]);
    let later = START + 3 * SECOND / 2;
    assert_eq!((meter.left(&words, later), soft.below(&words, later)), (4, 1));
    assert!(meter.refund(&mut words, later, 0, 1));
    assert_eq!((meter.left(&words, later), soft.below(&words, later)), (4, 2));
    assert!(!meter.refund(&mut words, later, 0, 1));
}

#[test]
fn a_fixed_window_gives_back_what_it_has_counted_itself() {
    let meter = Meter::Fixed(Fixed::new(10, 60 * SECOND));
    let edge = START / (60 * SECOND) * 60 * SECOND;
    let now = edge + 5 * SECOND;
    let words = taken(&meter, &[(3, now)]);
    assert_eq!(back(&meter, &words, now, 0, 4), (false, 7, 55 * SECOND), "three were taken");
    assert_eq!(back(&meter, &words, now, 5 * SECOND, 2), (true, 9, 55 * SECOND), "at the edge");
    assert_eq!(back(&meter, &words, now, 5 * SECOND + 1, 2), (false, 7, 55 * SECOND), "in the one before");
    assert_eq!(back(&meter, &words, now, 0, 3), (true, 10, 0));
}

#[test]
fn windows_that_slide_give_back_the_newest_that_may_have_been_meant() {
    let minute = 60 * SECOND;
    // At the beginning of a second, which is a part of the window.
    let start = START / minute * minute;
    let now = start + 5 * SECOND;
    for (meter, counts_for_us) in [
        (Meter::Sliding(Sliding::new(10, minute)), 61 * SECOND),
        (Meter::Log(Log::new(10, minute)), minute + 1),
    ] {
        let words = taken(&meter, &[(3, start), (4, now)]);
        let (first, last) = (counts_for_us - 5 * SECOND, counts_for_us);
        assert_eq!(back(&meter, &words, now, 0, 3), (true, 6, last), "{meter:?}");
        assert_eq!(back(&meter, &words, now, 0, 5), (true, 8, first), "{meter:?}: the newest go first");
        assert_eq!(back(&meter, &words, now, 0, 7), (true, 10, 0), "{meter:?}");
        assert_eq!(back(&meter, &words, now, 0, 8), (false, 3, last), "{meter:?}");
        assert_eq!(back(&meter, &words, now, 5 * SECOND, 3), (true, 6, last), "{meter:?}: the older ones");
        assert_eq!(back(&meter, &words, now, 5 * SECOND, 4), (false, 3, last), "{meter:?}");
        assert_eq!(back(&meter, &words, now, 6 * SECOND, 1), (false, 3, last), "{meter:?}: none so old");
        // Expired units cannot be refunded.
        let later = start + counts_for_us + SECOND;
        assert!(back(&meter, &words, later, 0, 4).0, "{meter:?}");
        assert!(!back(&meter, &words, later, 0, 5).0, "{meter:?}");
        // The order of those that stay is kept: the older ones expire before the newer ones.
        let mut words = taken(&meter, &[(2, start), (1, start + SECOND), (3, now)]);
        assert!(meter.refund(&mut words, now, 4 * SECOND, 2));
        let left: Vec<u64> =
            [start, start + SECOND, now].map(|then| meter.left(&words, then + counts_for_us)).to_vec();
        assert_eq!((meter.left(&words, now), left), (6, vec![7, 7, 10]), "{meter:?}");
    }
}

#[test]
fn a_weighted_window_gives_back_of_the_window_that_was_charged() {
    let minute = 60 * SECOND;
    let meter = Meter::Weighted(Weighted::new(10, minute));
    let start = START / minute * minute;
    let now = start + minute + 30 * SECOND;
    let words = taken(&meter, &[(4, start), (3, now)]);
    // Half of the four still count.
    assert_eq!((meter.left(&words, now), meter.reset(&words, now)), (5, 90 * SECOND));
    assert_eq!(back(&meter, &words, now, 0, 3), (true, 8, 30 * SECOND));
    assert_eq!(back(&meter, &words, now, 30 * SECOND, 3), (true, 8, 30 * SECOND), "at the edge");
    assert_eq!(back(&meter, &words, now, 31 * SECOND, 4), (true, 7, 90 * SECOND), "of the one before");
    assert_eq!(back(&meter, &words, now, 31 * SECOND, 5), (false, 5, 90 * SECOND));
    assert_eq!(back(&meter, &words, now, 91 * SECOND, 1), (false, 5, 90 * SECOND), "too long ago");
    assert_eq!(back(&meter, &words, now, 0, 5), (true, 9, 30 * SECOND), "both");
    assert_eq!(back(&meter, &words, now, 0, 8), (false, 5, 90 * SECOND));
}
