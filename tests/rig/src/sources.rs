//! From the number of a packet to its source address.
//!
//! Not the next address each time: neighbours share cache lines in every table, and no attacker is that kind. The
//! number is mixed by a bijection, so a source is as likely as any other and the order is random, but every
//! contestant sees the same packets.

/// Top three bits of global unicast addresses, 2000::/3.
const GLOBAL_UNICAST: u64 = 0x2000_0000_0000_0000;

/// The IPv4 source of a packet, of `count` sources from `base` on; of all of IPv4 when `count` is 0.
#[inline(always)]
pub fn v4(sequence: u64, base: u32, count: u32) -> u32 {
    let mixed = mix_32(sequence as u32);
    if count == 0 { mixed } else { base.wrapping_add(share(mixed, count)) }
}

/// The upper half of a packet's IPv6 source, its /64: of `count` networks from 2000::/64 on; of all of 2000::/3 when
/// `count` is 0.
#[inline(always)]
pub fn v6(sequence: u64, count: u32) -> u64 {
    if count == 0 {
        return GLOBAL_UNICAST | (mix_64(sequence) >> 3);
    }
    GLOBAL_UNICAST | u64::from(share(mix_32(sequence as u32), count))
}

/// Scales a number down to below `count`, evenly. A remainder would do too, but division is the slowest instruction
/// there is, and its cost would be the rig's and not the limiter's.
#[inline(always)]
fn share(mixed: u32, count: u32) -> u32 {
    ((u64::from(mixed) * u64::from(count)) >> 32) as u32
}

/// The finaliser of MurmurHash3 for 32 bits: a bijection.
#[inline(always)]
fn mix_32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// The finaliser of SplitMix64: a bijection.
#[inline(always)]
fn mix_64(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{collections::HashSet, vec, vec::Vec};

    use super::*;

    const BASE: u32 = 0x0a00_0000;

    #[test]
    fn one_source_is_always_the_same_one() {
        assert!((0..10_000).all(|sequence| v4(sequence, BASE, 1) == BASE));
    }

    #[test]
    fn every_source_of_65_k_occurs_about_equally_often() {
        let (count, each) = (65_536_u32, 64);
        let mut seen = vec![0_u32; count as usize];
        for sequence in 0..u64::from(count) * each {
            seen[(v4(sequence, BASE, count) - BASE) as usize] += 1;
        }
        // 64 on average, a standard deviation of 8 if random: seven of them is where chance ends.
        let (fewest, most) = (*seen.iter().min().unwrap(), *seen.iter().max().unwrap());
        assert!(fewest >= 64 - 56 && most <= 64 + 56, "{fewest}..{most}");
    }

    #[test]
    fn a_count_that_is_no_power_of_two_is_shared_evenly_too() {
        let mut seen = [0_u32; 1_000];
        (0..1_000_000).for_each(|sequence| seen[(v4(sequence, BASE, 1_000) - BASE) as usize] += 1);
        let (fewest, most) = (*seen.iter().min().unwrap(), *seen.iter().max().unwrap());
        assert!(fewest > 800 && most < 1_200, "{fewest}..{most}");
    }

    #[test]
    fn all_of_ipv4_means_that_no_address_comes_twice() {
        let seen: HashSet<u32> = (0..1_000_000).map(|sequence| v4(sequence, BASE, 0)).collect();
        assert_eq!(seen.len(), 1_000_000);
        let upper: HashSet<u32> = seen.iter().map(|address| address >> 24).collect();
        assert_eq!(upper.len(), 256, "from every /8");
    }

    #[test]
    fn random_networks_are_global_and_never_come_twice() {
        let seen: Vec<u64> = (0..100_000).map(|sequence| v6(sequence, 0)).collect();
        assert!(seen.iter().all(|network| network >> 61 == 1));
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
        let counted: HashSet<u64> = (0..100_000).map(|sequence| v6(sequence, 256)).collect();
        assert_eq!(counted.len(), 256);
    }
}
