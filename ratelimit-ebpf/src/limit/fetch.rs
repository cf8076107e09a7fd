//! What the limiter is about to read, asked for in advance.

use ratelimit_common::{abi::Policy, limit::prefilter};

use super::aggregation;
use crate::{packet::Address, tables::Tables};

/// Reads a word of each of the tables that the limiter asks about a source, and forgets what it says. In a flood of many sources none of them is
/// in a cache, and the limiter waits for one after the other: hundreds of instructions lie between them, more than a CPU looks ahead. Asked for
/// at once they come at once.
#[inline(always)]
pub fn fetch_ahead<T: Tables>(tables: &T, policy: &Policy, address: Address, hash: u64) {
    if let Some(cell) = tables.cell(prefilter::cell_index(hash)) {
        let _tat = tables.load(tables.cell_tat(cell));
    }
    aggregation::fetch_ahead(tables, policy, address);
}
