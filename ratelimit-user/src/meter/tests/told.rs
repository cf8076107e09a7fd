//! What callers and the store are told of a limit, in numbers: when there is one unit more, when there is all, and the name of the layout.

use super::*;

/// One meter of each kind, each 10 per minute (one per day), and a moment at which a minute and a day begin.
fn ten_a_minute() -> ([Meter; 7], u64) {
    let minute = 60 * SECOND;
    let start = START / (86_400 * SECOND) * 86_400 * SECOND;
    let utc = Calendar::new("UTC", CalendarUnit::Day, start).unwrap();
    let soft = Soft::new(RequestBucket::new(10, minute, 10), 20, 20);
    let meters = [
        Meter::Bucket(RequestBucket::new(10, minute, 10)),
        Meter::Soft(soft),
        Meter::Fixed(Fixed::new(10, minute)),
        Meter::Fixed(Fixed::by(10, utc)),
        Meter::Sliding(Sliding::new(10, minute)),
        Meter::Weighted(Weighted::new(10, minute)),
        Meter::Log(Log::new(10, minute)),
    ];
    (meters, start)
}

#[test]
fn the_store_is_told_what_kind_a_limit_is_and_its_numbers() {
    let ([bucket, soft, fixed, day, sliding, weighted, log], start) = ten_a_minute();
    let minute = 60 * SECOND;
    let day_us = 86_400 * SECOND;
    for (meter, layout, script, words) in [
        (bucket, "b60000000", [1, 10, minute, 10], 2),
        (soft, "m6000000000", [7, 1_200, 100 * minute, 12], 4),
        (fixed, "f60000000", [2, 10, minute, 0], 1),
        (day, "cUTC/day", [6, 10, start, start + day_us], 1),
        (sliding, "s1000000", [3, 10, SECOND, 0], 32),
        (weighted, "w60000000", [4, 10, minute, 0], 2),
        (log, "l60000000:10", [5, 10, minute, 0], 11),
    ] {
        assert_eq!(meter.layout(), layout, "{meter:?}");
        assert_eq!(meter.script(start + 5), script, "{meter:?}");
        assert_eq!(meter.words(), words, "{meter:?}");
        assert_eq!(meter.calendar().is_some(), layout == "cUTC/day", "{meter:?}");
    }
    let month = Calendar::new("Europe/Berlin", CalendarUnit::Month, start).unwrap();
    assert_eq!(Meter::Fixed(Fixed::by(10, month)).layout(), "cEurope/Berlin/month");
}

#[test]
fn a_caller_is_told_when_there_is_one_more_and_when_there_is_all() {
    let (meters, start) = ten_a_minute();
    let second = |seconds: u64| seconds * SECOND;
    // Four units are taken at the beginning, and six after ten seconds: then nothing is left, except in buckets. Expected by kind: what is left, and how
    // long until one more, until four more, and until all.
    let expected = [
        // 1 2/3 units have come in ten seconds, and a third of a unit is missing for the next.
        (1, second(2), second(20), second(50)),
        // Two have come, of twelve; the limit of ten has everything after 50 seconds.
        (4, second(5), second(20), second(50)),
        (0, second(50), second(50), second(50)),
        (0, second(86_390), second(86_390), second(86_390)),
        (0, second(51), second(51), second(61)),
        (0, second(56), second(74), second(110)),
        (0, second(50) + 1, second(50) + 1, second(60) + 1),
    ];
    for (meter, (left, more, four_more, all)) in meters.iter().zip(expected) {
        let mut words = fresh(meter);
        meter.charge(&mut words, start, 4);
        let now = start + second(10);
        meter.charge(&mut words, now, 6);
        let told = (
            meter.left(&words, now),
            meter.more(&words, now, 0),
            meter.wait(&words, now, left + 4),
            meter.reset(&words, now),
        );
        assert_eq!(told, (left, more, four_more, all), "{meter:?}");
        // Units that are held back do not count as left: the next unit comes when there is one more than is held back.
        assert_eq!(meter.more(&words, now, left + 3), four_more, "{meter:?}");
        assert_eq!(meter.more(&words, now, meter.capacity()), 0, "{meter:?}: all is held back");
        assert_eq!(meter.wait(&words, now, meter.capacity() + 1), NEVER_US, "{meter:?}");
    }
    // A key that has used nothing has everything.
    for meter in &meters {
        let untouched = fresh(meter);
        assert_eq!(meter.more(&untouched, start, 0), 0, "{meter:?}");
        assert_eq!(meter.reset(&untouched, start + second(10)), 0, "{meter:?}");
    }
}

#[test]
fn what_is_told_from_a_number_alone_is_exact_for_buckets_and_fixed_windows_and_a_window_for_others() {
    let (meters, start) = ten_a_minute();
    let now = start + 20 * SECOND;
    let second = |seconds: u64| seconds * SECOND;
    // By kind: until one more and until all of a key of which four are left.
    let expected = [
        (second(6), second(36)),
        (second(5), second(40)),
        (second(40), second(40)),
        (second(86_380), second(86_380)),
        (second(60), second(60)),
        (second(60), second(60)),
        (second(60), second(60)),
    ];
    for (meter, told) in meters.iter().zip(expected) {
        assert_eq!((meter.more_from(4, now), meter.reset_from(4, now)), told, "{meter:?}");
        let all = meter.capacity();
        for left in [all, all + 1] {
            assert_eq!((meter.more_from(left, now), meter.reset_from(left, now)), (0, 0), "{meter:?}");
        }
        assert!(meter.more_from(all - 1, now) > 0 && meter.reset_from(all - 1, now) > 0, "{meter:?}");
    }
}

