//! Prefix aggregation in the form that the kernel program reads.

use ratelimit_common::{
    abi::{
        self, Limit, LimitSet, MAX_LIMITS, Meter, SourceKey, Squeeze, limit::NO_METER,
        prefix::MAX_PREFIX_LEVELS,
    },
    limit::{aggregation, fair::RANGE_SHARE, gcra, prefilter::CELL_SHARE},
};

use super::set;
use crate::policy::{AggregationFamily, AggregationLevel, AggregationPolicy};

/// Compiles prefix aggregation. A prefix has the tolerance of its sources: m times the burst is used up m times as fast.
pub(super) fn compile(policy: &AggregationPolicy, source: &LimitSet) -> abi::Aggregation {
    let limits = source.limits.iter().filter(|limit| limit.meter != NO_METER);
    let every = |limit: &&Limit| [Meter::Packets as u32, Meter::Bytes as u32].contains(&limit.meter);
    let dearest_q8 = limits.clone().filter(every).map(set::full_frame_charge).max().unwrap_or(0);
    let room_q8 = (0..MAX_LIMITS).map(|place| gcra::room_q8(source, place)).max().unwrap_or(0);
    let tolerance_q8 = limits.map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    let mut prefix_levels = [[abi::PrefixLevel::UNUSED; MAX_PREFIX_LEVELS]; 2];
    for (slot, prefix_level) in prefix_levels[0].iter_mut().zip(policy.prefix_levels(AggregationFamily::V4)) {
        *slot = compile_prefix_level(prefix_level, v4_mask(prefix_level.bits));
    }
    for (slot, prefix_level) in prefix_levels[1].iter_mut().zip(policy.prefix_levels(AggregationFamily::V6)) {
        *slot = compile_prefix_level(prefix_level, v6_mask(prefix_level.bits));
    }
    let off = prefix_levels.iter().flatten().all(|prefix_level| prefix_level.multiple == 0);
    abi::Aggregation {
        tolerance_q8: if off { 0 } else { tolerance_q8 },
        unproven_tolerance_q8: tolerance_q8 - tolerance_q8 / RANGE_SHARE,
        // A prefix is charged for the dearest limit, so every limit must be charged by addition.
        adds: if set::all_add(source) { room_q8 } else { 0 },
        cell_tolerance_q8: tolerance_q8 / CELL_SHARE,
        packet_q8: 0,
        squeeze: Squeeze::of(tolerance_q8, dearest_q8),
        prefix_levels,
    }
}

fn compile_prefix_level(prefix_level: &AggregationLevel, mask: SourceKey) -> abi::PrefixLevel {
    let reciprocal = aggregation::reciprocal(prefix_level.multiple);
    abi::PrefixLevel {
        mask_hi: mask.hi,
        mask_lo: mask.lo,
        multiple: prefix_level.multiple,
        reciprocal,
        packet_q8: 0,
    }
}

pub(super) fn v4_mask(bits: u8) -> SourceKey {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0).to_be_bytes();
    SourceKey::from_v4(u32::from_ne_bytes(mask))
}

pub(super) fn v6_mask(bits: u8) -> SourceKey {
    SourceKey::from_octets(u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0).to_be_bytes())
}
