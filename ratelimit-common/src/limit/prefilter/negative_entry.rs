//! Negative entries: words that note which source of a cell is refused, until when and by what.
//!
//! ```text
//!   bit 63 .. 41                     40 39      38 .. 0
//!   tag: the source and the policy   cause      until when, in steps of 2^16 ns
//! ```

use super::CELL_BITS;
use crate::{
    abi::cell::NEGATIVE_ENTRIES,
    limit::gcra::{TIME_FRAC_BITS, ahead_q8},
};

/// Lower bits of a time word that a negative entry leaves out: its unit of time is 2^16 ns.
pub(in crate::limit) const UNTIL_SHIFT: u32 = 24;
/// Bits of a negative entry for the time. They wrap after a year, and no negative entry lives for a second.
const UNTIL_BITS: u32 = 39;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
/// Bits of a negative entry for the [`NegativeCause`].
const CAUSE_BITS: u32 = 2;
pub(in crate::limit) const TAG_MASK: u64 = !((1 << (UNTIL_BITS + CAUSE_BITS)) - 1);
const _: () =
    assert!(UNTIL_BITS + CAUSE_BITS == UNTIL_SHIFT + 17, "a tag has the bits that `negative_name` counts on");
const _: () = assert!(UNTIL_SHIFT > TIME_FRAC_BITS, "negative entries are coarser than time words");

/// Policies whose negative entries cannot be mistaken for each other: they differ in the bits of a tag beyond the 32 that name an IPv4 address.
pub const NEGATIVE_PERIOD: u64 = 1 << (32 - (UNTIL_SHIFT + 1));
/// How long a negative entry lives: 268 ms. The bucket of a source that is refused for longer is read again once in that time, which also keeps its entry in the table
/// recently used.
pub const LONGEST_NEGATIVE_ENTRY_Q8: u64 = 1 << 36;
const _: () =
    assert!(LONGEST_NEGATIVE_ENTRY_Q8 & ((1 << UNTIL_SHIFT) - 1) == 0, "whole steps of a negative entry");

/// How far the coarse clock is behind the precise one at most, with room to spare: 33.5 ms, more than three ticks of 10 ms.
pub const LONGEST_LAG_Q8: u64 = 1 << 33;

/// What refuses the source of a negative entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum NegativeCause {
    /// A limit that does not count bytes.
    Packets = 0,
    /// A limit in bytes.
    Bytes = 1,
    /// The block list. The limiter reads the list itself; such a negative entry is for the express lane.
    Blocked = 2,
    /// Something that the source shares with others, a total or a prefix, while it keeps to its own limits. Such a negative entry is for the express lane, which checks
    /// whether the total or prefix is still used up.
    Shared = 3,
}

/// The name of a source in negative entries. A negative entry is only valid under the limits that made it, so the policy's generation is part of the
/// name: in the lower bits of the tag, above those that a negative entry has no room for.
///
/// There is room for [`NEGATIVE_PERIOD`] policies beside an IPv4 address. After that many changes, the names of one source are those that
/// others had before; but the daemon lets at least [`LONGEST_NEGATIVE_ENTRY_Q8`] pass from the first of these changes to the last: 2.1 ms for each, which is
/// about the time that the kernel takes to wait for packets in progress. So no IPv4 source is ever refused for what another did under an earlier policy.
#[inline(always)]
pub const fn negative_name(hash: u64, generation: u64) -> u64 {
    hash ^ (generation << (UNTIL_SHIFT + 1 + CELL_BITS) >> CELL_BITS)
}

/// The tag of a hash: the bits below the cell's index, which tell sources of one cell apart, at their place in a negative entry.
#[inline(always)]
pub(in crate::limit) const fn tag(hash: u64) -> u64 {
    (hash << CELL_BITS) & TAG_MASK
}

/// The tag of a source under a policy: that of its [`negative_name`].
#[inline(always)]
pub const fn tag_under(hash: u64, generation: u64) -> u64 {
    tag(hash) ^ generation << (UNTIL_SHIFT + 1 + CELL_BITS)
}

/// The first time that is not past, in the time steps of a negative entry.
#[inline(always)]
pub const fn next_step(now_q8: u64) -> u64 {
    (now_q8 >> UNTIL_SHIFT & UNTIL_MASK) + 1
}

