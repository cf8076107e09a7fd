//! The prefilter in front of the table of sources: most sources never need an entry in it.
//!
//! An LRU insert per packet is what a spoofed flood wants: it costs ten times a dropped packet and evicts everybody's
//! state. So sources share small cells by a keyed hash, and only a source that its cell cannot vouch for gets an entry.
//!
//! ```text
//!                     cell not tracked                        cell tracked, source has an entry
//!   packet ---> cell (rate r, burst G) ----> pass         packet ---> entry (rate r, burst B) decides alone
//!                     |  not conforming
//!                     v
//!               promote: entry starts with G spent; the cell is tracked from now on
//! ```
//!
//! - A cell is *tracked* while an entry behind it may still owe something. It knows until when: an entry that admits
//!   a packet is full again at most one tolerance later, and the cell is marked until after that.
//! - An entry that is full again *restarts* with G spent, because its source may have been served by the cell meanwhile.
//!
//! # Bound
//! Take a source's debt D in an ideal bucket (r, B). While the cell serves it, D is at most the cell's debt, at most G. When it
//! moves to an entry, the entry starts at G or more. When it moves back, the cell is no longer tracked, so the entry and with
//! it D is 0. So D never exceeds B: **any interval W admits at most B + r x W**. And since an entry never owes more than G
//! beyond an ideal bucket of burst B - G, whoever keeps to that is never refused, whatever else hits the cell: **at least
//! (B - G) + r x W**. The one way to a fresh burst is to be evicted from the table.
//!
//! # Negative cache
//! A cell also remembers the last sources that its entries refused, and until when they must be refused: a bucket only
//! fills with time, so until then the answer is known without looking at the entry. That is what most packets of a flood meet. None lives longer
//! than [`LONGEST_NEGATIVE_ENTRY_Q8`]: then the entry is asked again.

use super::gcra::{TIME_FRAC_BITS, ahead_q8};
use crate::abi::{LimitSet, SourceKey, cell::NEGATIVE_ENTRIES};

/// Cells of the prefilter, as a power of two: small enough for a core's second-level cache.
pub const CELL_BITS: u32 = 16;
/// Cells of the prefilter.
pub const CELLS: u32 = 1 << CELL_BITS;
/// Words with the bits of all cells.
pub const CELL_BIT_WORDS: usize = CELLS as usize / CELLS_IN_WORD as usize;
/// Cells whose bits are in one word.
pub const CELLS_IN_WORD: u32 = u64::BITS / 2;
/// The bit of a cell that may be tracked: without it, no source of the cell has an entry that owes something.
pub const TRACKED_BIT: u64 = 1;
/// The bit of a cell of whose sources something may be remembered: without it, no source of the cell is proven, and none has a negative entry that has been
/// there for longer than a moment.
pub const REMEMBERED_BIT: u64 = 2;

/// Part of the burst that a cell gives out: an eighth.
pub const CELL_SHARE: u64 = 8;

/// Bits of a time word that a negative entry does without: its unit is 2^16 ns.
pub(super) const UNTIL_SHIFT: u32 = 24;
/// Bits of a negative entry that say until when. They wrap after a year, and no negative entry lives for a second.
const UNTIL_BITS: u32 = 39;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
/// The bits of a negative entry that say what refused: a [`NegativeCause`].
const CAUSE_BITS: u32 = 2;
pub(super) const TAG_MASK: u64 = !((1 << (UNTIL_BITS + CAUSE_BITS)) - 1);
const _: () =
    assert!(UNTIL_BITS + CAUSE_BITS == UNTIL_SHIFT + 17, "a tag has the bits that `negative_name` counts on");
const _: () = assert!(UNTIL_SHIFT > TIME_FRAC_BITS, "negative entries are coarser than time words");

