//! Turns a rate in words ("5000 packets a minute") into the parameters of a window.
//!
//! The amount becomes the limit, rounded down to the units it is counted in, and the period the length. Everything
//! that the words cannot hold is refused here, with a sentence.

use core::fmt;

use super::Window;
use super::weighted::{MAX_PREVIOUS, PREVIOUS_BITS};
use crate::abi::Meter;
use crate::limit::rate::{FULL_FRAME, Rate};

/// Bits of a count that leave enough bits for window numbers not to wrap in practice.
const SMALL_COUNT_BITS: u32 = 32;
/// Bits of a count for large limits: 100 million packets a second for a day.
const LARGE_COUNT_BITS: u32 = 43;
/// The most binary places that a count of bytes leaves out: its unit stays below the smallest frame.
const MAX_SHIFT: u32 = 6;
const MAX_COUNT: u64 = (1 << LARGE_COUNT_BITS) - 1;

/// How long a CPU may use a clock reading, in nanoseconds.
const LATE_NS: u64 = 60_000_000_000;

/// Why a limit cannot be counted in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowError {
    /// The limit is 0, so nothing would ever pass.
    ZeroLimit,
    /// The limit is more than a word can count.
    TooLarge {
        /// The meter of the limit.
        meter: Meter,
        /// The largest limit in this meter.
        max: u64,
    },
    /// The limit in bytes is smaller than a full frame.
    BelowFrame {
        /// The rejected limit in bytes.
        limit: u64,
    },
}

impl Window {
    /// Parameters for [`super::fixed`].
    pub fn fixed(rate: &Rate) -> Result<Self, WindowError> {
        Self::counting(rate, rate.period.ns(), 1)
    }

    /// Parameters for [`super::weighted`].
    pub fn weighted(rate: &Rate) -> Result<Self, WindowError> {
        let mut window = Self::counting(rate, rate.period.ns(), 1)?;
        while window.limit.div_ceil(1 << window.previous_shift) > MAX_PREVIOUS {
            window.previous_shift += 1;
        }
        window.late = late(window.length_ns, 64 - PREVIOUS_BITS - window.count_bits, 1);
        Ok(window)
    }

    /// Parameters for [`super::sliding`] with K words.
    pub fn sliding<const K: usize>(rate: &Rate) -> Result<Self, WindowError> {
        const { assert!(K >= 2 && K <= 1024, "the current sub-window and at least one before it") };
        Self::counting(rate, rate.period.ns().div_ceil(K as u64 - 1), K as u32)
    }

    fn counting(rate: &Rate, length_ns: u64, words: u32) -> Result<Self, WindowError> {
        let limit = rate.amount;
        let max_shift = if rate.meter == Meter::Bytes { MAX_SHIFT } else { 0 };
        if limit == 0 {
            return Err(WindowError::ZeroLimit);
        }
        if limit >> max_shift > MAX_COUNT {
            return Err(WindowError::TooLarge { meter: rate.meter, max: MAX_COUNT << max_shift });
        }
        if rate.meter == Meter::Bytes && limit < FULL_FRAME {
            return Err(WindowError::BelowFrame { limit });
        }
        let mut shift = 0;
        while limit >> shift > MAX_COUNT {
            shift += 1;
        }
        let limit = limit >> shift;
        let count_bits = if limit >> SMALL_COUNT_BITS == 0 { SMALL_COUNT_BITS } else { LARGE_COUNT_BITS };
        Ok(Self {
            length_ns,
            limit,
            reciprocal: (1_u64 << 63).div_ceil(length_ns),
            shift,
            count_bits,
            late: late(length_ns, 63 - count_bits, words),
            previous_shift: 0,
        })
    }
}

/// How many windows ahead still count as late: as many as [`LATE_NS`] has, but no more than one in 64 of all numbers, and at least twice
/// the number of words of a source.
fn late(length_ns: u64, index_bits: u32, words: u32) -> u32 {
    let most = (1 << index_bits >> 6).max(2 * words);
    LATE_NS.div_ceil(length_ns).clamp(2 * u64::from(words), u64::from(most)) as u32
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLimit => write!(f, "limit 0 lets nothing pass; use at least 1, or block the source"),
            Self::TooLarge { meter, max } => write!(
                f,
                "limit is above {max} {} in one window, more than it can count; use at most that, a shorter period, or \
                 a token bucket",
                meter.name()
            ),
            Self::BelowFrame { limit } => write!(
                f,
                "limit {limit} bytes in one window refuses every full frame; use at least {FULL_FRAME} bytes, or a longer \
                 period"
            ),
        }
    }
}

