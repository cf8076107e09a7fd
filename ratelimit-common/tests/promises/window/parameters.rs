//! From rates to numbers, and what is refused on the way.

use proptest::prelude::*;
use ratelimit_common::abi::Meter;
use ratelimit_common::limit::manner::Manner;
use ratelimit_common::limit::rate::{MAX_COUNT_PER_SEC, Period, Rate};
use ratelimit_common::limit::window::{Window, WindowError};

use super::model::{kind, rate};

fn rate_of(meter: Meter, amount: u64, period: Period) -> Rate {
    Rate { meter, amount, period, burst: 1, manner: Manner::PLAIN, units: Rate::UNTYPED }
}

#[test]
fn every_limit_out_of_bounds_is_refused_and_its_neighbour_inside_is_not() {
    use Meter::{Bytes, Packets};
    let most = (1 << 43) - 1;
    for (bad, error, good) in [
        (rate_of(Packets, 0, Period::Day), WindowError::ZeroLimit, rate_of(Packets, 1, Period::Day)),
        (
            rate_of(Packets, most + 1, Period::Day),
            WindowError::TooLarge { meter: Packets, max: most },
            rate_of(Packets, most, Period::Day),
        ),
        (
            rate_of(Bytes, (most << 6) + 64, Period::Day),
            WindowError::TooLarge { meter: Bytes, max: most << 6 },
            rate_of(Bytes, most << 6, Period::Day),
        ),
        (
            rate_of(Bytes, 1513, Period::Second),
            WindowError::BelowFrame { limit: 1513 },
            rate_of(Bytes, 1514, Period::Second),
        ),
    ] {
        for make in [Window::fixed, Window::weighted, Window::sliding::<8>, Window::sliding::<60>] {
            assert_eq!(make(&bad), Err(error), "{bad}");
            assert!(make(&good).is_ok(), "{good}");
        }
    }
}

#[test]
fn every_packet_rate_that_a_token_bucket_takes_fits_a_window() {
    for period in [Period::Second, Period::Minute, Period::Hour, Period::Day] {
        let amount = MAX_COUNT_PER_SEC * (period.ns() / Period::Second.ns());
        let window = Window::fixed(&rate_of(Meter::Packets, amount, period)).unwrap();
        assert_eq!((window.limit, window.shift), (amount, 0));
    }
}

#[test]
fn errors_are_sentences_that_say_what_would_be_right() {
    for (amount, meter, sentence) in [
        (0, Meter::Packets, "limit 0 lets nothing pass; use at least 1, or block the source"),
        (
            u64::MAX,
            Meter::Syns,
            "limit is above 8796093022207 syns in one window, more than it can count; use at most that, a shorter period, \
             or a token bucket",
        ),
        (
            1000,
            Meter::Bytes,
            "limit 1000 bytes in one window refuses every full frame; use at least 1514 bytes, or a longer period",
        ),
    ] {
        let error = Window::fixed(&rate_of(meter, amount, Period::Hour)).unwrap_err();
        assert_eq!(error.to_string(), sentence);
    }
}

proptest! {
    #![proptest_config(super::config(2000))]

    #[test]
    fn the_limit_enforced_is_the_one_asked_for_less_a_part_of_a_unit(kind in kind(), rate in rate()) {
        let window = kind.window(&rate);
        prop_assert!(window.limit_amount() <= rate.amount);
        prop_assert!(rate.amount - window.limit_amount() < 1 << window.shift);
        prop_assert!(window.shift == 0 || rate.meter == Meter::Bytes);
        // Sub-windows cover the whole of the period, and not a nanosecond each too much.
        let parts = kind.words().max(2) - 1;
        prop_assert!(window.length_ns * parts >= rate.period.ns());
        prop_assert!(window.length_ns * parts < rate.period.ns() + parts);
    }
}
