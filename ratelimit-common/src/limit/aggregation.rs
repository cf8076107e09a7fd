//! Prefixes around a source: what a whole neighbourhood may send.
//!
//! Who owns a /48 has 65 536 sources and could use each of them once. So wider prefixes have buckets too, each of a multiple
//! m of one source's limits: m x r and m x B. As time that is the same tolerance and a price of 1/m, so one word answers for all
//! limits of a source at once: it is charged for the dearest of them.
//!
//! Prefixes come through a prefilter as sources do (see [`super::prefilter`]), with the same reasoning and the same bounds: **a prefix gets at
//! most m x (B + r x W)** and at least what a bucket of m x (B - G) gives, whatever else hits its cell. B is the smallest burst of
//! the source's limits, as time (three quarters of it for sources without state, so that whoever forges addresses of a prefix cannot
//! use up what those in it need who are known), and every packet pays for the limit that it is dearest under, so a mix of limits may get less.

use crate::abi::{
    SourceKey,
    prefix::{PREFIX_LEVEL_CELL_BITS, PREFIX_LEVEL_CELLS},
};

/// The cell of a prefix, by the keyed hash of [`super::prefilter::hash`]. `prefix_level` counts over both families.
#[inline(always)]
pub const fn cell_index(prefix_level: u32, hash: u64) -> u32 {
    prefix_level * PREFIX_LEVEL_CELLS + (hash >> (64 - PREFIX_LEVEL_CELL_BITS)) as u32
}

/// 1/multiple with 32 binary places, rounded up: division is slow in a packet path.
pub const fn reciprocal(multiple: u64) -> u64 {
    (1_u64 << 32).div_ceil(multiple)
}

/// What a prefix pays for a packet that costs its source so much, rounded up.
#[inline(always)]
pub const fn share_q8(charge_q8: u64, multiple: u64, reciprocal: u64) -> u64 {
    // The reciprocal is at most 2^32, so this does not overflow, and it is too much by less than one unit. Dearer packets (8 ms) are
    // rare: then there is time to divide.
    if charge_q8 < 1 << 31 {
        return (charge_q8 * reciprocal + (1 << 32) - 1) >> 32;
    }
    // Not zero where it is used; this shows the compiler that there is nothing to panic about.
    let multiple = if multiple == 0 { 1 } else { multiple };
    charge_q8.div_ceil(multiple)
}

/// A source's key, cut to a prefix.
#[inline(always)]
pub const fn cut(key: SourceKey, mask_hi: u64, mask_lo: u64) -> SourceKey {
    SourceKey { hi: key.hi & mask_hi, lo: key.lo & mask_lo }
}