/// Policies whose negative entries cannot be mistaken for each other: bits of a tag beyond the 32 that name an IPv4 address.
pub const NEGATIVE_PERIOD: u64 = 1 << (32 - (UNTIL_SHIFT + 1));
/// How long a negative entry lives: 268 ms. Who is refused for longer is looked up again once in that time, which also shows the table that it is not
/// idle.
pub const LONGEST_NEGATIVE_ENTRY_Q8: u64 = 1 << 36;
const _: () =
    assert!(LONGEST_NEGATIVE_ENTRY_Q8 & ((1 << UNTIL_SHIFT) - 1) == 0, "whole steps of a negative entry");

/// What refuses a source that a negative entry denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum NegativeCause {
    /// A limit that does not count bytes.
    Packets = 0,
    /// A limit in bytes.
    Bytes = 1,
    /// The block list. The limiter asks the list itself; such an entry is for the express lane.
    Blocked = 2,
    /// Something that the source shares with others, a total or a prefix, while it keeps to its own limits. For the express lane too, which asks
    /// whether that is still used up.
    Shared = 3,
}

/// A secret out of random numbers. Both halves are odd, which is what makes a permutation of a product.
#[inline]
pub const fn secret([one, other]: [u64; 2]) -> [u64; 2] {
    [one | 1, other | 1]
}

/// Where a source belongs, by a [`secret`].
///
/// Nobody without the secret can tell who shares a cell, and two who are found to share one say nothing of any others, not even of those that
/// differ in the same way: the hash is not linear (see [`stir`]). For IPv4 the upper 32 bits are a permutation of the address, so cell
/// and tag together are an exact name. For IPv6 they are 39 bits of a hash: two sources of one cell have the same tag once in 2^23.
#[inline(always)]
pub const fn hash(key: SourceKey, secret: [u64; 2]) -> u64 {
    match key.v4() {
        Some(address) => hash_v4(address, secret),
        None => hash_v6(key, secret),
    }
}

/// The [`hash`] of an IPv4 source, by its address as it lies in memory.
#[inline(always)]
pub const fn hash_v4(address: u32, [one, other]: [u64; 2]) -> u64 {
    (stir_32(address.wrapping_mul(one as u32).wrapping_add((one >> 32) as u32), other as u32) as u64) << 32
}

/// The [`hash`] of an IPv6 source.
#[inline(always)]
pub const fn hash_v6(SourceKey { hi, lo }: SourceKey, [one, other]: [u64; 2]) -> u64 {
    // Two halves with two keys, so that neither order nor a change of both can cancel.
    stir(hi.wrapping_mul(one).wrapping_add(other), other)
        .wrapping_add(stir(lo.wrapping_mul(other).wrapping_add(one), one))
}

/// Where a source belongs that asks for what a service gives it. The same source under other services is somewhere else, and for IPv4 its
/// name is no other source's under any of [`NEGATIVE_PERIOD`] services.
#[inline(always)]
pub const fn group_hash(hash: u64, group: u64, secret: [u64; 2]) -> u64 {
    let [one, other] = secret;
    let moved = ((hash >> 32) as u32).wrapping_add((group as u32).wrapping_mul((other >> 32) as u32 | 1));
    (stir_32(moved, (one >> 32) as u32 | 1) as u64) << 32
        | (hash as u32 ^ (group as u32) << (UNTIL_SHIFT + 1)) as u64
}

/// Stirs a word so that every bit has a say in the upper ones. x(2x + k) with an odd k is a permutation, and what it makes of a difference depends
/// on x itself: f(x + d) - f(x) = d(4x + 2d + k). The lower half is folded in before, because bits only move upwards in a product.
#[inline(always)]
const fn stir(x: u64, k: u64) -> u64 {
    let x = x ^ (x >> 32);
    x.wrapping_mul((x << 1).wrapping_add(k))
}

/// Stirs half a word in the way of [`stir`].
#[inline(always)]
const fn stir_32(x: u32, k: u32) -> u32 {
    let x = x ^ (x >> 16);
    x.wrapping_mul((x << 1).wrapping_add(k))
}

/// The cell of a source.
#[inline(always)]
pub const fn cell_index(hash: u64) -> u32 {
    (hash >> (64 - CELL_BITS)) as u32
}

