//! Window numbers that wrap, and the word of a window number, a mark and a count.
//!
//! ```text
//!   63                      count_bits                       0
//!   | window number         |mark|  count                    |
//! ```

use super::Window;

/// Where the window of a word lies in time, seen from the window that is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// The word has the window that is asked about.
    Same,
    /// The word has the window before that.
    Previous,
    /// The word has an earlier window, or was never written.
    Old,
    /// The word has a later window: the clock of another CPU is ahead.
    Ahead,
}

/// Compares window numbers of which only the lowest `bits` are known.
#[inline(always)]
pub(super) const fn age(of: u64, index: u64, bits: u32, late: u32) -> Age {
    let mask = (1_u64 << (bits & 63)) - 1;
    match index.wrapping_sub(of) & mask {
        0 => Age::Same,
        // Before Previous: with one window of lateness at least, no circle is so small that they meet.
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
    // Zero would otherwise be window 0, which shortly before a wrap is ahead.
    let age = if word == 0 { Age::Old } else { age(word >> 1 >> bits, index, 63 - bits, window.late) };
    Slot { age, marked: (word >> bits) & 1 != 0, count }
}

/// Puts a word together. The count fits: it was compared with a limit that does.
#[inline(always)]
pub(super) const fn write(window: &Window, index: u64, marked: bool, count: u64) -> u64 {
    let bits = window.count_bits & 63;
    (index << bits << 1) | ((marked as u64) << bits) | count
}
