//! The prefilter in front of the table of sources: most sources never need an entry in it.
//!
//! An LRU insert for each packet is what a spoofed flood wants: it costs ten times a dropped packet and evicts everybody's
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
//! - A cell is *tracked* while an entry behind it may still owe something. The cell knows until when: an entry that admits
//!   a packet is full again at most one tolerance later, and the cell's mark lasts until after that.
//! - An entry that is full again *restarts* with G spent, because its source may have been served by the cell meanwhile.
//!
//! # Bound
//! Take a source's debt D in an ideal bucket (r, B). While the cell serves it, D is at most the cell's debt, at most G. When it
//! moves to an entry, the entry starts at G or more. When it moves back, the cell is no longer tracked, so the entry and with
//! it D is 0. So D never exceeds B: **any interval W admits at most B + r x W**. And since an entry never owes more than G
//! beyond an ideal bucket of burst B - G, a source that keeps to that bucket is never refused, whatever else hits the cell: **at least
//! (B - G) + r x W**. The only way to a fresh burst is to be evicted from the table.
//!
//! # Negative cache
//! A cell also remembers the last sources that its entries refused, and until when they must be refused: a bucket only
//! fills with time, so until then the answer is known without reading the entry. Most packets of a flood end there. No negative entry lives longer
//! than [`LONGEST_NEGATIVE_ENTRY_Q8`]: then the entry is read again.

mod negative_entry;
mod source_hash;
#[cfg(test)]
pub(super) mod split_mix;

pub(super) use self::negative_entry::{TAG_MASK, UNTIL_SHIFT, tag};
#[cfg(not(target_arch = "bpf"))]
pub use self::source_hash::v4_address;
pub use self::{
    negative_entry::{
        LONGEST_LAG_Q8, LONGEST_NEGATIVE_ENTRY_Q8, NEGATIVE_PERIOD, NEGATIVE_PLACES, NegativeCause,
        cause_now, denied_by, denied_for_q8, denies, denies_other, is_live, negative_entry, negative_name,
        negative_place, negative_place_behind, next_step, tag_under, through_this_step,
    },
    source_hash::{group_hash, hash, hash_v4, hash_v6, secret},
};
use super::gcra::ahead_q8;
use crate::abi::LimitSet;

/// Number of cells of the prefilter, as a power of two: small enough for a core's second-level cache.
pub const CELL_BITS: u32 = 16;
/// Cells of the prefilter.
pub const CELLS: u32 = 1 << CELL_BITS;
/// Words that have the bits of all cells.
pub const CELL_BIT_WORDS: usize = CELLS as usize / CELLS_IN_WORD as usize;
/// Cells whose bits are in one word: two bits each.
pub const CELLS_IN_WORD: u32 = u64::BITS / 2;
/// The bit of a cell that may be tracked: without it, no source of the cell has an entry that owes something.
pub const TRACKED_BIT: u64 = 1;
/// The bit of a cell that may remember something of its sources: without it, no source of the cell is proven, and none has a negative entry that has been
/// there for longer than a moment.
pub const REMEMBERED_BIT: u64 = 2;

/// A cell gives out one part in this many of the burst: an eighth.
pub const CELL_SHARE: u64 = 8;

/// The index of the cell of a source.
#[inline(always)]
pub const fn cell_index(hash: u64) -> u32 {
    (hash >> (64 - CELL_BITS)) as u32
}

/// Until when a cell is tracked, by its mark: the upper half of a time word, in steps of 17 ms.
///
/// Marks are kept apart from the cells, so that the packets of a spoofed flood, which need nothing else of a cell, touch an eighth of
/// the memory.
#[inline(always)]
pub const fn marked_until_q8(mark: u32) -> u64 {
    (mark as u64) << 32
}

/// The first mark that is after a time word.
#[inline(always)]
pub const fn mark(until_q8: u64) -> u32 {
    ((until_q8 >> 32) as u32).wrapping_add(1)
}

/// Whether an entry behind a cell may still owe something.
#[inline(always)]
pub const fn is_tracked(tracked_until_q8: u64, now_q8: u64) -> bool {
    ahead_q8(tracked_until_q8, now_q8) != 0
}

/// Whether an entry behind a cell of a set may still owe something: an entry that the cell has a mark for, or one from before the prefilter was on.
#[inline(always)]
pub const fn is_tracked_in(set: &LimitSet, tracked_until_q8: u64, now_q8: u64) -> bool {
    is_tracked(tracked_until_q8, now_q8)
        || (set.tracked_until_q8 != 0 && is_tracked(set.tracked_until_q8, now_q8))
}

/// Until when a cell must be tracked if one of its entries admits a packet now; `None` if it is tracked long enough already.
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
    use super::{super::gcra::TIME_FRAC_BITS, *};

    const NOW_Q8: u64 = 1 << 40;
    const DAY_Q8: u64 = 86_400_000_000_000 << TIME_FRAC_BITS;

    #[test]
    fn a_mark_is_never_before_the_moment_it_was_made_for_and_at_most_a_step_behind_it() {
        for until_q8 in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, 0x1234_5678_9abc_def0] {
            let marked = marked_until_q8(mark(until_q8));
            assert!(marked > until_q8 && marked - until_q8 <= 1 << 32, "{until_q8}");
        }
        // Time words wrap, and marks with them.
        assert_eq!(marked_until_q8(mark(u64::MAX)), 0);
    }

    #[test]
    fn a_cell_is_tracked_by_its_mark_or_because_all_cells_are() {
        let set = |tracked_until_q8| LimitSet { tracked_until_q8, ..LimitSet::NONE };
        assert!(is_tracked_in(&set(0), NOW_Q8 + 1, NOW_Q8), "by its mark");
        assert!(is_tracked_in(&set(NOW_Q8 + 1), 0, NOW_Q8), "by the set");
        assert!(!is_tracked_in(&set(NOW_Q8), NOW_Q8, NOW_Q8));
        // 0 means no time, also after time words have wrapped.
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