/// A source as negative entries know it. A negative entry holds under the limits that made it, so the policy is part of the name: in the lower bits of the
/// tag, above those that a negative entry has no room for.
///
/// There is room for [`NEGATIVE_PERIOD`] policies beside an IPv4 address. After so many changes, the names of one source are those of
/// others of before; but the daemon lets at least [`LONGEST_NEGATIVE_ENTRY_Q8`] pass from the first of them to the last: 2.1 ms for each, which is
/// about what the kernel takes to wait for the packets that are under way. So no IPv4 source is ever denied for what another did under an earlier policy.
#[inline(always)]
pub const fn negative_name(hash: u64, generation: u64) -> u64 {
    hash ^ (generation << (UNTIL_SHIFT + 1 + CELL_BITS) >> CELL_BITS)
}

/// What tells sources of one cell apart: the bits below the index, in the place where a negative entry has them.
#[inline(always)]
pub(super) const fn tag(hash: u64) -> u64 {
    (hash << CELL_BITS) & TAG_MASK
}

/// The tag of a source under a policy: that of its [`negative_name`].
#[inline(always)]
pub const fn tag_under(hash: u64, generation: u64) -> u64 {
    tag(hash) ^ generation << (UNTIL_SHIFT + 1 + CELL_BITS)
}

/// The first moment that is not over, in the steps of a negative entry.
#[inline(always)]
pub const fn next_step(now_q8: u64) -> u64 {
    (now_q8 >> UNTIL_SHIFT & UNTIL_MASK) + 1
}

/// What refuses a source of this tag, if this word denies it at the moment before this [`next_step`]. For one look at one word: a packet of a
/// flood pays for a subtraction and a comparison. Where the time of a negative entry wraps around, for a quarter of a second in a year, it may
/// miss an entry or take its cause for another.
#[inline(always)]
pub const fn cause_now(word: u64, tag: u64, next_step: u64) -> Option<NegativeCause> {
    // Whoever else the word denies, the bits of the tag are left, and the first cause is none at all.
    let untagged = word ^ tag;
    if untagged.wrapping_sub(next_step) < TWICE_THE_LONGEST_STEPS {
        return Some(NegativeCause::Packets);
    }
    if (untagged & UNTIL_MASK).wrapping_sub(next_step) >= TWICE_THE_LONGEST_STEPS {
        return None;
    }
    match untagged >> UNTIL_BITS {
        1 => Some(NegativeCause::Bytes),
        2 => Some(NegativeCause::Blocked),
        3 => Some(NegativeCause::Shared),
        _ => None,
    }
}

/// The place, among the negative entries of all cells, that a source looks at first: by the bits of its tag that most others have a say in.
#[inline(always)]
pub const fn negative_place(hash: u64) -> u32 {
    (hash >> (64 - NEGATIVE_PLACE_BITS)) as u32
}

/// The place that is so many steps behind another, among those of its cell.
#[inline(always)]
pub const fn negative_place_behind(place: u32, steps: u32) -> u32 {
    const IN_CELL: u32 = NEGATIVE_ENTRIES as u32 - 1;
    place & !IN_CELL | place.wrapping_add(steps) & IN_CELL
}

const NEGATIVE_PLACE_BITS: u32 = CELL_BITS + NEGATIVE_ENTRIES.ilog2();
/// Negative entries of all cells.
pub const NEGATIVE_PLACES: usize = 1 << NEGATIVE_PLACE_BITS;

/// The word that denies a source from now until a moment, rounded down to 65 us, or for as long as a negative entry lives.
#[inline(always)]
pub const fn negative_entry(hash: u64, now_q8: u64, until_q8: u64, cause: NegativeCause) -> u64 {
    let ahead = ahead_q8(until_q8, now_q8);
    let ahead = if ahead < LONGEST_NEGATIVE_ENTRY_Q8 { ahead } else { LONGEST_NEGATIVE_ENTRY_Q8 };
    tag(hash) | (cause as u64) << UNTIL_BITS | (now_q8.wrapping_add(ahead) >> UNTIL_SHIFT & UNTIL_MASK)
}

