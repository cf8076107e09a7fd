//! Prefixes that have a bucket of their own, because their cell could not answer for them any more.

use super::policy::MAX_RUNGS;
use crate::abi_struct;

/// Prefixes that can have a bucket of their own at once. The kernel evicts the least recently used.
pub const MAX_PREFIXES: usize = 16_384;
/// Cells of each rung, as a power of two.
pub const RUNG_CELL_BITS: u32 = 13;
/// Cells of each rung.
pub const RUNG_CELLS: u32 = 1 << RUNG_CELL_BITS;
/// Cells of all rungs: each has its own.
pub const LADDER_CELLS: usize = 2 * MAX_RUNGS * RUNG_CELLS as usize;

abi_struct! {
    /// A prefix of one rung.
    pub struct PrefixKey: 24 {
        /// Bytes 0 to 7 of the prefix, native load.
        pub hi: u64,
        /// Bytes 8 to 15 of the prefix, native load.
        pub lo: u64,
        /// Which rung: prefixes of different length can have the same bytes.
        pub rung: u64,
    }
}

abi_struct! {
    /// One cell of a rung; see `limit::gate` for what its words mean.
    pub struct RungCell: 16 {
        /// Bucket of all prefixes of this cell that have no entry.
        pub tat_q8: u64,
        /// Entries behind this cell may owe something until then.
        pub tracked_until_q8: u64,
    }
}
