//! The gate in front of the table of sources: most sources never need an entry in it.
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
//! # Denials
//! A cell also remembers the last sources that its entries refused, and until when they must be refused: a bucket only
//! fills with time, so until then the answer is known without looking at the entry. That is what most packets of a flood meet.

use super::gcra::{TIME_FRAC_BITS, ahead_q8};
use crate::abi::{LimitSet, Meter, SourceKey};

/// Cells of the gate, as a power of two: small enough for a core's second-level cache.
pub const CELL_BITS: u32 = 16;
/// Cells of the gate.
pub const CELLS: u32 = 1 << CELL_BITS;
/// Denials that a cell remembers.
pub const DENIALS: usize = 2;

/// Part of the burst that a cell gives out: an eighth.
pub const CELL_SHARE: u64 = 8;

/// Bits of a denial that say until when.
const UNTIL_BITS: u32 = 40;
/// Those bits are the upper ones of a time word: units of 2^16 ns, wrapping with it.
const UNTIL_SHIFT: u32 = 64 - UNTIL_BITS;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
/// The bit of a denial that says which meter refused: bytes, or else packets.
const BYTES_BIT: u64 = 1 << UNTIL_BITS;
const TAG_MASK: u64 = !(UNTIL_MASK | BYTES_BIT);
const _: () = assert!(UNTIL_SHIFT > TIME_FRAC_BITS, "denials are coarser than time words");

/// Where a source belongs.
///
/// Multiplication by secret odd numbers, upper bits first: for any two sources the chance to meet in one cell is at most
/// 2 in [`CELLS`] over the choice of the secret, so nobody can aim at a victim's cell. For IPv4 the upper 32 bits are a
/// bijection of the address, which makes cell and tag together an exact name.
#[inline(always)]
pub const fn hash(key: SourceKey, secret: [u64; 2]) -> u64 {
    key.hi.wrapping_mul(secret[0] | 1).wrapping_add(key.lo.wrapping_mul(secret[1] | 1))
}

/// Where a source belongs that asks for what a service gives it.
#[inline(always)]
pub const fn group_hash(hash: u64, group: u64, secret: [u64; 2]) -> u64 {
    hash.wrapping_add(group.wrapping_mul(secret[0].rotate_left(32) | 1))
}

/// The cell of a source.
#[inline(always)]
pub const fn cell_index(hash: u64) -> u32 {
    (hash >> (64 - CELL_BITS)) as u32
}

/// A source as denials know it. A denial holds under the limits that made it, so the policy is part of the name: in the lower bits of the
/// tag, above those that a denial has no room for.
#[inline(always)]
pub const fn denial_name(hash: u64, generation: u64) -> u64 {
    hash ^ (generation << (UNTIL_SHIFT + 1 + CELL_BITS) >> CELL_BITS)
}

/// What tells sources of one cell apart: the bits below the index, in the place where a denial has them.
#[inline(always)]
const fn tag(hash: u64) -> u64 {
    (hash << CELL_BITS) & TAG_MASK
}

/// Which of a cell's denials a source uses.
#[inline(always)]
pub const fn denial_slot(hash: u64) -> usize {
    // The bit above the one that the meter takes.
    (hash >> (UNTIL_SHIFT + 1)) as usize & (DENIALS - 1)
}

/// The word that denies a source until a moment, rounded down to 65 us.
#[inline(always)]
pub const fn denial(hash: u64, until_q8: u64, meter: Meter) -> u64 {
    let bytes = if matches!(meter, Meter::Bytes) { BYTES_BIT } else { 0 };
    tag(hash) | bytes | (until_q8 >> UNTIL_SHIFT)
}

/// The meter of the limit that made a denial.
#[inline(always)]
pub const fn denied_by(word: u64) -> Meter {
    if word & BYTES_BIT == 0 { Meter::Packets } else { Meter::Bytes }
}

/// Until when a word denies.
#[inline(always)]
pub const fn denied_until_q8(word: u64) -> u64 {
    word << UNTIL_SHIFT
}

/// Whether a word denies this source now.
#[inline(always)]
pub const fn denies(word: u64, hash: u64, now_q8: u64) -> bool {
    let left = denied_until_q8(word).wrapping_sub(now_q8 & !((1 << UNTIL_SHIFT) - 1));
    // The upper half of the circle is the past.
    tag(hash) == word & TAG_MASK && left != 0 && left < 1 << 63
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

/// Whether an entry behind a cell of a set may still owe something: one that the cell knows of, or one from before there was a gate.
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
    use super::*;

    #[test]
    fn a_denial_of_one_policy_is_none_under_any_of_the_next_thousand() {
        let now_q8 = 1 << 40;
        for hash in [0, 0x0123_4567_89ab_cdef, u64::MAX] {
            for generation in 1..50 {
                let until_q8 = now_q8 + (1 << 36);
                let denial = denial(denial_name(hash, generation), until_q8, Meter::Packets);
                assert!(denies(denial, denial_name(hash, generation), now_q8));
                for later in generation + 1..generation + 1000 {
                    assert!(!denies(denial, denial_name(hash, later), now_q8), "{generation} and {later}");
                }
            }
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
}
