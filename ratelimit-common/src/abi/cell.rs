//! The prefilter's cells, which sources share until they need an entry of their own.

use crate::abi_struct;

/// Negative entries in one cell: sources of the cell that are over a limit, and until when.
pub const NEGATIVE_ENTRIES: usize = 4;

abi_struct! {
    /// One cell of the prefilter; see `limit::prefilter`. All zero is an unused cell.
    pub struct Cell: 8 {
        /// The bucket that all sources of this cell without an entry share: a time word.
        pub tat_q8: u64,
    }
}
