//! Policies as numbers, from rates in words. Nothing is taken out of bursts, so limits hold exactly as a test writes them.

use std::{boxed::Box, vec::Vec};

use ratelimit_common::{
    abi::{
        Aggregation, Limit, LimitSet, Meter, Policy, Prefilter, PrefixLevel, SourceLimits, Squeeze, Total,
        WindowLimit,
        limit::{COUNTS_BYTES, COUNTS_PACKETS},
        service::KNOWN_PARTS,
        window::WindowKind,
    },
    limit::{aggregation::reciprocal, text::parse_rate},
};

use super::std;

/// A policy without limits, with budgets that are never used up.
pub(crate) fn empty() -> Box<Policy> {
    let plenty = limit("1000000 packets/s burst 1000000");
    Box::new(Policy {
        generation: 1,
        source: SourceLimits { v6_mask_hi: u64::MAX, v6_mask_lo: 0, v4_mask: u64::MAX, set: LimitSet::NONE },
        prefilter: Prefilter {
            secret: [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03],
            new_sources: plenty,
            proofs: plenty,
            rejections: plenty,
            reports: plenty,
        },
        tables: 1,
        window_scale: 7,
        ..Policy::EMPTY
    })
}

/// A limit of a rate.
pub(crate) fn limit(rate: &str) -> Limit {
    parse_rate(rate).unwrap().limit().unwrap()
}

/// A set of limits without a prefilter.
pub(crate) fn set(rates: &[&str]) -> LimitSet {
    let mut set = LimitSet { limit_count: rates.len() as u64, ..LimitSet::NONE };
    let limits: Vec<Limit> = rates.iter().map(|rate| limit(rate)).collect();
    for (place, limit) in set.limits.iter_mut().zip(limits) {
        let counts_bytes = limit.meter == Meter::Bytes as u32;
        *place = limit;
        place.frac_bits |= if counts_bytes { COUNTS_BYTES } else { 0 };
        if counts_bytes || limit.meter == Meter::Packets as u32 {
            set.adds |= COUNTS_PACKETS;
        }
        set.longest_tolerance_q8 = set.longest_tolerance_q8.max(limit.tolerance_q8);
    }
    set
}

/// A set of limits with a prefilter whose cells give out an eighth.
pub(crate) fn prefiltered(rates: &[&str]) -> LimitSet {
    let set = set(rates);
    LimitSet { prefilter_tolerance_q8: set.longest_tolerance_q8 / 8, ..set }
}

/// A total of which untracked sources may use three quarters, charged packet by packet.
pub(crate) fn total(rate: &str) -> Total {
    let limit = limit(rate);
    let untracked_tolerance_q8 = limit.tolerance_q8 / 4 * 3;
    Total { limit, untracked_tolerance_q8, portion_q8: 0, known_parts: KNOWN_PARTS }
}

/// A window of a rate.
pub(crate) fn window(rate: &str, kind: WindowKind) -> WindowLimit {
    let rate = parse_rate(rate).unwrap();
    WindowLimit {
        window: rate.window(0).unwrap(),
        name: 1 << 32,
        meter: rate.meter as u16,
        kind: kind as u16,
        soft: 0,
    }
}

/// Prefix aggregation with one IPv4 level, whose prefixes may send `multiple` times what the limits give a source.
pub(crate) fn aggregated(set: &LimitSet, prefix: u32, multiple: u64) -> Aggregation {
    let tolerance_q8 = set.longest_tolerance_q8;
    let mut aggregation = Aggregation {
        tolerance_q8,
        unproven_tolerance_q8: tolerance_q8 / 4 * 3,
        adds: 0,
        cell_tolerance_q8: tolerance_q8 / 8,
        packet_q8: 0,
        squeeze: Squeeze::NONE,
        prefix_levels: Aggregation::OFF.prefix_levels,
    };
    let mask = (u32::MAX << (32 - prefix)).to_be_bytes();
    let mask = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, mask[0], mask[1], mask[2], mask[3]]);
    aggregation.prefix_levels[0][0] = PrefixLevel {
        mask_hi: u64::MAX,
        mask_lo: mask,
        multiple,
        reciprocal: reciprocal(multiple),
        packet_q8: 0,
    };
    aggregation
}
