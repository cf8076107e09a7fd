//! Tracked prefixes: they have an entry with a bucket of their own, because their cell could not vouch for them any more.

use crate::abi_struct;

/// The most aggregation levels of one address family.
pub const MAX_PREFIX_LEVELS: usize = 3;
/// Prefixes that can have an entry at once. The kernel evicts the least recently used.
pub const MAX_PREFIXES: usize = 16_384;
/// Cells of one aggregation level, as a power of two.
pub const PREFIX_LEVEL_CELL_BITS: u32 = 13;
/// Cells of one aggregation level.
pub const PREFIX_LEVEL_CELLS: u32 = 1 << PREFIX_LEVEL_CELL_BITS;
/// Cells of all aggregation levels of both families.
pub const AGGREGATION_CELLS: usize = 2 * MAX_PREFIX_LEVELS * PREFIX_LEVEL_CELLS as usize;

abi_struct! {
    /// A prefix of one aggregation level.
    pub struct PrefixKey: 24 {
        /// Bytes 0 to 7 of the prefix, native load.
        pub hi: u64,
        /// Bytes 8 to 15 of the prefix, native load.
        pub lo: u64,
        /// The aggregation level: prefixes of different length can have the same bytes.
        pub prefix_level: u64,
    }
}

abi_struct! {
    /// One cell of an aggregation level; see `limit::prefilter`.
    pub struct PrefixLevelCell: 32 {
        /// The bucket that all prefixes of this cell without an entry share: a time word.
        pub tat_q8: u64,
        /// Until when entries behind this cell may owe something, as a time word.
        pub tracked_until_q8: u64,
        /// A negative entry: a prefix of this cell that is used up, and until when.
        pub negative_entry: u64,
        /// A crowded prefix of this cell, which squeezes its sources: see `limit::squeezed`.
        pub squeezed: u64,
    }
}
