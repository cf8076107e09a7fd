//! Weighted sliding window: this window's count and the previous one's, in one word.
//!
//! ```text
//!         previous             current
//!   |--------------------|------------|-------|-->  time
//!                ^                   now      ^
//!                |<----- one window ->|<----->|
//!                                     remaining
//!
//!   estimate = current + previous x remaining / window, rounded up
//! ```
//!
//! The estimate assumes that the previous window's packets were spread evenly. A sender that sends them all at its end gets more:
//! the limit at the end of one window, and `x` times the limit during the first part `x` of the next.
//!
//! Bound: at most the limit in every aligned window, and **at most 2 x limit - 1 in any real window**; an adversary comes
//! as near to that as the rounding lets it. That is why this window is "soft". Evenly spread traffic is held to the limit.
//!
//! From below: a packet is refused only if it is late or current + previous x remaining / window + amount exceeds the
//! limit less 0.06 % of it and one unit, which is the cost of rounding. Up to a limit of 4095, one unit and a bit.
//!
//! # The word
//! ```text
//!   63                    count_bits + 12      count_bits       0
//!   | window number       |  previous          |  current       |
//! ```
//! The previous count has 12 bits, in units chosen so that the limit fits, rounded up. The window number has the other 20 bits (at
//! 1 s: 12 days), or 9 for large counts (at an hour: 21 days).
//!
//! # Worked numbers
//! 1000 packets/min, 600 of them in the previous minute. 15 s into this one 0.75 of those count: 450, and 451
//! as the fraction rounds up in its 16th place, so 549 may pass.

use super::word::{Age, age};
use super::{Window, WindowOutcome};

/// Bits of the previous count.
pub(super) const PREVIOUS_BITS: u32 = 12;
/// The largest previous count.
pub(super) const MAX_PREVIOUS: u64 = (1 << PREVIOUS_BITS) - 1;

/// Bits of the remaining fraction.
const FRACTION_BITS: u32 = 16;
/// Binary places of `Window::reciprocal` that the fraction leaves out.
const FRACTION_SHIFT: u32 = 63 - FRACTION_BITS;

/// The counts of this window and the one before, read from a word.
#[derive(Clone, Copy)]
struct Counts {
    /// The previous window's count, in units of 2^`previous_shift` counts.
    previous: u64,
    current: u64,
}

/// Evaluates a charge of `amount` to the window `word` at time `now_ns`.
#[inline(always)]
pub const fn take(word: u64, window: &Window, now_ns: u64, amount: u64) -> WindowOutcome {
    let index = window.index(now_ns);
    let Some(counts) = read(word, window, index) else { return WindowOutcome::Late };
    let current = counts.current.saturating_add(window.units(amount));
    if current.saturating_add(fading(counts.previous, window, index, now_ns)) > window.limit {
        return WindowOutcome::Refused;
    }
    let bits = window.count_bits & 63;
    // Two shifts, because together they could be 64 under broken parameters.
    WindowOutcome::Conforms { word: (((index << PREVIOUS_BITS) | counts.previous) << bits) | current }
}

/// How much of the limit is used up by the estimate, in the units of the meter, for people to read.
pub const fn used(word: u64, window: &Window, now_ns: u64) -> u64 {
    let index = window.index(now_ns);
    match read(word, window, index) {
        Some(counts) => {
            (counts.current + fading(counts.previous, window, index, now_ns)) << (window.shift & 63)
        }
        None => window.limit_amount(),
    }
}

/// The counts as seen from window `index`; `None` if the word is of a later window.
#[inline(always)]
const fn read(word: u64, window: &Window, index: u64) -> Option<Counts> {
    if word == 0 {
        return Some(Counts { previous: 0, current: 0 });
    }
    let bits = window.count_bits & 63;
    let current = word & ((1 << bits) - 1);
    let upper = word >> bits;
    let index_bits = 64 - PREVIOUS_BITS - if bits < 52 { bits } else { 51 };
    match age(upper >> PREVIOUS_BITS, index, index_bits, window.late) {
        Age::Ahead => None,
        Age::Same => Some(Counts { previous: upper & MAX_PREVIOUS, current }),
        Age::Previous => Some(Counts { previous: as_previous(current, window), current: 0 }),
        Age::Old => Some(Counts { previous: 0, current: 0 }),
    }
}

/// The count of a window that has become the previous one, rounded up. It can be too large for its bits only after the limit was lowered, and then it
/// is cut to at least the limit.
#[inline(always)]
const fn as_previous(count: u64, window: &Window) -> u64 {
    let shift = window.previous_shift & 63;
    let previous = (count >> shift) + (count & ((1 << shift) - 1) != 0) as u64;
    if previous > MAX_PREVIOUS { MAX_PREVIOUS } else { previous }
}

