//! The level of a bucket for people: reads the word that decides about packets, without changing it.
//!
//! ```text
//!            now                 now + tolerance
//!   ----------|---------#----------------|-------->  time
//!             |  spent  |      left      |
//! ```
//!
//! What is left is what [`super::gcra`] would admit at this moment.

use super::gcra::{Start, TIME_FRAC_BITS, ahead_q8};
use crate::abi::Limit;

/// The level of one bucket at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    spent_q8: u64,
    full_in_q8: u64,
    tolerance_q8: u64,
}

impl Level {
    /// The level of a bucket, of which some counts as spent by `start`.
    pub const fn of(tat_q8: u64, tolerance_q8: u64, now_q8: u64, start: Start) -> Self {
        let ahead = ahead_q8(tat_q8, now_q8);
        let full_in_q8 = if ahead > start.owed_q8 { ahead } else { start.owed_q8 };
        Self { spent_q8: start.spent_q8(ahead), full_in_q8, tolerance_q8 }
    }

    /// The level of a full bucket.
    pub const fn full(tolerance_q8: u64) -> Self {
        Self { spent_q8: 0, full_in_q8: 0, tolerance_q8 }
    }

    /// The level for a source without an entry, by the level of its cell: first what the cell has left, then
    /// an entry that starts with all spent that a cell can give. Together that is the whole burst, less what the cell has given.
    pub const fn behind(cell: Self, tolerance_q8: u64) -> Self {
        let given = if cell.spent_q8 > cell.tolerance_q8 { cell.tolerance_q8 } else { cell.spent_q8 };
        Self { spent_q8: given, full_in_q8: cell.full_in_q8, tolerance_q8 }
    }

    /// What can be spent now, as a time in 1/256 ns.
    pub const fn room_q8(&self) -> u64 {
        self.tolerance_q8.saturating_sub(self.spent_q8)
    }

    /// Units that can be spent now, one by one.
    pub const fn left(&self, limit: &Limit) -> u64 {
        units(self.room_q8(), limit)
    }

    /// Units that could be spent if the bucket were full.
    pub const fn capacity(&self, limit: &Limit) -> u64 {
        units(self.tolerance_q8, limit)
    }

    /// Nanoseconds until the bucket is full again; 0 if it is full.
    pub const fn full_in_ns(&self) -> u64 {
        self.full_in_q8.div_ceil(1 << TIME_FRAC_BITS)
    }

    /// Nanoseconds until a charge is admitted if nothing else is admitted before; 0 if it is admitted now.
    pub const fn wait_ns(&self, charge_q8: u64) -> u64 {
        (self.spent_q8 + charge_q8).saturating_sub(self.tolerance_q8).div_ceil(1 << TIME_FRAC_BITS)
    }
}

/// Units that a time in 1/256 ns pays for. Charges round up to whole time units, so these units cost no more than that.
pub const fn units(time_q8: u64, limit: &Limit) -> u64 {
    if limit.cost_fp == 0 {
        return 0;
    }
    (((time_q8 as u128) << (limit.frac_bits & 63)) / limit.cost_fp as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_as_many_units_as_the_time_that_is_left_pays_for() {
        let limit = Limit { cost_fp: 300, tolerance_q8: 1_000, frac_bits: 0, meter: 0 };
        let level = Level::of((1 << 40) + 350, limit.tolerance_q8, 1 << 40, Start::FULL);
        assert_eq!((level.left(&limit), level.capacity(&limit)), (2, 3));
        let finer = Limit { cost_fp: 300 << 4, frac_bits: 4, ..limit };
        assert_eq!((level.left(&finer), level.capacity(&finer)), (2, 3));
        assert_eq!(level.left(&Limit { cost_fp: 0, ..limit }), 0);
    }

    #[test]
    fn waits_are_whole_nanoseconds_rounded_up() {
        let level = Level::of((1 << 40) + 513, 1_000, 1 << 40, Start::FULL);
        assert_eq!((level.full_in_ns(), level.room_q8()), (3, 487));
        assert_eq!([487, 488, 743, 744].map(|charge| level.wait_ns(charge)), [0, 1, 1, 2]);
        assert_eq!((Level::full(1_000).full_in_ns(), Level::full(1_000).wait_ns(1_001)), (0, 1));
    }

    #[test]
    fn who_has_no_entry_finds_the_whole_burst_less_what_its_cell_has_given() {
        let room = |spent: u64| {
            Level::behind(Level::of((1 << 40) + spent, 200, 1 << 40, Start::FULL), 1_000).room_q8()
        };
        assert_eq!([0, 150, 200, 300].map(room), [1_000, 850, 800, 800], "a cell gives no more than it has");
    }
}
