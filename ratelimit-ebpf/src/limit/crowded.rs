//! Sources that a prefix around them is known to refuse: a prefix that is used up, or one that squeezes them too hard.
//! Checked before the source is looked up, because a flood from everywhere in a prefix has more sources than any cache holds.
//!
//! This leaves out sources that may be proven, for which prefixes keep a part back; segments of TCP, which may belong to a connection; services where a total may
//! refuse first; and policies where packets differ in their charge.

use ratelimit_common::{
    abi::{Policy, SourceKey, prefix::MAX_PREFIX_LEVELS},
    limit::{aggregation::cell_index, fair, prefilter},
};

use super::{aggregation, squeezed};
use crate::{packet::Family, tables::Tables};

/// Stands for no aggregation level.
pub const NO_LEVEL: u32 = u32::MAX;

/// The widest aggregation level at which the prefix around a source is known to refuse it, unless the source is proven. `hi` and `lo` are the source's key.
#[inline(always)]
pub fn level<T: Tables>(tables: &T, policy: &Policy, hi: u64, lo: u64, hash: u64, now_q8: u64) -> u32 {
    let key = SourceKey { hi, lo };
    let family = if key.v4().is_some() { Family::V4 } else { Family::V6 } as u32;
    // Without a price, packets cost prefixes nothing, or not alike.
    if policy.aggregation.tolerance_q8 == 0 || policy.aggregation.packet_q8 == 0 {
        return NO_LEVEL;
    }
    // The widest level first: it has the fewest prefixes, so this CPU's note of a level applies to most packets, and their cells are in a cache.
    for index in (0..MAX_PREFIX_LEVELS).rev() {
        let prefix_level = &policy.aggregation.prefix_levels[family as usize & 1][index];
        if prefix_level.multiple == 0 {
            continue;
        }
        let prefix = aggregation::prefix_hash(policy, key, prefix_level);
        let cell = cell_index(aggregation::number(family & 1, index), prefix);
        if crowds_out(tables, policy, cell, prefix, hash, now_q8) {
            return index as u32;
        }
    }
    NO_LEVEL
}

/// Whether the prefix of this hash, in this cell, is known to refuse those sources of a hash that are not proven.
#[inline(always)]
pub(super) fn crowds_out<T: Tables>(
    tables: &T,
    policy: &Policy,
    cell: u32,
    prefix: u64,
    hash: u64,
    now_q8: u64,
) -> bool {
    let Some(known) = tables.prefix_level_cell(cell) else { return false };
    let name = prefilter::negative_name(prefix, policy.generation);
    if prefilter::denies(tables.load(tables.prefix_level_negative_entry(known)), name, now_q8) {
        return true;
    }
    let pressure = squeezed::pressure(tables, cell, name, now_q8);
    if pressure == 0 {
        return false;
    }
    let Some(share) = tables.fair_share(prefilter::cell_index(hash)) else { return false };
    fair::take(
        tables.load(share),
        &policy.aggregation.squeeze,
        now_q8,
        policy.aggregation.packet_q8,
        pressure,
    )
    .is_none()
}

/// Whether an IPv4 prefix of the level with this first cell is known to refuse a source of a hash. `prefix` has its bytes as they lie in memory.
#[inline(always)]
pub fn is_crowded_out_at<T: Tables>(
    tables: &T,
    policy: &Policy,
    first_cell: u32,
    prefix: u32,
    hash: u64,
    now_q8: u64,
) -> bool {
    let prefix = prefilter::hash_v4(prefix, policy.prefilter.secret);
    let cell = cell_index(0, prefix).wrapping_add(first_cell);
    crowds_out(tables, policy, cell, prefix, hash, now_q8)
}