/// What still counts of the previous window, rounded up.
#[inline(always)]
const fn fading(previous: u64, window: &Window, index: u64, now_ns: u64) -> u64 {
    let elapsed_ns = now_ns.wrapping_sub(index.wrapping_mul(window.length_ns));
    let remaining_ns = window.length_ns.wrapping_sub(elapsed_ns);
    // At most 2^63 + 2^47 for windows up to a day.
    let product = remaining_ns.wrapping_mul(window.reciprocal);
    let fraction = product.wrapping_add((1 << FRACTION_SHIFT) - 1) >> FRACTION_SHIFT;
    // 43 bits times 17.
    let weighted = (previous << (window.previous_shift & 63)).wrapping_mul(fraction);
    weighted.wrapping_add((1 << FRACTION_BITS) - 1) >> FRACTION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Meter;
    use crate::limit::{manner::Manner, rate::Period, rate::Rate};

    const SECOND: u64 = 1_000_000_000;

    fn window(amount: u64) -> Window {
        let (meter, period, manner) = (Meter::Packets, Period::Second, Manner::PLAIN);
        Window::weighted(&Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED })
            .unwrap()
    }

    fn taken(word: u64, window: &Window, now_ns: u64, amount: u64) -> u64 {
        match take(word, window, now_ns, amount) {
            WindowOutcome::Conforms { word } => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_used_is_this_count_and_of_the_one_before_what_still_lies_in_a_window() {
        let window = window(100);
        let word = taken(0, &window, 9 * SECOND, 40);
        assert_eq!(used(word, &window, 9 * SECOND), 40);
        let word = taken(word, &window, 10 * SECOND + SECOND / 2, 10);
        // Half of 40, and one because the part of the window is rounded up.
        assert_eq!(used(word, &window, 10 * SECOND + SECOND / 2), 31);
        assert_eq!(take(word, &window, 10 * SECOND + SECOND / 2, 70), WindowOutcome::Refused);
        assert!(matches!(take(word, &window, 10 * SECOND + SECOND / 2, 69), WindowOutcome::Conforms { .. }));
        assert_eq!(used(word, &window, 12 * SECOND), 0);
    }

    #[test]
    fn a_count_of_before_a_limit_was_lowered_is_the_largest_that_fits() {
        let (wide, narrow) = (window(1 << 21), window(100));
        assert_eq!((wide.previous_shift, narrow.previous_shift), (10, 0));
        let word = taken(0, &wide, 9 * SECOND, 1 << 20);
        // The part of the window is rounded up, by less than 1 in 60 000.
        assert_eq!(used(word, &wide, 10 * SECOND), (1 << 20) + 16);
        assert_eq!(used(word, &narrow, 10 * SECOND), MAX_PREVIOUS + 1);
    }

    #[test]
    fn a_count_becomes_the_previous_one_in_whole_units_rounded_up() {
        let wide = window(1 << 21);
        for (count, previous) in [(1 << 20, 1_024), ((1 << 20) + 1, 1_025), ((1 << 20) + 1_024, 1_025)] {
            assert_eq!(as_previous(count, &wide), previous, "{count}");
        }
    }

    #[test]
    fn nothing_is_rounded_where_the_part_of_a_window_is_exact() {
        let even = Window { length_ns: 1 << 30, reciprocal: 1 << 33, ..window(100) };
        let word = taken(0, &even, 9 << 30, 40);
        assert_eq!(used(word, &even, 10 << 30), 40);
        assert_eq!(used(word, &even, (10 << 30) + (1 << 29)), 20);
    }

    #[test]
    fn a_window_is_told_from_others_however_many_there_have_been() {
        for (amount, index) in [(100, (1 << 31) + 7), (1 << 40, (1 << 31) + 7), (1 << 40, 512 * 3 + 100)] {
            let window = window(amount);
            let word = taken(0, &window, index * SECOND, 50);
            assert_eq!(used(word, &window, index * SECOND), 50, "{index}");
            assert_eq!(take(word, &window, index * SECOND, amount - 49), WindowOutcome::Refused);
            assert_eq!(used(word, &window, (index + 2) * SECOND), 0);
        }
    }

    #[test]
    fn large_windows_of_bytes_say_bytes() {
        let (meter, period, manner, amount) = (Meter::Bytes, Period::Day, Manner::PLAIN, 1 << 45);
        let window =
            Window::weighted(&Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED })
                .unwrap();
        let word = taken(0, &window, 9 * SECOND, 1514);
        assert_eq!(used(word, &window, 9 * SECOND), 1520, "190 units of eight bytes");
    }
}
