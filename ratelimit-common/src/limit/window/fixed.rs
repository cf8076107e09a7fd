//! Fixed window: the number of a window and a count, in one word.
//!
//! ```text
//!            window 7          window 8
//!   |--------------------|--------------------|-->  time
//!                   #####|#####
//!                   limit limit: 2 x limit within one window's length
//! ```
//!
//! Bound: at most the limit in every aligned window, so **at most 2 x limit in any real window**, which is reached
//! by a sender that aims at the edge. From below: a packet is refused only if its aligned window is used up, in counts
//! rounded up as [`super`] describes, or if it is late.
//!
//! # Worked numbers
//! 5000 packets/min: 5000 in the last second of one minute and 5000 in the first of the next pass, 10 000 in two
//! seconds. Where that matters, use [`super::sliding`].

use super::word::{Age, Slot, read, write};
use super::{Window, WindowOutcome};

/// Evaluates a charge of `amount` to the window `word` at time `now_ns`.
#[inline(always)]
pub const fn take(word: u64, window: &Window, now_ns: u64, amount: u64) -> WindowOutcome {
    let index = window.index(now_ns);
    let count = match read(word, window, index) {
        Slot { age: Age::Ahead, .. } => return WindowOutcome::Late,
        Slot { age: Age::Same, count, .. } => count,
        _ => 0,
    };
    // A count can be above the limit after the limit was lowered.
    let after = count.saturating_add(window.units(amount));
    if after > window.limit {
        return WindowOutcome::Refused;
    }
    WindowOutcome::Conforms { word: write(window, index, false, after) }
}

/// How much of the limit is used up, in the units of the meter, for people to read.
pub const fn used(word: u64, window: &Window, now_ns: u64) -> u64 {
    match read(word, window, window.index(now_ns)) {
        Slot { age: Age::Same | Age::Ahead, count, .. } => count << (window.shift & 63),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Meter;
    use crate::limit::{manner::Manner, rate::Period, rate::Rate};

    const SECOND: u64 = 1_000_000_000;

    fn window(meter: Meter, amount: u64, period: Period) -> Window {
        Window::fixed(&Rate {
            meter,
            amount,
            period,
            burst: amount,
            manner: Manner::PLAIN,
            units: Rate::UNTYPED,
        })
        .unwrap()
    }

    fn taken(word: u64, window: &Window, now_ns: u64, amount: u64) -> u64 {
        match take(word, window, now_ns, amount) {
            WindowOutcome::Conforms { word } => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_second_of_the_clock_gives_the_limit_and_no_more_and_says_what_is_used() {
        let window = window(Meter::Packets, 3, Period::Second);
        let mut word = 0;
        for second in [9, 10, 12] {
            assert_eq!(used(word, &window, second * SECOND), 0);
            for sent in 1..=3 {
                word = taken(word, &window, second * SECOND + sent, 1);
                assert_eq!(used(word, &window, (second + 1) * SECOND - 1), sent);
            }
            for later in [4, SECOND - 1] {
                assert_eq!(take(word, &window, second * SECOND + later, 1), WindowOutcome::Refused);
            }
        }
    }

    #[test]
    fn who_comes_from_an_earlier_second_than_another_cpu_has_opened_is_late_and_reads_what_that_one_used() {
        let window = window(Meter::Packets, 3, Period::Second);
        let word = taken(0, &window, 12 * SECOND, 2);
        assert_eq!(take(word, &window, 12 * SECOND - 1, 1), WindowOutcome::Late);
        assert_eq!(used(word, &window, 12 * SECOND - 1), 2);
    }

    #[test]
    fn large_windows_of_bytes_count_in_units_and_say_bytes() {
        let window = window(Meter::Bytes, 1 << 45, Period::Day);
        assert_eq!((window.shift, window.limit_amount()), (3, 1 << 45));
        let word = taken(0, &window, 9 * SECOND, 1514);
        assert_eq!(used(word, &window, 9 * SECOND), 1520, "190 units of eight bytes");
        let word = taken(word, &window, 9 * SECOND, 8);
        assert_eq!(used(word, &window, 9 * SECOND), 1528, "nothing is rounded up where nothing is left over");
    }
}
