//! The keyed hash of sources, which reveals nothing to anybody without the secret.

use super::negative_entry::UNTIL_SHIFT;
use crate::abi::SourceKey;

/// Makes a secret of two random numbers. Both halves are odd, so that multiplying by them is a permutation.
#[inline]
pub const fn secret([one, other]: [u64; 2]) -> [u64; 2] {
    [one | 1, other | 1]
}

/// The hash of a source, with a [`secret`].
///
/// Nobody without the secret can tell which sources share a cell, and two sources that are found to share one reveal nothing about others, not even about pairs that
/// differ in the same way: the hash is not linear (see `stir`). For IPv4 the upper 32 bits are a permutation of the address, so cell
/// and tag together are an exact name. For IPv6 they are 39 bits of a hash: two sources of one cell have one tag once in 2^23.
#[inline(always)]
pub const fn hash(key: SourceKey, secret: [u64; 2]) -> u64 {
    match key.v4() {
        Some(address) => hash_v4(address, secret),
        None => hash_v6(key, secret),
    }
}

/// The [`hash`] of an IPv4 source, by its address as the bytes lie in memory.
#[inline(always)]
pub const fn hash_v4(address: u32, [one, other]: [u64; 2]) -> u64 {
    (stir_32(address.wrapping_mul(one as u32).wrapping_add((one >> 32) as u32), other as u32) as u64) << 32
}

/// The [`hash`] of an IPv6 source.
#[inline(always)]
pub const fn hash_v6(SourceKey { hi, lo }: SourceKey, [one, other]: [u64; 2]) -> u64 {
    // Two halves with two keys, so that neither swapping the halves nor changing both can cancel out.
    stir(hi.wrapping_mul(one).wrapping_add(other), other)
        .wrapping_add(stir(lo.wrapping_mul(other).wrapping_add(one), one))
}

/// The hash of a source for the limits of a service. It chooses another cell for each service, and for IPv4 its
/// name differs from that of every other source under any of [`NEGATIVE_PERIOD`](super::NEGATIVE_PERIOD) services.
#[inline(always)]
pub const fn group_hash(hash: u64, group: u64, secret: [u64; 2]) -> u64 {
    let [one, other] = secret;
    let moved = ((hash >> 32) as u32).wrapping_add((group as u32).wrapping_mul((other >> 32) as u32 | 1));
    (stir_32(moved, (one >> 32) as u32 | 1) as u64) << 32
        | (hash as u32 ^ (group as u32) << (UNTIL_SHIFT + 1)) as u64
}

/// The IPv4 address of a source, as its bytes lie in memory, by the upper 39 bits of its hash for the limits of a service; `None` if the hash is of no IPv4 source of
/// that service. The other bits are not looked at. Of IPv6 sources, one in 128 looks like an IPv4 source of the service.
#[cfg(not(target_arch = "bpf"))]
pub const fn v4_address(hash: u64, group: u64, [one, other]: [u64; 2]) -> Option<u32> {
    if (hash as u32 ^ (group as u32) << (UNTIL_SHIFT + 1)) >> (UNTIL_SHIFT + 1) != 0 {
        return None;
    }
    let moved = unstirred_32((hash >> 32) as u32, (one >> 32) as u32 | 1);
    let plain = moved.wrapping_sub((group as u32).wrapping_mul((other >> 32) as u32 | 1));
    let product = unstirred_32(plain, other as u32).wrapping_sub((one >> 32) as u32);
    // Newton's method: twice as many bits of the inverse are right after each step.
    let (odd, mut inverse, mut right) = (one as u32, one as u32, 3);
    while right < u32::BITS {
        inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
        right *= 2;
    }
    Some(product.wrapping_mul(inverse))
}

/// The inverse of [`stir_32`]: each bit of a result depends on that bit and those below it.
#[cfg(not(target_arch = "bpf"))]
const fn unstirred_32(result: u32, k: u32) -> u32 {
    let (mut x, mut bit) = (0_u32, 0);
    while bit < u32::BITS {
        let product = x.wrapping_mul((x << 1).wrapping_add(k));
        x |= (product ^ result) & 1 << bit;
        bit += 1;
    }
    x ^ (x >> 16)
}

