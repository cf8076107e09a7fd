//! Notes about crowded prefixes, which squeeze their sources (see [`super::fair`]), in prefix cells: how hard at least, and until when.
//!
//! The debt of a prefix falls by one unit per unit of time and rises with every packet that it is charged for. So the debt that it will have in a moment if nobody sends
//! is the least that it can have until then, and so is the pressure of that debt: a source that is refused under that pressure is refused.
//!
//! A note is `tag | pressure | until`, with the tag and the time steps of a negative entry.

use super::{
    fair,
    prefilter::{LONGEST_NEGATIVE_ENTRY_Q8, TAG_MASK, UNTIL_SHIFT, tag},
};
use crate::abi::Aggregation;

/// A note understates the debt by one part in two to this power of the range, so that it lasts for a while: 3 % of a source's rate. If the precise
/// clock decides, the note is read by the coarse one, which is a tick behind: then a source may be squeezed as hard for a tick longer.
const GIVEN_AWAY: u32 = 8;

/// A note that would last for less than half a millisecond is not written: it would be written for every packet, and a tick is long beside it.
const SHORTEST_Q8: u64 = 1 << 27;

/// Bits of the time. They wrap after ten hours, and no note lasts for a second: an old note that nobody has overwritten then counts for half a second,
/// for sources that have had more than their share.
const UNTIL_BITS: u32 = 29;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
/// Bits of the pressure.
const PRESSURE_BITS: u32 = 12;
const _: () = assert!(fair::HARDEST < 1 << PRESSURE_BITS, "any pressure fits");
const _: () = assert!(TAG_MASK & ((1 << (UNTIL_BITS + PRESSURE_BITS)) - 1) == 0, "a tag is above the rest");

/// The note about a prefix, by its [negative name](super::prefilter::negative_name), with this debt in 1/256 ns; 0 if none is worth writing.
#[inline(always)]
pub const fn word(aggregation: &Aggregation, name: u64, now_q8: u64, debt_q8: u64) -> u64 {
    let range_q8 = aggregation.squeeze.range_q8;
    let lasting = range_q8 >> GIVEN_AWAY;
    let lasting = if lasting < LONGEST_NEGATIVE_ENTRY_Q8 { lasting } else { LONGEST_NEGATIVE_ENTRY_Q8 };
    let pressure = fair::pressure(
        &aggregation.squeeze,
        debt_q8.saturating_sub(lasting),
        aggregation.unproven_tolerance_q8,
    );
    if pressure == 0 || lasting < SHORTEST_Q8 {
        return 0;
    }
    let until = now_q8.wrapping_add(lasting) >> UNTIL_SHIFT & UNTIL_MASK;
    tag(name) | (pressure as u64) << UNTIL_BITS | until
}

/// How hard at least the prefix of this name squeezes sources that are not proven, in 1/256 octaves; 0 if the word has no note about it.
#[inline(always)]
pub const fn pressure(word: u64, name: u64, now_q8: u64) -> u32 {
    // The tag cancels if it is that of this name; otherwise bits above the pressure are left.
    let untagged = word ^ tag(name);
    if untagged & TAG_MASK != 0 || !is_live(word, now_q8) {
        return 0;
    }
    (untagged >> UNTIL_BITS) as u32
}

/// Whether a word has a note that holds now, about another prefix than the one of this name.
#[inline(always)]
pub const fn is_live_for_another(word: u64, name: u64, now_q8: u64) -> bool {
    (word ^ tag(name)) & TAG_MASK != 0 && is_live(word, now_q8)
}

/// Whether a word has a note that holds now, about any prefix.
#[inline(always)]
const fn is_live(word: u64, now_q8: u64) -> bool {
    let left = (word & UNTIL_MASK).wrapping_sub(now_q8 >> UNTIL_SHIFT) & UNTIL_MASK;
    left.wrapping_sub(1) < LONGEST_STEPS
}

