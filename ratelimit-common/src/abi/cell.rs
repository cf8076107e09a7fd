//! The prefilter: cells that sources share until they need an entry of their own.

use crate::abi_struct;

/// Negative entries that a cell remembers: sources of the cell that are over a limit, and until when.
pub const NEGATIVE_ENTRIES: usize = 4;

abi_struct! {
    /// One cell. See `limit::prefilter` for what its words mean; all zero is a fresh one.
    pub struct Cell: 8 {
        /// Bucket of all sources of this cell that have no entry.
        pub tat_q8: u64,
    }
}