/// What refuses a source with this tag, if this word denies it at the moment before this [`next_step`]. A packet of a
/// flood pays for a subtraction and a comparison. When the time of a negative entry wraps, for a quarter of a second in a year, the function may
/// miss an entry or take its cause for another.
#[inline(always)]
pub const fn cause_now(word: u64, tag: u64, next_step: u64) -> Option<NegativeCause> {
    // If the word denies another source, bits of the tag are left above the time; the cause `Packets` is 0 and leaves none.
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

/// The index, among the negative entries of all cells, that a source is looked up at first: chosen by the bits of its tag that depend on most bits of the source.
#[inline(always)]
pub const fn negative_place(hash: u64) -> u32 {
    (hash >> (64 - NEGATIVE_PLACE_BITS)) as u32
}

/// The index of the negative entry `steps` behind another, within the entries of its cell.
#[inline(always)]
pub const fn negative_place_behind(place: u32, steps: u32) -> u32 {
    const IN_CELL: u32 = NEGATIVE_ENTRIES as u32 - 1;
    place & !IN_CELL | place.wrapping_add(steps) & IN_CELL
}

const NEGATIVE_PLACE_BITS: u32 = CELL_BITS + NEGATIVE_ENTRIES.ilog2();
/// Negative entries of all cells.
pub const NEGATIVE_PLACES: usize = 1 << NEGATIVE_PLACE_BITS;

/// The word that denies a source from now until a time word, rounded down to 65 us, or for as long as a negative entry lives.
#[inline(always)]
pub const fn negative_entry(hash: u64, now_q8: u64, until_q8: u64, cause: NegativeCause) -> u64 {
    let ahead = ahead_q8(until_q8, now_q8);
    let ahead = if ahead < LONGEST_NEGATIVE_ENTRY_Q8 { ahead } else { LONGEST_NEGATIVE_ENTRY_Q8 };
    tag(hash) | (cause as u64) << UNTIL_BITS | (now_q8.wrapping_add(ahead) >> UNTIL_SHIFT & UNTIL_MASK)
}

/// Until when a refusal is noted, by a clock that stands still for longer than a step: at least to the end of this step. A shorter note would
/// not be noted at all, and packets that come before the clock moves would be looked up.
#[inline(always)]
pub const fn through_this_step(now_q8: u64, until_q8: u64) -> u64 {
    const STEP_Q8: u64 = 1 << UNTIL_SHIFT;
    let ahead = ahead_q8(until_q8, now_q8);
    if ahead != 0 && ahead < STEP_Q8 { now_q8.wrapping_add(STEP_Q8) } else { until_q8 }
}

/// What refuses the source that a word denies.
#[inline(always)]
pub const fn denied_by(word: u64) -> NegativeCause {
    match word >> UNTIL_BITS & ((1 << CAUSE_BITS) - 1) {
        0 => NegativeCause::Packets,
        1 => NegativeCause::Bytes,
        2 => NegativeCause::Blocked,
        _ => NegativeCause::Shared,
    }
}

/// How long a word denies its source from now on, in 1/256 ns, if it denies at all.
#[inline(always)]
pub const fn denied_for_q8(word: u64, now_q8: u64) -> u64 {
    // A negative entry lacks the upper bit of a time, so that bit is shifted out on both sides.
    let until = word << (UNTIL_SHIFT + 1);
    until.wrapping_sub((now_q8 >> UNTIL_SHIFT) << (UNTIL_SHIFT + 1)) >> 1
}

/// Whether a word denies its source now, whichever that is.
#[inline(always)]
pub const fn is_live(word: u64, now_q8: u64) -> bool {
    // A time further ahead than any negative entry lives is past, once round the circle. The bound is twice as far, because clocks differ by a tick or two.
    matches!(denied_for_q8(word, now_q8), 1..=TWICE_THE_LONGEST_Q8)
}

const TWICE_THE_LONGEST_Q8: u64 = 2 * LONGEST_NEGATIVE_ENTRY_Q8;
const TWICE_THE_LONGEST_STEPS: u64 = TWICE_THE_LONGEST_Q8 >> UNTIL_SHIFT;

/// Whether a word denies this source now.
#[inline(always)]
pub const fn denies(word: u64, hash: u64, now_q8: u64) -> bool {
    tag(hash) == word & TAG_MASK && is_live(word, now_q8)
}

/// Whether a word denies another source now, so that a negative entry of this one should not replace it.
#[inline(always)]
pub const fn denies_other(word: u64, hash: u64, now_q8: u64) -> bool {
    tag(hash) != word & TAG_MASK && is_live(word, now_q8)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{cell_index, hash, split_mix::SplitMix},
        *,
    };
    use crate::abi::SourceKey;

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
        let mut numbers = SplitMix(5);
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
                // A change of policy takes longer than this.
                let now_q8 =
                    NOW_Q8 + (later - generation) * (LONGEST_NEGATIVE_ENTRY_Q8 / NEGATIVE_PERIOD + 1);
                // A source whose tag differs in exactly the bits that the two generations differ in.
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

    /// `cause_now` answers in one look what the other functions answer together.
    #[test]
    fn a_first_look_at_a_negative_entry_says_whom_it_denies_until_when_and_why() {
        const CAUSES: [NegativeCause; 4] =
            [NegativeCause::Packets, NegativeCause::Bytes, NegativeCause::Blocked, NegativeCause::Shared];
        let mut numbers = SplitMix(9);
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
            // Below a year, because `cause_now` does not handle the wrap.
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
    fn a_word_says_what_refused_and_whether_it_denies_somebody_else() {
        let [own, other] = [negative_name(3 << 40, 1), negative_name(4 << 40, 1)];
        for cause in
            [NegativeCause::Packets, NegativeCause::Bytes, NegativeCause::Blocked, NegativeCause::Shared]
        {
            let word = negative_entry(own, NOW_Q8, NOW_Q8 + DAY_Q8, cause);
            assert_eq!(denied_by(word), cause);
            assert!(denies_other(word, other, NOW_Q8) && !denies_other(word, own, NOW_Q8));
            assert!(!denies_other(word, other, NOW_Q8 + LONGEST_NEGATIVE_ENTRY_Q8), "over by then");
        }
        assert!(!denies_other(0, own, NOW_Q8), "nothing was ever written");
    }

    #[test]
    fn a_first_look_believes_no_word_that_is_further_ahead_than_clocks_differ() {
        let tag = tag_under(3 << 40, 1);
        let step = NOW_Q8 >> UNTIL_SHIFT;
        for (ahead, is_denied) in
            [(0, false), (1, true), (TWICE_THE_LONGEST_STEPS, true), (TWICE_THE_LONGEST_STEPS + 1, false)]
        {
            let word = tag | (step + ahead);
            assert_eq!(cause_now(word, tag, next_step(NOW_Q8)).is_some(), is_denied, "{ahead}");
            assert_eq!(is_live(word, NOW_Q8), is_denied, "{ahead}");
        }
    }
}
