//! Fixed window: a window number and a count in one word.
//!
//! ```text
//!            window 7          window 8
//!   |--------------------|--------------------|-->  time
//!                   #####|#####
//!                   limit limit: 2 x limit within one window's length
//! ```
//!
//! Bound: at most the limit in every aligned window, so **at most 2 x limit in any real window**, and that is reached
//! by whoever aims at the edge. From below: a packet is refused only if its aligned window is used up, in counts
//! rounded up as [`super`] describes, or if it is late.
//!
//! # Worked numbers
//! 5000 packets/min: 5000 in the last second of one minute and 5000 in the first of the next pass, 10 000 in two
//! seconds. Where that matters, use [`super::sliding`].

use super::word::{Age, Slot, read, write};
use super::{Window, WindowOutcome};

/// Asks the window `word` for `amount` at time `now_ns`.
#[inline(always)]
pub const fn take(word: u64, window: &Window, now_ns: u64, amount: u64) -> WindowOutcome {
    let index = window.index(now_ns);
    let count = match read(word, window, index) {
        Slot { age: Age::Ahead, .. } => return WindowOutcome::Late,
        Slot { age: Age::Same, count, .. } => count,
        _ => 0,
    };
    // A count is above the limit after the limit was lowered.
    let after = count.saturating_add(window.units(amount));
    if after > window.limit {
        return WindowOutcome::Refused;
    }
    WindowOutcome::Conforms { word: write(window, index, false, after) }
}

/// How much of the limit is used up, for people to read.
pub const fn used(word: u64, window: &Window, now_ns: u64) -> u64 {
    match read(word, window, window.index(now_ns)) {
        Slot { age: Age::Same | Age::Ahead, count, .. } => count << (window.shift & 63),
        _ => 0,
    }
}