/// Mixes a word so that every bit affects the upper ones. x(2x + k) with an odd k is a permutation, and its effect on a difference depends
/// on x itself: f(x + d) - f(x) = d(4x + 2d + k). The lower half is folded in before, because bits only move upwards in a product.
#[inline(always)]
const fn stir(x: u64, k: u64) -> u64 {
    let x = x ^ (x >> 32);
    x.wrapping_mul((x << 1).wrapping_add(k))
}

/// Mixes half a word in the way of [`stir`].
#[inline(always)]
const fn stir_32(x: u32, k: u32) -> u32 {
    let x = x ^ (x >> 16);
    x.wrapping_mul((x << 1).wrapping_add(k))
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use super::{
        super::{CELL_BITS, cell_index, split_mix::SplitMix},
        *,
    };

    /// A source at a distance from another one, of either family.
    fn beside(key: SourceKey, hi: u64, lo: u64) -> SourceKey {
        match key.v4() {
            Some(address) => SourceKey::from_v4(address.wrapping_add(lo as u32)),
            None => SourceKey { hi: key.hi.wrapping_add(hi), lo: key.lo.wrapping_add(lo) },
        }
    }

    #[test]
    fn a_word_is_stirred_as_its_formula_says() {
        // x(2x + k), after the upper half of x is folded into the lower one.
        assert_eq!((stir(3, 5), stir_32(3, 5)), (33, 33));
        assert_eq!(stir(3 << 32, 5), (3_u64 << 32 | 3).wrapping_mul((3 << 33 | 6) + 5));
        assert_eq!(stir_32(3 << 16, 5), (3_u32 << 16 | 3).wrapping_mul((3 << 17 | 6) + 5));
    }

    #[test]
    fn the_hash_of_an_ipv4_address_can_be_undone() {
        let mut numbers = SplitMix(1);
        for _ in 0..2_000 {
            let secret = numbers.secret();
            let address = numbers.next() as u32;
            let plain = hash(SourceKey::from_v4(address), secret);
            for group in [0, 1, numbers.next(), u64::from(u32::MAX)] {
                let grouped = group_hash(plain, group, secret);
                // A client is remembered by the upper 39 bits.
                let remembered = grouped >> 25 << 25;
                assert_eq!(v4_address(remembered, group, secret), Some(address));
                assert_eq!(v4_address(remembered, group ^ 1, secret), None, "of another service");
            }
        }
    }

    #[test]
    fn one_ipv6_source_in_128_looks_like_ipv4() {
        let mut numbers = SplitMix(6);
        let secret = numbers.secret();
        let group = numbers.next();
        const SOURCES: usize = 64_000;
        let alike = (0..SOURCES).filter(|_| {
            let key = SourceKey { hi: numbers.next(), lo: 0 };
            v4_address(group_hash(hash(key, secret), group, secret), group, secret).is_some()
        });
        let alike = alike.count();
        assert!((400..600).contains(&alike), "{alike} of {SOURCES}");
    }

    /// Whether two sources share a cell, the first in one group and the second in another.
    fn meet(secret: [u64; 2], (one, group): (SourceKey, u64), (other, another): (SourceKey, u64)) -> bool {
        let cell = |key: SourceKey, group: u64| {
            let hash = hash(key, secret);
            cell_index(if group == 0 { hash } else { group_hash(hash, group, secret) })
        };
        cell(one, group) == cell(other, another)
    }

    #[test]
    fn a_secret_is_odd_in_both_halves_and_random_in_the_rest() {
        assert_eq!(secret([0x10, 0x21]), [0x11, 0x21]);
        assert_eq!(secret([u64::MAX - 1, 0]), [u64::MAX, 1]);
    }

    /// A pair of sources found to share a cell must not reveal others.
    #[test]
    fn two_sources_that_share_a_cell_say_nothing_of_others_that_differ_in_the_same_way() {
        const OTHERS: u64 = 2_000;
        const SECRETS: u64 = 40;
        let mut numbers = SplitMix(2);
        for (what, v4, both, groups) in [
            ("IPv4", true, false, (0, 0)),
            ("IPv4 at two services", true, false, (1, 2)),
            ("IPv6 in the lower half", false, false, (0, 0)),
            ("IPv6 in both halves", false, true, (0, 0)),
            ("IPv6 at two services", false, true, (3, 4)),
        ] {
            let mut again = 0;
            for _ in 0..SECRETS {
                let secret = numbers.secret();
                let source = |n: &mut SplitMix| match v4 {
                    true => SourceKey::from_v4(n.next() as u32),
                    false => SourceKey { hi: n.next(), lo: n.next() },
                };
                let one = source(&mut numbers);
                let pair = |one: SourceKey, (hi, lo): (u64, u64)| {
                    meet(secret, (one, groups.0), (beside(one, hi, lo), groups.1))
                };
                let (hi, lo) = loop {
                    let apart = (if both { numbers.next() } else { 0 }, numbers.next() | 1);
                    if pair(one, apart) {
                        break apart;
                    }
                };
                again += (0..OTHERS).filter(|_| pair(source(&mut numbers), (hi, lo))).count() as u64;
            }
            // By chance, one or two pairs of 80 000 share a cell.
            assert!(again <= 12, "{what}: {again} of {} others", OTHERS * SECRETS);
        }
    }

    #[test]
    fn no_difference_of_two_ipv6_addresses_makes_them_share_a_cell_whatever_the_secret() {
        const SECRETS: u32 = 4_096;
        let mut numbers = SplitMix(3);
        let top = 1_u64 << 63;
        for (hi, lo) in [(top, 0), (0, top), (top, top), (1, 1), (top >> 1, top >> 1), (top + (1 << 31), top)]
        {
            let shared = (0..SECRETS).filter(|_| {
                let secret = numbers.secret();
                let one = SourceKey { hi: numbers.next(), lo: numbers.next() };
                meet(secret, (one, 0), (beside(one, hi, lo), 0))
            });
            assert!(shared.count() <= 4, "{hi:x} and {lo:x}");
        }
    }

    #[test]
    fn every_bit_of_an_address_moves_every_bit_of_the_cell_half_of_the_time() {
        const SAMPLES: u32 = 1_500;
        let mut numbers = SplitMix(4);
        for bit in 0..160_u32 {
            let mut moved = [0_u32; CELL_BITS as usize];
            for _ in 0..SAMPLES {
                let secret = numbers.secret();
                let (one, other) = match bit.checked_sub(128) {
                    Some(bit) => {
                        let address = numbers.next() as u32;
                        (SourceKey::from_v4(address), SourceKey::from_v4(address ^ 1 << bit))
                    }
                    None => {
                        let one = SourceKey { hi: numbers.next(), lo: numbers.next() };
                        let (hi, lo) = if bit < 64 { (1 << bit, 0) } else { (0, 1 << (bit - 64)) };
                        (one, SourceKey { hi: one.hi ^ hi, lo: one.lo ^ lo })
                    }
                };
                let differ = cell_index(hash(one, secret)) ^ cell_index(hash(other, secret));
                for (place, count) in moved.iter_mut().enumerate() {
                    *count += differ >> place & 1;
                }
            }
            let shares: Vec<_> =
                moved.iter().map(|count| format!("{:.2}", f64::from(*count) / f64::from(SAMPLES))).collect();
            // Ten standard deviations on either side.
            let half = SAMPLES / 2;
            assert!(moved.iter().all(|count| count.abs_diff(half) < SAMPLES / 7), "bit {bit}: {shares:?}");
        }
    }

    #[test]
    fn a_source_has_another_name_under_every_service_and_no_other_source_has_it_under_another() {
        use super::super::NEGATIVE_PERIOD;
        let secret = SplitMix(5).secret();
        // The bits that cell and tag are made of.
        let name = |hash, group| group_hash(hash, group, secret) >> (UNTIL_SHIFT + 1);
        let step = u64::from((secret[1] >> 32) as u32 | 1) << 32;
        for hash in [0, 7 << 32, u64::from(u32::MAX) << 32, 0x0123_4567 << 32 | 1 << 31 | 1 << 26] {
            for group in 1..NEGATIVE_PERIOD {
                // The source that gets the same place under the service before.
                let neighbour = hash.wrapping_add(step);
                assert_ne!(name(hash, group), name(neighbour, group - 1), "{group}");
                for bit in UNTIL_SHIFT + 1..32 {
                    assert_ne!(name(hash, group), name(hash ^ 1 << bit, group), "{group}, bit {bit}");
                }
            }
        }
    }
}
