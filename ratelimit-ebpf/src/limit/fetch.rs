//! Reads in advance what the limiter is about to need.

use ratelimit_common::{abi::Policy, limit::prefilter};

use super::aggregation;
use crate::{packet::Address, tables::Tables};

/// Reads a word of each table that the limiter is about to use for a source, and discards it. In a flood of many sources no such word is
/// in a cache, and the limiter waits for one after the other: hundreds of instructions lie between them, more than a CPU looks ahead. Read
/// at once, they arrive together.
#[inline(always)]
pub fn fetch_ahead<T: Tables>(tables: &T, policy: &Policy, address: Address, hash: u64) {
    if let Some(cell) = tables.cell(prefilter::cell_index(hash)) {
        let _tat = tables.load(tables.cell_tat(cell));
    }
    aggregation::fetch_ahead(tables, policy, address);
}
