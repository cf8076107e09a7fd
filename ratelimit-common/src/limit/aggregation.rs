//! Prefix aggregation: limits on the prefixes around a source.
//!
//! The owner of a /48 has 65 536 sources and could use each of them once. So wider prefixes have buckets too, each of a multiple
//! m of one source's limits: m x r and m x B. As times these are the same tolerance and a price of 1/m, so one word stands for all
//! limits of a source at once: it is charged for the dearest of them.
//!
//! Prefixes have a prefilter as sources do (see [`super::prefilter`]), with the same reasoning and the same bounds: **a prefix gets at
//! most m x (B + r x W)** and at least what a bucket of m x (B - G) gives, whatever else hits its cell. B is the smallest burst of
//! the source's limits, as a time (three quarters of it for sources that are not proven, so that forged addresses of a prefix cannot
//! use up what its proven sources need), and every packet is charged for its dearest limit, so a mix of limits may get less.

use crate::abi::{
    SourceKey,
    prefix::{PREFIX_LEVEL_CELL_BITS, PREFIX_LEVEL_CELLS},
};

/// The index of a prefix's cell, by the keyed hash of [`super::prefilter::hash`]. `prefix_level` counts the aggregation levels of both families.
#[inline(always)]
pub const fn cell_index(prefix_level: u32, hash: u64) -> u32 {
    prefix_level * PREFIX_LEVEL_CELLS + (hash >> (64 - PREFIX_LEVEL_CELL_BITS)) as u32
}

/// 1/multiple with 32 binary places, rounded up: division is slow in a packet path.
pub const fn reciprocal(multiple: u64) -> u64 {
    (1_u64 << 32).div_ceil(multiple)
}

/// The charge of a prefix for a packet that costs its source `charge_q8`: the charge divided by the multiple, rounded up, in 1/256 ns.
#[inline(always)]
pub const fn share_q8(charge_q8: u64, multiple: u64, reciprocal: u64) -> u64 {
    // The reciprocal is at most 2^32, so this does not overflow, and the result is too large by less than one unit. Larger charges (8 ms) are
    // rare enough to afford a division.
    if charge_q8 < 1 << 31 {
        return (charge_q8 * reciprocal + (1 << 32) - 1) >> 32;
    }
    // The multiple is never zero here; this shows the compiler that the division cannot panic.
    let multiple = if multiple == 0 { 1 } else { multiple };
    charge_q8.div_ceil(multiple)
}

/// The key of a source, masked to a prefix.
#[inline(always)]
pub const fn cut(key: SourceKey, mask_hi: u64, mask_lo: u64) -> SourceKey {
    SourceKey { hi: key.hi & mask_hi, lo: key.lo & mask_lo }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::prefix::AGGREGATION_CELLS;

    #[test]
    fn each_level_has_cells_of_its_own_and_the_hash_chooses_among_them() {
        let cells =
            [(0, 0), (0, u64::MAX), (1, 0), (5, u64::MAX)].map(|(level, hash)| cell_index(level, hash));
        let per_level = PREFIX_LEVEL_CELLS;
        assert_eq!(cells, [0, per_level - 1, per_level, AGGREGATION_CELLS as u32 - 1]);
        assert_eq!((PREFIX_LEVEL_CELLS, AGGREGATION_CELLS), (8_192, 6 * 8_192));
        assert_ne!(cell_index(0, 1 << 63), cell_index(0, 1 << 62));
    }

    #[test]
    fn a_prefix_pays_its_part_rounded_up_whether_it_is_divided_or_multiplied() {
        for multiple in [1, 2, 3, 7, 16, 1_000] {
            for charge in [0, 1, 2, 999, 51_200_000, (1 << 31) - 1, 1 << 31, (1 << 31) + 5, 1 << 55] {
                let exact = u64::div_ceil(charge, multiple);
                let share = share_q8(charge, multiple, reciprocal(multiple));
                assert!(share >= exact && share <= exact + 1, "{charge} / {multiple}: {share}, {exact}");
            }
        }
        assert_eq!(share_q8(1 << 40, 0, 0), 1 << 40);
        assert_eq!([reciprocal(1), reciprocal(2), reciprocal(3)], [1 << 32, 1 << 31, 0x5555_5556]);
    }

    #[test]
    fn a_key_is_cut_in_both_halves() {
        let key = SourceKey { hi: 0b1111, lo: 0b1010 };
        assert_eq!(cut(key, 0b1100, 0b0110), SourceKey { hi: 0b1100, lo: 0b0010 });
    }
}