impl core::error::Error for WindowError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{manner::Manner, rate::Period};

    #[test]
    fn as_many_windows_count_as_ahead_as_a_minute_has_but_few_of_all_and_twice_round_the_words() {
        assert_eq!(late(1_000_000_000, 31, 1), 60);
        assert_eq!(late(1, 31, 1), 1 << 25, "one in 64 of all numbers");
        assert_eq!(late(86_400_000_000_000, 31, 1), 2);
        assert_eq!(late(86_400_000_000_000, 5, 61), 122);
    }

    #[test]
    fn a_window_of_bytes_that_no_full_frame_fits_into_is_refused() {
        let bytes = |amount| {
            let (meter, period, manner) = (Meter::Bytes, Period::Second, Manner::PLAIN);
            Window::fixed(&Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED })
        };
        for limit in [1, FULL_FRAME - 1] {
            assert_eq!(bytes(limit), Err(WindowError::BelowFrame { limit }));
        }
        assert_eq!(bytes(FULL_FRAME).map(|window| window.limit), Ok(FULL_FRAME));
    }

    #[test]
    fn a_count_has_the_bits_that_its_limit_needs_and_the_number_of_the_window_has_the_others() {
        for (amount, count_bits) in [(1, 32), (u64::from(u32::MAX), 32), (1 << 32, 43), (MAX_COUNT, 43)] {
            let (meter, period, manner) = (Meter::Packets, Period::Day, Manner::PLAIN);
            let window =
                Window::fixed(&Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED })
                    .unwrap();
            assert_eq!((window.count_bits, window.limit), (count_bits, amount));
        }
    }

    #[test]
    fn a_window_is_as_long_as_its_period_and_a_sliding_one_in_parts_that_are_together() {
        let (meter, period, manner) = (Meter::Packets, Period::Second, Manner::PLAIN);
        let rate = |amount| Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED };
        let [fixed, weighted] = [Window::fixed(&rate(9)), Window::weighted(&rate(9))].map(Result::unwrap);
        assert_eq!([fixed.length_ns, weighted.length_ns], [1_000_000_000; 2]);
        assert_eq!([fixed.late, weighted.late], [60; 2], "a minute");
        let sliding = Window::sliding::<8>(&rate(9)).unwrap();
        assert_eq!(
            (sliding.length_ns, sliding.late),
            (142_857_143, 420),
            "seven parts are a second, rounded up"
        );
        // The previous window's count is kept in twelve bits.
        let shifts = [MAX_PREVIOUS, MAX_PREVIOUS + 1, 2 * MAX_PREVIOUS, 2 * MAX_PREVIOUS + 1];
        assert_eq!(
            shifts.map(|amount| Window::weighted(&rate(amount)).unwrap().previous_shift),
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn the_largest_windows_are_counted_in_units_and_larger_ones_are_refused_with_a_sentence() {
        let of = |meter, amount| {
            Window::fixed(&Rate {
                meter,
                amount,
                period: Period::Day,
                burst: amount,
                manner: Manner::PLAIN,
                units: Rate::UNTYPED,
            })
        };
        let units = |window: Window| (window.shift, window.limit);
        assert_eq!(of(Meter::Bytes, MAX_COUNT).map(units), Ok((0, MAX_COUNT)));
        assert_eq!(of(Meter::Bytes, MAX_COUNT + 1).map(units), Ok((1, 1 << 42)));
        assert_eq!(of(Meter::Bytes, MAX_COUNT << 6).map(units), Ok((6, MAX_COUNT)));
        for (meter, amount, max) in
            [(Meter::Packets, MAX_COUNT + 1, MAX_COUNT), (Meter::Bytes, (MAX_COUNT + 1) << 6, MAX_COUNT << 6)]
        {
            let error = of(meter, amount).unwrap_err();
            assert_eq!(error, WindowError::TooLarge { meter, max });
            let sentence = std::format!("{error}");
            assert!(
                sentence.starts_with(&std::format!("limit is above {max} {}", meter.name())),
                "{sentence}"
            );
        }
        let sentence = std::format!("{}", of(Meter::Packets, 0).unwrap_err());
        assert_eq!(sentence, "limit 0 lets nothing pass; use at least 1, or block the source");
    }
}