#[test]
fn what_was_left_is_more_for_buckets_as_they_fill_and_all_for_windows_once_they_have_forgotten() {
    let (meters, start) = ten_a_minute();
    let then = start + 20 * SECOND;
    // By kind: what is left 12 seconds later of a key of which four were left, and after how long everything is.
    let expected = [(6, 36), (6, 40), (4, 40), (4, 86_380), (4, 120), (4, 120), (4, 120)];
    for (meter, (soon, all_after_s)) in meters.iter().zip(expected) {
        let since = |passed_us: u64| meter.left_since(4, then, then + passed_us);
        assert_eq!((since(0), since(12 * SECOND)), (4, soon), "{meter:?}");
        assert!(since(all_after_s * SECOND - 1) < meter.capacity(), "{meter:?}");
        assert_eq!(since(all_after_s * SECOND), meter.capacity(), "{meter:?}");
        assert_eq!(since(1_000 * all_after_s * SECOND), meter.capacity(), "{meter:?}");
        assert_eq!(meter.left_since(4, then, then - SECOND), 4, "{meter:?}: a clock that stepped back");
        assert_eq!(meter.left_since(meter.capacity(), then, then), meter.capacity(), "{meter:?}");
    }
}

#[test]
fn who_waits_in_a_bucket_waits_for_its_clock_too() {
    let bucket = RequestBucket::new(10, SECOND, 10);
    let meter = Meter::Bucket(bucket);
    let mut words = fresh(&meter);
    meter.charge(&mut words, START, 10);
    assert_eq!(meter.wait(&words, START, 1), SECOND / 10);
    assert_eq!(meter.wait(&words, START - SECOND, 1), SECOND + SECOND / 10, "a clock that stepped back");
    assert_eq!(
        (bucket.turn(&words, START), bucket.turn(&words, START + SECOND / 4)),
        (SECOND, 3 * SECOND / 4)
    );
    // After the clock has stepped back, a charge is written with the time of the last charge.
    meter.charge(&mut words, START - SECOND, 1);
    assert_eq!(words[..2], [START, 11 * SECOND]);
    // A debt is kept below 2^53, however much is charged at once.
    meter.charge(&mut words, START, u64::MAX);
    assert_eq!(words[..2], [START, (1 << 53) - 1]);
    assert_eq!(meter.left(&words, START), 0);
}

#[test]
fn somebody_waits_in_a_queue_behind_the_first_and_elsewhere_above_what_there_is_at_once() {
    let bucket = RequestBucket::new(10, SECOND, 5);
    let mut words = [0; 2];
    // In a queue nobody waits behind a caller that gives three units back, if no more than three were taken.
    let waited_for = |words: &[u64], queue| bucket.is_waited_for(words, START, 3, queue);
    bucket.charge(&mut words, START, 3);
    assert_eq!([true, false].map(|queue| waited_for(&words, queue)), [false, false]);
    bucket.charge(&mut words, START, 2);
    assert_eq!([true, false].map(|queue| waited_for(&words, queue)), [true, false]);
    bucket.charge(&mut words, START, 1);
    assert_eq!([true, false].map(|queue| waited_for(&words, queue)), [true, true]);
}

#[test]
fn a_bucket_of_nothing_has_one_of_everything() {
    let least = RequestBucket::new(0, 0, 0);
    assert_eq!((least.amount(), least.period_us(), least.capacity()), (1, 1, 1));
    assert_eq!(Meter::Log(Log::new(0, SECOND)).capacity(), 1);
    assert_eq!((Sliding::new(1, 0).part_us(), Weighted::new(1, 0).period_us()), (1, 1));
    assert_eq!(Fixed::new(1, 5).period_us(), SECOND, "windows have whole seconds");
    // Rounded up to sixty whole counters.
    assert_eq!((Sliding::new(1, 61).part_us(), Sliding::new(1, 61).period_us()), (2, 120));
}

#[test]
fn parts_of_a_limit_have_their_part_of_the_rate_or_the_whole_window() {
    let (meters, start) = ten_a_minute();
    let minute = 60 * SECOND;
    // By kind: a half of the limit, as the store is told.
    let expected = [
        [1, 10, 2 * minute, 5],
        [7, 1_200, 200 * minute, 6],
        [2, 5, minute, 0],
        [6, 5, start, start + 1_440 * minute],
        [3, 5, SECOND, 0],
        [4, 5, minute, 0],
        [5, 5, minute, 0],
    ];
    for (meter, half) in meters.iter().zip(expected) {
        assert_eq!(meter.share(2).script(start), half, "{meter:?}");
        assert_eq!(meter.part(1, 2).unwrap().script(start), half, "{meter:?}");
        assert_eq!(meter.part(1, meter.capacity() + 1), None, "{meter:?}");
        // Each of three hosts keeps a tenth of the limit, in whole units.
        let each = meter.capacity() * 300 / 3_000;
        assert_eq!(meter.without_parts(300, 3).capacity(), meter.capacity() - 3 * each, "{meter:?}");
    }
    let Meter::Soft(soft) = meters[1].share(2) else { panic!("another kind") };
    assert_eq!(
        (soft.own().amount(), soft.own().period_us(), soft.own().capacity()),
        (1_000, 200 * minute, 5)
    );
    assert_eq!(soft.whole().capacity(), 6);
}