/// Twice as far as any note is ahead of now, because clocks differ by a tick or two.
const LONGEST_STEPS: u64 = (2 * LONGEST_NEGATIVE_ENTRY_Q8) >> UNTIL_SHIFT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{abi::Squeeze, limit::prefilter};

    const SECOND_Q8: u64 = 1_000_000_000 << 8;
    const NOW_Q8: u64 = 77_777 * SECOND_Q8;

    fn aggregation(tolerance_q8: u64) -> Aggregation {
        Aggregation {
            tolerance_q8,
            unproven_tolerance_q8: tolerance_q8 / 4 * 3,
            squeeze: Squeeze::of(tolerance_q8, tolerance_q8 / 100),
            ..Aggregation::OFF
        }
    }

    #[test]
    fn what_is_remembered_is_never_more_than_the_prefix_squeezes() {
        for tolerance_q8 in [SECOND_Q8, 60 * SECOND_Q8, 3_600 * SECOND_Q8] {
            let of = aggregation(tolerance_q8);
            for part in 0..64 {
                let debt_q8 = of.unproven_tolerance_q8 / 64 * part;
                let word = word(&of, 0x1234_5678_9abc_def0, NOW_Q8, debt_q8);
                for ms in 0..600 {
                    let passed = ms * (SECOND_Q8 / 1_000);
                    let then =
                        fair::pressure(&of.squeeze, debt_q8.saturating_sub(passed), of.unproven_tolerance_q8);
                    let remembered = pressure(word, 0x1234_5678_9abc_def0, NOW_Q8 + passed);
                    assert!(remembered <= then, "{part} of 64, {ms} ms later: {remembered}, {then}");
                }
            }
        }
    }

    #[test]
    fn a_word_gives_away_little_and_lasts_for_a_while() {
        for (tolerance_q8, lasts_ms) in [(2 * SECOND_Q8, 1), (60 * SECOND_Q8, 58), (3_600 * SECOND_Q8, 268)] {
            let of = aggregation(tolerance_q8);
            let debt_q8 = of.unproven_tolerance_q8 - of.squeeze.range_q8 / 2;
            let word = word(&of, 5 << 40, NOW_Q8, debt_q8);
            let exact = fair::pressure(&of.squeeze, debt_q8, of.unproven_tolerance_q8);
            let at = |ms| pressure(word, 5 << 40, NOW_Q8 + ms * (SECOND_Q8 / 1_000));
            assert!(exact - at(0) <= 20, "{exact} and {}, in 1/256 octaves", at(0));
            assert!(at(lasts_ms) != 0 && at(lasts_ms + 1) == 0, "{tolerance_q8}");
        }
    }

    #[test]
    fn a_word_is_about_one_prefix_under_one_policy() {
        let of = aggregation(60 * SECOND_Q8);
        let names = [(3 << 32, 7), (4 << 32, 7), (3 << 32, 8)]
            .map(|(hash, generation)| prefilter::negative_name(hash, generation));
        let word = word(&of, names[0], NOW_Q8, of.unproven_tolerance_q8);
        assert_eq!(names.map(|name| pressure(word, name, NOW_Q8) != 0), [true, false, false]);
        assert_eq!(names.map(|name| pressure(0, name, NOW_Q8)), [0; 3], "nothing was ever written");
    }

    #[test]
    fn a_word_that_still_says_something_of_another_prefix_is_told_from_one_that_is_free() {
        let of = aggregation(60 * SECOND_Q8);
        let [own, other] = [3 << 32, 4 << 32];
        let word = word(&of, own, NOW_Q8, of.unproven_tolerance_q8);
        assert!(is_live_for_another(word, other, NOW_Q8) && !is_live_for_another(word, own, NOW_Q8));
        assert!(!is_live_for_another(word, other, NOW_Q8 + SECOND_Q8), "over by then");
        assert!(!is_live_for_another(0, other, NOW_Q8), "nothing was ever written");
    }

    #[test]
    fn a_word_is_live_for_twice_as_long_as_one_lasts_and_no_longer() {
        let name = 3 << 32;
        let live = |steps| {
            pressure(
                tag(name) | 1 << UNTIL_BITS | ((NOW_Q8 >> UNTIL_SHIFT & UNTIL_MASK) + steps),
                name,
                NOW_Q8,
            )
        };
        assert_eq!([0, 1, LONGEST_STEPS, LONGEST_STEPS + 1].map(live), [0, 1, 1, 0]);
    }

    #[test]
    fn nothing_is_remembered_of_a_prefix_that_squeezes_nobody_or_not_for_half_a_millisecond() {
        let of = aggregation(60 * SECOND_Q8);
        assert_eq!(word(&of, 3 << 32, NOW_Q8, 0), 0);
        let remembered = |tolerance_q8| {
            let of = aggregation(tolerance_q8);
            word(&of, 3 << 32, NOW_Q8, of.unproven_tolerance_q8) != 0
        };
        // A range is a quarter of the tolerance, and a note lasts for 1/256 of it: half a millisecond.
        assert_eq!([1 << 36, (1 << 37) - (1 << 20), 1 << 37].map(remembered), [false, false, true]);
    }
}
