//! Window numbers that wrap, and words that have a window number, a mark and a count.
//!
//! ```text
//!   63                      count_bits                       0
//!   | window number         |mark|  count                    |
//! ```

use super::Window;

/// The window of a word in relation to the window in question.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// The word is of the window in question.
    Same,
    /// The word is of the window before the one in question.
    Previous,
    /// The word is of an earlier window, or was never written.
    Old,
    /// The word is of a later window: the clock of another CPU is ahead.
    Ahead,
}

/// Compares window numbers of which only the lowest `bits` are known.
#[inline(always)]
pub(super) const fn age(of: u64, index: u64, bits: u32, late: u32) -> Age {
    let mask = (1_u64 << (bits & 63)) - 1;
    match index.wrapping_sub(of) & mask {
        0 => Age::Same,
        // Tested before `Previous`: with at least one window of lateness, no circle is so small that the two meet.
        back if back > mask.wrapping_sub(late as u64) => Age::Ahead,
        1 => Age::Previous,
        _ => Age::Old,
    }
}

/// A word of one window, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) age: Age,
    pub(super) marked: bool,
    pub(super) count: u64,
}

/// Reads a word as seen from window `index`.
#[inline(always)]
pub(super) const fn read(word: u64, window: &Window, index: u64) -> Slot {
    let bits = window.count_bits & 63;
    let count = word & ((1 << bits) - 1);
    // A zero word would otherwise be of window 0, which shortly before a wrap is ahead.
    let age = if word == 0 { Age::Old } else { age(word >> 1 >> bits, index, 63 - bits, window.late) };
    Slot { age, marked: (word >> bits) & 1 != 0, count }
}

/// The word of a window number, a mark and a count. The count fits, because it was compared with a limit that fits.
#[inline(always)]
pub(super) const fn write(window: &Window, index: u64, marked: bool, count: u64) -> u64 {
    let bits = window.count_bits & 63;
    (index << bits << 1) | ((marked as u64) << bits) | count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Meter;
    use crate::limit::{manner::Manner, rate::Period, rate::Rate};

    /// Windows of one second whose counts have 32 bits, and 43.
    fn windows() -> [Window; 2] {
        [100, 1 << 40].map(|amount| {
            let (meter, period, manner) = (Meter::Packets, Period::Second, Manner::PLAIN);
            Window::fixed(&Rate { meter, amount, period, burst: amount, manner, units: Rate::UNTYPED })
                .unwrap()
        })
    }

    #[test]
    fn a_word_reads_as_it_was_written_however_many_windows_there_have_been() {
        for window in windows() {
            let most = (1 << window.count_bits) - 1;
            for index in [1, 77, (1 << 20) + 5, (1 << 31) + 5, u64::from(u32::MAX), (1 << 50) + 1] {
                for (marked, count) in [(false, 0), (true, 1), (false, most), (true, most)] {
                    let slot = read(write(&window, index, marked, count), &window, index);
                    assert!(slot.age == Age::Same && slot.marked == marked && slot.count == count, "{index}");
                }
            }
        }
    }

    #[test]
    fn a_word_has_the_age_of_its_window_and_is_ahead_by_as_many_as_a_clock_may_be() {
        for window in windows() {
            let late = u64::from(window.late);
            for index in [1_000, (1 << 31) + 1_000] {
                let word = write(&window, index, true, 9);
                let age = |seen_from| read(word, &window, seen_from).age;
                assert!(age(index) == Age::Same && age(index + 1) == Age::Previous);
                assert!(age(index + 2) == Age::Old && age(index + 300) == Age::Old);
                assert!(age(index - 1) == Age::Ahead && age(index - late) == Age::Ahead);
                assert!(age(index - late - 1) == Age::Old);
            }
        }
    }

    #[test]
    fn a_word_that_was_never_written_is_old_even_where_window_numbers_go_round() {
        for window in windows() {
            for index in [0, 1, (1 << 20) - 1, (1 << 31) - 1, 1 << 31] {
                assert!(read(0, &window, index).age == Age::Old, "{index}");
            }
        }
    }
}
