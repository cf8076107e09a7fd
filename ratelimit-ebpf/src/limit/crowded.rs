//! Sources that a prefix around them is known to refuse: one that is used up, or one that squeezes them harder than they
//! can bear. Asked before the source is looked up, because a flood from everywhere in a prefix has more sources than any cache holds.
//!
//! Not about who may be proven, for whom prefixes keep something back; not about segments of TCP, which may belong to a connection; not where a total may
//! refuse first; and not where packets differ in what they cost.

use ratelimit_common::{
    abi::{Policy, PrefixLevel, SourceKey, policy::MAX_PREFIX_LEVELS},
    limit::{
        aggregation::{cell_index, cut},
        fair,
        prefilter::{self, REMEMBERED_BIT},
    },
};

use super::{
    aggregation,
    known::{self, Weight},
    leaves::Leaves,
    request::Request,
    sender::Sender,
    squeezed,
};
use crate::{packet::Family, tables::Tables};

/// Whether a packet that is no segment and no fragment is refused for a prefix around its sender, in the limiter.
#[inline(always)]
pub fn is_crowded_out<T: Leaves>(
    tables: &T,
    policy: &Policy,
    sender: &Sender,
    weight: Weight,
    now_q8: u64,
) -> bool {
    // Of sources without an entry it is known by now that no total is used up for them.
    let asked = if prefilter::is_tracked_in(&policy.source.set, sender.tracked_until_q8, now_q8) {
        may_be_asked(policy, weight.service()) && !may_be_proven(tables, sender.hash, now_q8)
    } else {
        policy.aggregation.packet_q8 != 0 && known::host_holds(tables, policy, weight.len())
    };
    asked && tables.crowded_level(policy, sender.key.hi, sender.key.lo, sender.hash, now_q8) != NO_LEVEL
}

/// Whether prefixes may answer before the source of a packet for a service is looked up.
#[inline(always)]
pub fn may_be_asked(policy: &Policy, service: u32) -> bool {
    policy.aggregation.packet_q8 != 0
        && policy.host_total_count == 0
        && policy.service(service).is_none_or(|(_, service)| service.total_count == 0)
}

/// Whether prefixes answer before the source of a request is looked up: then it need not be remembered that they refused it.
#[inline(always)]
pub(super) fn answers_first<T: Tables>(tables: &T, policy: &Policy, request: &Request) -> bool {
    may_be_asked(policy, request.service as u32) && !may_be_proven(tables, request.hash, request.now_q8)
}

/// Whether some source of the cell of this hash may be proven.
#[inline(always)]
pub fn may_be_proven<T: Tables>(tables: &T, hash: u64, now_q8: u64) -> bool {
    let cell = prefilter::cell_index(hash);
    tables.cell_bits(cell) & REMEMBERED_BIT != 0 && fair::may_be_proven(tables.proven_mark(cell), now_q8)
}

/// Remembers that a source of this hash is proven, before there is an entry that says so: what a prefix keeps back for it must not be refused to it.
#[inline(always)]
pub fn remember_proven<T: Tables>(tables: &T, hash: u64, now_q8: u64) {
    let cell = prefilter::cell_index(hash);
    tables.mark_proven(cell, now_q8);
    tables.something_remembered(cell);
}

/// In place of an aggregation level: there is none.
pub const NO_LEVEL: u32 = u32::MAX;

/// The widest level of its family at which the prefix around a source is known to refuse it, unless the source is proven. `hi` and `lo` are the source.
#[inline(always)]
pub fn level<T: Tables>(tables: &T, policy: &Policy, hi: u64, lo: u64, hash: u64, now_q8: u64) -> u32 {
    let key = SourceKey { hi, lo };
    let family = if key.v4().is_some() { Family::V4 } else { Family::V6 } as u32;
    // Without a price, packets cost prefixes nothing, or not alike.
    if policy.aggregation.tolerance_q8 == 0 || policy.aggregation.packet_q8 == 0 {
        return NO_LEVEL;
    }
    // The widest first: it has the fewest prefixes, so this CPU's note of a level is about most packets, and their cells are near.
    for index in (0..MAX_PREFIX_LEVELS).rev() {
        let prefix_level = &policy.aggregation.prefix_levels[family as usize & 1][index];
        if prefix_level.multiple == 0 {
            continue;
        }
        let prefix = prefix_hash(policy, key, prefix_level);
        let cell = cell_index(aggregation::number(family & 1, index), prefix);
        if crowds_out(tables, policy, cell, prefix, hash, now_q8) {
            return index as u32;
        }
    }
    NO_LEVEL
}

/// Whether the prefix of this hash, in this cell, is known to refuse sources of a hash that are not proven.
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

/// Where the prefix of a level around a source belongs.
#[inline(always)]
pub(super) fn prefix_hash(policy: &Policy, key: SourceKey, prefix_level: &PrefixLevel) -> u64 {
    prefilter::hash(cut(key, prefix_level.mask_hi, prefix_level.mask_lo), policy.prefilter.secret)
}