/// Until when a refusal is remembered, by a clock that stands still for longer than a step: to the end of this step at least. One that holds for less
/// would not be remembered at all, and whatever comes before the clock moves would be looked up.
#[inline(always)]
pub const fn through_this_step(now_q8: u64, until_q8: u64) -> u64 {
    const STEP_Q8: u64 = 1 << UNTIL_SHIFT;
    let ahead = ahead_q8(until_q8, now_q8);
    if ahead != 0 && ahead < STEP_Q8 { now_q8.wrapping_add(STEP_Q8) } else { until_q8 }
}

/// What refuses a source that a word denies.
#[inline(always)]
pub const fn denied_by(word: u64) -> NegativeCause {
    match word >> UNTIL_BITS & ((1 << CAUSE_BITS) - 1) {
        0 => NegativeCause::Packets,
        1 => NegativeCause::Bytes,
        2 => NegativeCause::Blocked,
        _ => NegativeCause::Shared,
    }
}

/// For how long a word denies from now on, as time, if it denies at all.
#[inline(always)]
pub const fn denied_for_q8(word: u64, now_q8: u64) -> u64 {
    // The upper bit of a time is none of a negative entry's: moved out on both sides.
    let until = word << (UNTIL_SHIFT + 1);
    until.wrapping_sub((now_q8 >> UNTIL_SHIFT) << (UNTIL_SHIFT + 1)) >> 1
}

/// Whether a word denies its source now, whoever that is.
#[inline(always)]
pub const fn is_live(word: u64, now_q8: u64) -> bool {
    // Further ahead than any negative entry lives is the past, once round the circle. Twice as far, because clocks differ by a tick or two.
    matches!(denied_for_q8(word, now_q8), 1..=TWICE_THE_LONGEST_Q8)
}

const TWICE_THE_LONGEST_Q8: u64 = 2 * LONGEST_NEGATIVE_ENTRY_Q8;
const TWICE_THE_LONGEST_STEPS: u64 = TWICE_THE_LONGEST_Q8 >> UNTIL_SHIFT;

/// Whether a word denies this source now.
#[inline(always)]
pub const fn denies(word: u64, hash: u64, now_q8: u64) -> bool {
    tag(hash) == word & TAG_MASK && is_live(word, now_q8)
}

/// Whether a word denies another source than this now, so that a negative entry of this one had better go elsewhere.
#[inline(always)]
pub const fn denies_other(word: u64, hash: u64, now_q8: u64) -> bool {
    tag(hash) != word & TAG_MASK && is_live(word, now_q8)
}

/// Until when a cell is tracked, as its mark has it: the upper half of a time word, in steps of 17 ms.
///
/// Marks lie apart from the cells, so that the packets of a spoofed flood, which need to know nothing else of a cell, touch an eighth of
/// the memory.
#[inline(always)]
pub const fn marked_until_q8(mark: u32) -> u64 {
    (mark as u64) << 32
}

/// The first mark that is not before a moment.
#[inline(always)]
pub const fn mark(until_q8: u64) -> u32 {
    ((until_q8 >> 32) as u32).wrapping_add(1)
}

/// Whether an entry behind a cell may still owe something.
#[inline(always)]
pub const fn is_tracked(tracked_until_q8: u64, now_q8: u64) -> bool {
    ahead_q8(tracked_until_q8, now_q8) != 0
}

/// Whether an entry behind a cell of a set may still owe something: one that the cell knows of, or one from before there was a prefilter.
#[inline(always)]
pub const fn is_tracked_in(set: &LimitSet, tracked_until_q8: u64, now_q8: u64) -> bool {
    is_tracked(tracked_until_q8, now_q8)
        || (set.tracked_until_q8 != 0 && is_tracked(set.tracked_until_q8, now_q8))
}

