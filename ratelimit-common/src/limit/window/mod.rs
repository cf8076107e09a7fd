//! Windows: limits that count units per period, instead of metering them.
//!
//! | algorithm | state | most in one real window | least |
//! |---|---|---|---|
//! | [`fixed`] | 1 word | 2 x limit, across an edge | the limit in every aligned window |
//! | [`weighted`] ("soft") | 1 word | 2 x limit - 1, across an edge | limit less what the estimate says of before |
//! | [`sliding`] ("hard") | K words | **the limit** | the limit in every K / (K - 1) windows |
//!
//! "Real window" is any interval as long as the window, wherever it starts, of the clock readings by which the
//! packets were judged. Windows are aligned to the zero of that clock: for the kernel the boot, not the wall clock.
//! The `burst` of a [`Rate`](super::rate::Rate) has no effect: a window admits its whole limit at once.
//!
//! # Several CPUs, and clocks that differ
//! State is words of 64 bits, changed by compare-and-exchange. A word that is all zero was never used. A packet is
//! charged to the window that its own clock reading lies in, or refused as *late* if another CPU has opened a later
//! one; it is never charged to the later window, or an interval could hold three of them. That costs at most the
//! packets in progress on other CPUs while a window is opened.
//!
//! # Counts in few bits
//! A count has 32 bits, or 43 where the limit needs them. Byte limits beyond 2^43 count in units of up to 64 bytes: each
//! frame rounds up and the limit down, so the error is on one side. 40 Gbit/s for an hour is 1.8 x 10^13 bytes, counted
//! in units of 4: a frame of 1514 bytes counts as 1516.
//!
//! # Window numbers in few bits
//! The other bits of the word number the window, or the sub-window, and wrap. With n numbers (2^31; 2^20 for large
//! counts; weighted: 2^20 and 2^9), a word left alone for a multiple of n windows reads as written in this window, and for
//! just under a multiple as *late*. Both admit less, never more, and end within a minute or the time that counts as
//! ahead, whichever is longer: two windows, or 2 K sub-windows. At every other time the word reads as empty, as it
//! should. For a window of 1 s and counts of 32 bits the first such moment comes after 68 years.
//!
//! In return, a CPU must not use a clock reading for longer than that minute (weighted, with
//! windows of 1 s and beyond 4 GB: 8 s). Beyond it, a newer word would look like an old one.
//!
//! # Changing a limit
//! The limit itself is a parameter and takes effect with the next packet. Words that were written with another
//! window length or another layout mean nothing: [`Window::layout`] is what they must have in common, and if it differs, counting starts from zero.
//!
//! # Cost
//! One 64-bit division a packet (about 10 ns), because no period is a power of two. Times are plain nanoseconds and
//! not the 1/256 ns of [`super::gcra`], which wrap after 2.28 years: a window number needs the whole range of the clock.

pub mod fixed;
#[cfg(not(target_arch = "bpf"))]
mod parameters;
pub mod sliding;
pub mod weighted;
mod word;

#[cfg(not(target_arch = "bpf"))]
pub use parameters::WindowError;

use crate::abi_struct;

abi_struct! {
    /// The parameters of one window, for any of the algorithms; made by `Window::fixed`, `weighted` or `sliding`.
    pub struct Window: 40 {
        /// Length of one window in nanoseconds, or of one sub-window of a sliding window.
        pub length_ns: u64,
        /// The amount that one window admits, in units of 2^`shift`.
        pub limit: u64,
        /// 2^63 / `length_ns`, rounded up: saves the weighted window a second division.
        pub reciprocal: u64,
        /// Binary places that counts leave out.
        pub shift: u32,
        /// Bits of a count.
        pub count_bits: u32,
        /// Windows by which another CPU's clock may be ahead.
        pub late: u32,
        /// Binary places that the previous window's count leaves out, in a weighted window.
        pub previous_shift: u32,
    }
}

/// The answer of a word to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOutcome {
    /// The packet conforms, if this word can still be stored.
    Conforms {
        /// The word to store.
        word: u64,
    },
    /// The packet does not conform. Nothing is stored, so a flood only reads.
    Refused,
    /// The packet does not conform: another CPU has opened a later window than the one this clock reading lies in.
    Late,
}

impl Window {
    /// Fills the unused places of a policy.
    pub const UNUSED: Self =
        Self { length_ns: 0, limit: 0, reciprocal: 0, shift: 0, count_bits: 0, late: 0, previous_shift: 0 };

    /// The count of an amount, in units of 2^`shift`, rounded up, and at least 1.
    #[inline(always)]
    pub const fn units(&self, amount: u64) -> u64 {
        let shift = self.shift & 63;
        let rest = amount & ((1 << shift) - 1);
        let units = (amount >> shift).saturating_add((rest != 0) as u64);
        if units == 0 { 1 } else { units }
    }

    /// The limit in the units of its meter; lower than the limit in the policy by less than 2^shift.
    pub const fn limit_amount(&self) -> u64 {
        self.limit << (self.shift & 63)
    }

    /// Everything that the meaning of words depends on, except the limit. Words that were written under another layout must
    /// not be read, or a source may get a part of its limit twice, or be refused for a minute.
    pub const fn layout(&self) -> [u64; 4] {
        [self.length_ns, self.shift as u64, self.count_bits as u64, self.previous_shift as u64]
    }

    /// The number of the window that a time lies in. Parameters made by user space never have length 0.
    #[inline(always)]
    const fn index(&self, now_ns: u64) -> u64 {
        match now_ns.checked_div(self.length_ns) {
            Some(index) => index,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_meaning_under_another_limit_and_under_nothing_else() {
        let window =
            Window { length_ns: 9, limit: 5, shift: 1, count_bits: 32, previous_shift: 2, ..Window::UNUSED };
        assert_eq!(window.layout(), Window { limit: 6, ..window }.layout());
        for other in [
            Window { length_ns: 10, ..window },
            Window { shift: 2, ..window },
            Window { count_bits: 43, ..window },
            Window { previous_shift: 3, ..window },
        ] {
            assert_ne!(window.layout(), other.layout());
        }
    }

    #[test]
    fn an_amount_counts_as_the_units_that_it_begins_and_never_as_nothing() {
        let window = Window { limit: 5, shift: 3, ..Window::UNUSED };
        assert_eq!([0, 1, 8, 9, 16].map(|amount| window.units(amount)), [1, 1, 1, 2, 2]);
        assert_eq!(window.limit_amount(), 40);
    }
}