/// Until when a cell must be tracked if one of its entries admits a packet now: `None` if it is already.
///
/// Half a tolerance is added, so that a busy cell is written about twice per tolerance and not for every packet.
#[inline(always)]
pub const fn track(tracked_until_q8: u64, now_q8: u64, longest_tolerance_q8: u64) -> Option<u64> {
    if ahead_q8(tracked_until_q8, now_q8) >= longest_tolerance_q8 {
        return None;
    }
    Some(now_q8.wrapping_add(longest_tolerance_q8).wrapping_add(longest_tolerance_q8 / 2).wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use std::{format, vec::Vec};

    use super::*;

    /// Numbers that look random (splitmix64), the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        fn secret(&mut self) -> [u64; 2] {
            secret([self.next(), self.next()])
        }
    }

    /// A source so far from another one, of either family.
    fn beside(key: SourceKey, hi: u64, lo: u64) -> SourceKey {
        match key.v4() {
            Some(address) => SourceKey::from_v4(address.wrapping_add(lo as u32)),
            None => SourceKey { hi: key.hi.wrapping_add(hi), lo: key.lo.wrapping_add(lo) },
        }
    }

    #[test]
    fn a_word_is_stirred_as_its_formula_says() {
        // x(2x + k), the upper half of x folded into the lower one first.
        assert_eq!((stir(3, 5), stir_32(3, 5)), (33, 33));
        assert_eq!(stir(3 << 32, 5), (3_u64 << 32 | 3).wrapping_mul((3 << 33 | 6) + 5));
        assert_eq!(stir_32(3 << 16, 5), (3_u32 << 16 | 3).wrapping_mul((3 << 17 | 6) + 5));
    }

    /// What undoes [`stir_32`]: each bit of a result depends on that bit and those below it.
    fn unstirred_32(result: u32, k: u32) -> u32 {
        let product = |x: u32| x.wrapping_mul((x << 1).wrapping_add(k));
        let x = (0..32).fold(0_u32, |x, bit| x | ((product(x) ^ result) >> bit & 1) << bit);
        x ^ (x >> 16)
    }

    #[test]
    fn the_hash_of_an_ipv4_address_can_be_undone_so_no_two_have_the_same() {
        let mut numbers = Numbers(1);
        for _ in 0..2_000 {
            let secret @ [one, other] = numbers.secret();
            let address = numbers.next() as u32;
            let odd = one as u32;
            // Newton: twice as many bits are right after each step.
            let inverse = (0..5).fold(odd, |i, _| i.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(i))));
            let plain = hash(SourceKey::from_v4(address), secret);
            let undone = unstirred_32((plain >> 32) as u32, other as u32);
            assert_eq!(undone.wrapping_sub((one >> 32) as u32).wrapping_mul(inverse), address);
            // And what a service makes of it.
            let group = numbers.next() % 257;
            let grouped = group_hash(plain, group, secret);
            let undone = unstirred_32((grouped >> 32) as u32, (one >> 32) as u32 | 1);
            let moved = (group as u32).wrapping_mul((other >> 32) as u32 | 1);
            assert_eq!(undone.wrapping_sub(moved), (plain >> 32) as u32);
        }
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

    /// Who finds one pair that shares a cell must not know others.
    #[test]
    fn two_sources_that_share_a_cell_say_nothing_of_others_that_differ_in_the_same_way() {
        const OTHERS: u64 = 2_000;
        const SECRETS: u64 = 40;
        let mut numbers = Numbers(2);
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
                let source = |n: &mut Numbers| match v4 {
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
            // One or two of 80 000 by chance.
            assert!(again <= 12, "{what}: {again} of {} others", OTHERS * SECRETS);
        }
    }

    #[test]
    fn no_difference_of_two_ipv6_addresses_makes_them_share_a_cell_whatever_the_secret() {
        const SECRETS: u32 = 4_096;
        let mut numbers = Numbers(3);
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
        let mut numbers = Numbers(4);
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
            // Ten standard deviations either side.
            let half = SAMPLES / 2;
            assert!(moved.iter().all(|count| count.abs_diff(half) < SAMPLES / 7), "bit {bit}: {shares:?}");
        }
    }

    const NOW_Q8: u64 = 1 << 40;
    const DAY_Q8: u64 = 86_400_000_000_000 << TIME_FRAC_BITS;

    #[test]
    fn a_negative_entry_of_one_policy_is_none_under_any_of_the_next_thousand() {
        for hash in [0, 0x0123_4567_89ab_cdef, u64::MAX] {
            for generation in 1..50 {
                let name = negative_name(hash, generation);
                let negative_entry = negative_entry(name, NOW_Q8, NOW_Q8 + DAY_Q8, NegativeCause::Packets);
                assert!(denies(negative_entry, name, NOW_Q8));
                for later in generation + 1..generation + 1000 {
                    assert!(
                        !denies(negative_entry, negative_name(hash, later), NOW_Q8),
                        "{generation} and {later}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_negative_entry_is_no_other_ipv4_sources_under_any_later_policy() {
        let mut numbers = Numbers(5);
        let secret = numbers.secret();
        let denied = hash(SourceKey::from_v4(numbers.next() as u32), secret);
        for generation in [1, 100, 127, 128, 5_000] {
            let negative_entry = negative_entry(
                negative_name(denied, generation),
                NOW_Q8,
                NOW_Q8 + DAY_Q8,
                NegativeCause::Packets,
            );
            for later in generation..generation + 1_000 {
                // A change takes longer than this.
                let now_q8 =
                    NOW_Q8 + (later - generation) * (LONGEST_NEGATIVE_ENTRY_Q8 / NEGATIVE_PERIOD + 1);
                // Whose tag differs in what the number of the policy does: some source's is just that.
                let overlap = negative_name(0, generation) ^ negative_name(0, later);
                for other in [overlap >> 32 << 32, 1 << 32, 1 << 47, numbers.next() >> 16 >> 32 << 32] {
                    let name = negative_name(denied ^ other, later);
                    assert!(
                        other == 0 || !denies(negative_entry, name, now_q8),
                        "{generation} and {later}: {other:x}"
                    );
                }
            }
        }
    }

    /// What one look says is what all questions say together.
    #[test]
    fn a_first_look_at_a_negative_entry_says_whom_it_denies_until_when_and_why() {
        const CAUSES: [NegativeCause; 4] =
            [NegativeCause::Packets, NegativeCause::Bytes, NegativeCause::Blocked, NegativeCause::Shared];
        let mut numbers = Numbers(9);
        let mut denied = 0;
        for _ in 0..20_000 {
            let key = match numbers.next() % 2 {
                0 => SourceKey::from_v4(numbers.next() as u32),
                _ => SourceKey { hi: numbers.next(), lo: numbers.next() },
            };
            let (hash, generation) = (hash(key, numbers.secret()), numbers.next() >> 30);
            let name = negative_name(hash, generation);
            let tag = tag_under(hash, generation);
            assert_eq!(negative_place(hash) / NEGATIVE_ENTRIES as u32, cell_index(hash));
            // Below a year, for the sake of what a first look does not ask.
            let now_q8 = numbers.next() >> 2;
            let cause = CAUSES[(numbers.next() % 4) as usize];
            let for_q8 = numbers.next() % (2 * LONGEST_NEGATIVE_ENTRY_Q8);
            let other = name ^ (numbers.next() % 2) << (25 + numbers.next() % 23);
            let word = negative_entry(other, now_q8, now_q8 + for_q8, cause);
            let later_q8 = now_q8.wrapping_add(numbers.next() % (2 * LONGEST_NEGATIVE_ENTRY_Q8));
            for at_q8 in [now_q8, later_q8, now_q8.wrapping_sub(1 << UNTIL_SHIFT)] {
                let expected = denies(word, name, at_q8).then(|| denied_by(word));
                assert_eq!(cause_now(word, tag, next_step(at_q8)), expected, "{word:x} {tag:x} {at_q8:x}");
                denied += u32::from(expected.is_some());
            }
        }
        assert!(denied > 20_000, "{denied}");
        assert_eq!(cause_now(0, 0, next_step(1 << 40)), None, "a word that was never written");
    }

    #[test]
    fn a_negative_entry_that_is_over_stays_over_when_time_goes_round() {
        let name = negative_name(0x0123_4567_89ab_cdef, 1);
        let negative_entry = negative_entry(name, NOW_Q8, NOW_Q8 + DAY_Q8, NegativeCause::Packets);
        assert!(denies(negative_entry, name, NOW_Q8 + LONGEST_NEGATIVE_ENTRY_Q8 / 2));
        for later in [LONGEST_NEGATIVE_ENTRY_Q8, DAY_Q8, 1 << 62, (1 << 63) + (1 << 50), u64::MAX - (1 << 36)]
        {
            assert!(!denies(negative_entry, name, NOW_Q8.wrapping_add(later)), "{later}");
        }
    }

    #[test]
    fn a_mark_is_never_before_the_moment_it_was_made_for_and_at_most_a_step_behind_it() {
        for until_q8 in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, 0x1234_5678_9abc_def0] {
            let marked = marked_until_q8(mark(until_q8));
            assert!(marked > until_q8 && marked - until_q8 <= 1 << 32, "{until_q8}");
        }
        // Time goes round, and marks with it.
        assert_eq!(marked_until_q8(mark(u64::MAX)), 0);
    }

    #[test]
    fn a_refusal_that_holds_for_less_than_a_step_is_remembered_to_its_end_and_others_as_they_are() {
        const STEP: u64 = 1 << UNTIL_SHIFT;
        const SOURCE: u64 = 0x1234_5678_9abc_def0;
        for now in [7 * STEP, 7 * STEP + 1, 8 * STEP - 1, u64::MAX - 5] {
            for ahead in [1, 2, STEP / 2, STEP - 1, STEP, STEP + 1, 100 * STEP] {
                let until = through_this_step(now, now.wrapping_add(ahead));
                let word = negative_entry(SOURCE, now, until, NegativeCause::Packets);
                assert!(denies(word, SOURCE, now), "{now} {ahead}");
                let later = now.wrapping_add(ahead.max(STEP));
                assert!(!denies(word, SOURCE, later), "over by then: {now} {ahead}");
            }
            assert_eq!(through_this_step(now, now), now, "what is not refused any more");
        }
    }

    #[test]
    fn sources_of_one_cell_begin_at_each_of_its_negative_entries() {
        let places =
            [0, 1, 2, 3].map(|bits: u64| negative_place(7 << (64 - CELL_BITS) | bits << (62 - CELL_BITS)));
        assert_eq!(places, [28, 29, 30, 31]);
        assert_eq!(
            [0, 1, 2, 3].map(|steps| negative_place_behind(30, steps)),
            [30, 31, 28, 29],
            "and go round in it"
        );
        assert_eq!(negative_place(u64::MAX) as usize, NEGATIVE_PLACES - 1);
    }

    #[test]
    fn a_cell_is_tracked_by_its_mark_or_because_all_cells_are() {
        let set = |tracked_until_q8| LimitSet { tracked_until_q8, ..LimitSet::NONE };
        assert!(is_tracked_in(&set(0), NOW_Q8 + 1, NOW_Q8), "by its mark");
        assert!(is_tracked_in(&set(NOW_Q8 + 1), 0, NOW_Q8), "by the set");
        assert!(!is_tracked_in(&set(NOW_Q8), NOW_Q8, NOW_Q8));
        // No time is no time, also when time words have gone round.
        assert!(!is_tracked_in(&set(0), u64::MAX - 100, u64::MAX - 7));
    }

    #[test]
    fn a_busy_cell_is_written_about_twice_per_tolerance() {
        let until = track(0, NOW_Q8, DAY_Q8).unwrap();
        assert_eq!(until, NOW_Q8 + DAY_Q8 + DAY_Q8 / 2 + 1);
        assert_eq!(track(until, NOW_Q8 + DAY_Q8 / 2, DAY_Q8), None);
        assert!(track(until, NOW_Q8 + DAY_Q8 / 2 + 2, DAY_Q8).is_some());
    }
}
