//! Fair shares within a prefix: which sources are refused when a prefix's sources want more than the prefix may have.
//!
//! A prefix may have m times what one source may have (see [`super::aggregation`]). A sender with forged addresses of a prefix wants all of that, and
//! first come, first served would leave nothing for the quiet sources between them. So sources of a prefix that is nearly used up are held
//! to a second rate, equal for all of them, which falls the more the prefix is used up:
//!
//! ```text
//!   rate of each source
//!   r    |--------------.
//!   r/2  |               \                          debt of the prefix ->
//!   ...  |                 `-._
//!   r/4096                      `---|  nothing
//!        0        from           tolerance of the party
//! ```
//!
//! The debt settles where the sum of what all sources get, each at most that rate f, is what the prefix may have: sum of min(demand, f) = m x r.
//! That is the max-min fair share. **A source that wants no more than an equal share of its prefix is never refused because of the others**,
//! however much they want; with s sources an equal share is at least m x r / s. Proven and other sources have a range of debt each: proven sources
//! squeeze only themselves, because the others are refused before the range of the proven begins.
//!
//! # The word of a source
//! The word of a source has the source's debt beyond its rate f, and the time at which it was computed, in units of 2^-23 of the tolerance or finer:
//! `time << 28 | debt`. Debt is paid off at f: at one unit per unit without pressure, at half of that after one octave. Sources share
//! words by the hash that assigns them to cells of the prefilter: two sources with one word share what one of them may have.
//!
//! # Worked numbers
//! 100 packets/s burst 100 and a /24 x32: 254 forged sources at 79 packets/s want 20 000/s of 3200/s. Their packets hold the prefix at a debt where
//! f is 12.6/s; a source at 8 packets/s never owes more than its allowance, and all of its packets pass.

use crate::abi::{Aggregation, Squeeze, service::Party};

/// How often the rate is halved between the beginning and the end of the range.
pub const OCTAVES: u32 = 12;
/// Steps of pressure in one octave.
const OCTAVE: u32 = 1 << 8;
/// The highest pressure.
pub const HARDEST: u32 = OCTAVES * OCTAVE;

/// Lower bits of a source's word: its debt.
const DEBT_BITS: u32 = 28;
const DEBT_MASK: u64 = (1 << DEBT_BITS) - 1;
/// Upper bits of a source's word, shifted down: the time.
const TIME_MASK: u64 = u64::MAX >> DEBT_BITS;
/// A time ahead of now by less than this was written by a CPU whose clock is ahead: between an eighth and a quarter of the tolerance.
const AHEAD: u64 = 1 << 21;

/// Bits of the tolerance in the units of a source's word.
const TOLERANCE_BITS: u32 = 24;
/// Each range of debt is one part in this many of the tolerance: a quarter.
pub const RANGE_SHARE: u64 = 4;
/// One part in this many of the tolerance may be used at once under any pressure: so little that all sources of a /24 together fit into the range.
const ALLOWANCE_SHARE: u64 = 64;
/// Packets that a source may send at once besides that part of the tolerance: full frames that open no connection.
const ALLOWANCE_PACKETS: u64 = 2;

/// Bits of precision of the way into the range.
const WAY_BITS: u32 = 12;

impl Squeeze {
    /// The squeeze of prefixes with this tolerance, where full frames cost their source at most `dearest_q8`, in 1/256 ns.
    pub const fn of(tolerance_q8: u64, dearest_q8: u64) -> Self {
        let range_q8 = tolerance_q8 / RANGE_SHARE;
        let range_shift = bits(range_q8).saturating_sub(WAY_BITS);
        let steps = range_q8 >> range_shift;
        let fair_shift = bits(tolerance_q8).saturating_sub(TOLERANCE_BITS);
        let factor = if steps == 0 { 0 } else { (((OCTAVES * OCTAVE) as u64) << 16).div_ceil(steps) };
        Self {
            range_q8,
            range_shift,
            range_factor: factor as u32,
            fair_shift,
            allowance: saturated(
                (tolerance_q8 >> fair_shift) / ALLOWANCE_SHARE
                    + ALLOWANCE_PACKETS * charge(dearest_q8, fair_shift),
            ),
        }
    }
}

const fn saturated(number: u64) -> u32 {
    if number > u32::MAX as u64 { u32::MAX } else { number as u32 }
}

const fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// The debt at which the range of a party ends, in 1/256 ns. Proven sources are not squeezed as soon as the others are at their end, but only when proven
/// sources want too much themselves: half of their range lies beyond what a prefix may ever owe.
#[inline(always)]
pub const fn end_q8(aggregation: &Aggregation, party: Party) -> u64 {
    match party {
        Party::Untracked | Party::Tracked => aggregation.unproven_tolerance_q8,
        Party::Proven => aggregation.tolerance_q8 + aggregation.squeeze.range_q8 / 2,
    }
}

/// How hard sources are squeezed when their prefix owes `debt_q8` and their range ends at `end_q8`: 0 if not at all, otherwise in 1/256 octaves.
#[inline(always)]
pub const fn pressure(squeeze: &Squeeze, debt_q8: u64, end_q8: u64) -> u32 {
    let from_q8 = end_q8.wrapping_sub(squeeze.range_q8);
    if debt_q8 <= from_q8 {
        return 0;
    }
    let way = (debt_q8 - from_q8) >> (squeeze.range_shift & 63);
    let pressure = (way.wrapping_mul(squeeze.range_factor as u64) >> 16) as u32;
    // No source pushes a prefix beyond its tolerance, but a policy may have become stricter.
    if way >> WAY_BITS != 0 || pressure > HARDEST { HARDEST } else { pressure }
}

/// Evaluates the word of a source for a packet that costs `charge_q8`: returns the word to store, or `None` if the packet is refused.
#[inline(always)]
pub const fn take(word: u64, squeeze: &Squeeze, now_q8: u64, charge_q8: u64, pressure: u32) -> Option<u64> {
    let shift = squeeze.fair_shift & 63;
    let now = (now_q8 >> shift) & TIME_MASK;
    let since = now.wrapping_sub(word >> DEBT_BITS) & TIME_MASK;
    let elapsed = if since > TIME_MASK - AHEAD { 0 } else { since };
    let debt = (word & DEBT_MASK).saturating_sub(slowed(elapsed, pressure));
    let after = debt + charge(charge_q8, shift);
    // A source without debt may have one packet, whatever its charge.
    if debt != 0 && after > squeeze.allowance as u64 {
        return None;
    }
    Some((now << DEBT_BITS) | if after < DEBT_MASK { after } else { DEBT_MASK })
}

/// A charge in the units of a source's word, rounded up.
#[inline(always)]
const fn charge(charge_q8: u64, shift: u32) -> u64 {
    (charge_q8 >> shift) + 1
}

/// How long a source must wait for a packet if the pressure stays as it is, in 1/256 ns; 0 if the packet is admitted now.
#[cfg(not(target_arch = "bpf"))]
pub const fn wait_q8(word: u64, squeeze: &Squeeze, now_q8: u64, charge_q8: u64, pressure: u32) -> u64 {
    if take(word, squeeze, now_q8, charge_q8, pressure).is_some() {
        return 0;
    }
    let shift = squeeze.fair_shift & 63;
    let debt = word & DEBT_MASK;
    let over = (debt + charge(charge_q8, shift)).saturating_sub(squeeze.allowance as u64);
    let to_pay = if over < debt { over } else { debt };
    let whole = (to_pay << 9).div_ceil(512 - (pressure & (OCTAVE - 1)) as u64) << (pressure >> 8);
    let since = (now_q8 >> shift).wrapping_sub(word >> DEBT_BITS) & TIME_MASK;
    whole.saturating_sub(since).saturating_add(1) << shift
}

/// The part of its own rate that a source gets under a pressure, in percent.
#[cfg(not(target_arch = "bpf"))]
pub const fn percent(pressure: u32) -> u64 {
    slowed(100 << OCTAVES, pressure) >> OCTAVES
}

/// The debt that is paid off in a time: half as much with every octave of pressure, linear in between.
#[inline(always)]
const fn slowed(elapsed: u64, pressure: u32) -> u64 {
    let whole = elapsed >> ((pressure >> 8) & 63);
    whole - ((whole * (pressure & (OCTAVE - 1)) as u64) >> 9)
}

/// How long a source counts as asked after its connection was looked up: 50 ms, in 1/256 ns. A source that shows one is proven for long and need not be asked;
/// the others must not use up the lookups, so half of the lookups are for sources that do not count as asked.
const ASKED_Q8: u64 = 50_000_000 << 8;
/// Bits of a mark that tell sources with one word apart.
const MARK_BITS: u32 = 24;

/// The mark of a source whose connection is looked up now.
#[inline(always)]
pub const fn asked(hash: u64, now_q8: u64) -> u64 {
    (now_q8.wrapping_add(ASKED_Q8) >> MARK_BITS << MARK_BITS) | mark(hash)
}

/// Whether a mark shows that this source was asked a moment ago.
#[inline(always)]
pub const fn was_asked(word: u64, hash: u64, now_q8: u64) -> bool {
    let left = (word & !((1 << MARK_BITS) - 1)).wrapping_sub(now_q8);
    word & ((1 << MARK_BITS) - 1) == mark(hash) && left <= ASKED_Q8
}

/// The bits of a hash below those that choose the word.
#[inline(always)]
const fn mark(hash: u64) -> u64 {
    (hash >> (64 - super::prefilter::CELL_BITS - MARK_BITS)) & ((1 << MARK_BITS) - 1)
}

/// How long a source that showed a connection counts as proven: ten minutes, in 1/256 ns. So long because a flood of forged segments may use
/// up the lookups that are needed to show it again.
pub const PROVEN_Q8: u64 = 600_000_000_000 << 8;

/// Lower bits of a time that are dropped in the mark of a cell with a proven source: the unit of the mark is 17 s.
const PROVEN_SHIFT: u32 = 42;
/// How far the mark of a cell with a proven source is ahead of now at most, in units of the mark.
const PROVEN_STEPS: u8 = (PROVEN_Q8 >> PROVEN_SHIFT) as u8 + 3;
const _: () = assert!(PROVEN_Q8 >> PROVEN_SHIFT < 128, "a mark that is over is told from one that is not");

/// The mark of a prefilter cell with a source that is proven from now on. Never 0, which marks a cell that never had a proven source.
#[inline(always)]
pub const fn proven_mark(now_q8: u64) -> u8 {
    let mark = (now_q8.wrapping_add(PROVEN_Q8) >> PROVEN_SHIFT) as u8;
    mark.wrapping_add(1 + (mark == u8::MAX) as u8)
}

/// Whether some source of a cell with this mark may be proven. Marks wrap after 73 minutes: a cell whose proven sources are long gone may then count
/// as one that has some, for ten minutes.
#[inline(always)]
pub const fn may_be_proven(mark: u8, now_q8: u64) -> bool {
    mark != 0 && mark.wrapping_sub((now_q8 >> PROVEN_SHIFT) as u8) <= PROVEN_STEPS
}

/// The party of a source with an entry that counts as proven until a time word.
#[inline(always)]
pub const fn party(proven_until_q8: u64, now_q8: u64) -> Party {
    let left = proven_until_q8.wrapping_sub(now_q8);
    // No source is proven for longer than `PROVEN_Q8`, so a time further ahead is long past.
    if proven_until_q8 == 0 || left == 0 || left > PROVEN_Q8 { Party::Tracked } else { Party::Proven }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_Q8: u64 = 1_000_000_000 << 8;

    #[test]
    fn pressure_begins_where_the_range_does_and_ends_after_twelve_octaves() {
        for tolerance_q8 in [1 << 12, 12_345 << 8, SECOND_Q8, 86_400 * SECOND_Q8] {
            let squeeze = Squeeze::of(tolerance_q8, tolerance_q8 / 100);
            let end = tolerance_q8 / 4 * 3;
            let from = end - squeeze.range_q8;
            assert_eq!(pressure(&squeeze, 0, end), 0);
            assert_eq!(pressure(&squeeze, from, end), 0);
            let half = pressure(&squeeze, from + squeeze.range_q8 / 2, end);
            assert!((1500..=1580).contains(&half), "{half} at {tolerance_q8}");
            let last = pressure(&squeeze, end, end);
            assert!((3060..=3080).contains(&last), "{last} at {tolerance_q8}");
            let most = OCTAVES * OCTAVE;
            assert_eq!(pressure(&squeeze, end + squeeze.range_q8 / 20, end), most, "at {tolerance_q8}");
            assert_eq!(pressure(&squeeze, end * 5, end), most, "at {tolerance_q8}");
        }
    }

    /// The packets that pass in ten seconds, of a source that sends `asks_per_second` packets a second.
    fn passed(asks_per_second: u64, pressure: u32) -> u64 {
        // 100 packets/s and a burst of 100.
        let (squeeze, cost_q8) = (Squeeze::of(SECOND_Q8, SECOND_Q8 / 100), SECOND_Q8 / 100);
        let mut word = 0;
        let mut passed = 0;
        for ask in 0..10 * asks_per_second {
            let now_q8 = 5 * SECOND_Q8 + ask * (SECOND_Q8 / asks_per_second);
            if let Some(new) = take(word, &squeeze, now_q8, cost_q8, pressure) {
                word = new;
                passed += 1;
            }
        }
        passed
    }

    #[test]
    fn a_source_gets_its_rate_halved_with_every_octave_and_an_allowance() {
        for octaves in [0, 1, 2, 3, 5] {
            let got = passed(1_000, octaves * OCTAVE);
            // 100 packets/s for ten seconds; two packets and a sixty-fourth of the burst at once.
            let (earned, most) = (1_000 >> octaves, (1_000 >> octaves) + 5);
            assert!((earned..=most).contains(&got), "{got} after {octaves} octaves, {most} are the most");
        }
        let between = passed(1_000, OCTAVE / 2);
        assert!((740..=770).contains(&between), "{between} half an octave down: three quarters");
    }

    #[test]
    fn an_allowance_is_a_part_of_the_burst_and_two_of_the_dearest_frames() {
        let (small, large) =
            (Squeeze::of(SECOND_Q8, SECOND_Q8 / 1_000), Squeeze::of(SECOND_Q8, SECOND_Q8 / 10));
        assert_eq!(small.fair_shift, large.fair_shift);
        let charges =
            [SECOND_Q8 / 1_000, SECOND_Q8 / 10].map(|dearest_q8| charge(dearest_q8, small.fair_shift));
        let part = (SECOND_Q8 >> small.fair_shift) / 64;
        let expected = charges.map(|charge| part + 2 * charge);
        assert_eq!([small.allowance, large.allowance].map(u64::from), expected);
    }

    #[test]
    fn a_source_below_its_rate_loses_nothing() {
        assert_eq!(passed(8, 3 * OCTAVE), 80);
        assert_eq!(passed(24, 2 * OCTAVE), 240);
    }

    #[test]
    fn whoever_waits_as_long_as_it_is_told_gets_its_packet_and_hardly_sooner() {
        let (squeeze, cost_q8) = (Squeeze::of(SECOND_Q8, SECOND_Q8 / 100), SECOND_Q8 / 100);
        for pressure in [0, 100, 3 * OCTAVE, 4 * OCTAVE + 200] {
            let (mut word, mut now_q8) = (0, 5 * SECOND_Q8);
            while let Some(new) = take(word, &squeeze, now_q8, cost_q8, pressure) {
                assert_eq!(wait_q8(word, &squeeze, now_q8, cost_q8, pressure), 0);
                word = new;
            }
            now_q8 += SECOND_Q8 / 1000;
            let wait = wait_q8(word, &squeeze, now_q8, cost_q8, pressure);
            assert!(take(word, &squeeze, now_q8 + wait, cost_q8, pressure).is_some(), "{pressure}");
            assert!(take(word, &squeeze, now_q8 + wait / 10 * 9, cost_q8, pressure).is_none(), "{pressure}");
        }
        assert_eq!([0, OCTAVE / 2, OCTAVE, 3 * OCTAVE].map(percent), [100, 75, 50, 12]);
    }

    #[test]
    fn a_clock_that_is_a_little_behind_pays_nothing_off_and_one_that_went_round_does() {
        // 100 packets/s and a burst of 100.
        let (squeeze, cost_q8) = (Squeeze::of(SECOND_Q8, SECOND_Q8 / 100), SECOND_Q8 / 100);
        let mut word = 0;
        while let Some(new) = take(word, &squeeze, 5 * SECOND_Q8, cost_q8, 0) {
            word = new;
        }
        assert_eq!(take(word, &squeeze, 5 * SECOND_Q8 - SECOND_Q8 / 100, cost_q8, 0), None, "10 ms behind");
        assert!(take(word, &squeeze, 6 * SECOND_Q8, cost_q8, 0).is_some());
        // Longer ago than the time in a word can express.
        let round = (TIME_MASK + 1) << squeeze.fair_shift;
        assert!(take(word, &squeeze, (5 * SECOND_Q8).wrapping_add(round / 2), cost_q8, 0).is_some());
    }

    #[test]
    fn who_was_asked_for_a_connection_counts_as_asked_for_a_twentieth_of_a_second_and_others_do_not() {
        let now_q8 = u64::MAX - SECOND_Q8 / 20;
        let (one, other) = (0x1234_5678_9abc_def0, 0x1234_5678_aabc_def0);
        let word = asked(one, now_q8);
        for (later_ms, marked) in [(0, true), (45, true), (51, false), (5_000, false)] {
            let then_q8 = now_q8.wrapping_add(later_ms * SECOND_Q8 / 1000);
            assert_eq!(was_asked(word, one, then_q8), marked, "{later_ms} ms later");
        }
        assert!(!was_asked(word, other, now_q8));
        assert!(!was_asked(0, 0, SECOND_Q8), "nobody is marked in the beginning");
    }

    #[test]
    fn a_source_is_proven_for_ten_minutes_from_when_it_showed_a_connection() {
        let now_q8 = 5 * SECOND_Q8;
        let until_q8 = now_q8 + PROVEN_Q8;
        for (until_q8, now_q8, expected) in [
            (0, now_q8, Party::Tracked),
            // A time word of 0 means that the source was never proven, whatever time it is.
            (0, u64::MAX - 5, Party::Tracked),
            (until_q8, now_q8, Party::Proven),
            (until_q8, until_q8 - 1, Party::Proven),
            (until_q8, until_q8, Party::Tracked),
            (until_q8, until_q8 + 1, Party::Tracked),
            // A time further ahead than any source is proven: it was years ago.
            (until_q8 + 1, now_q8, Party::Tracked),
        ] {
            assert_eq!(party(until_q8, now_q8), expected, "{until_q8} at {now_q8}");
        }
        assert_eq!(PROVEN_Q8, 600 * SECOND_Q8);
    }

    #[test]
    fn who_is_proven_has_a_range_that_ends_half_beyond_what_a_prefix_may_owe() {
        let squeeze = Squeeze::of(SECOND_Q8, SECOND_Q8 / 100);
        let aggregation = Aggregation {
            tolerance_q8: SECOND_Q8,
            unproven_tolerance_q8: SECOND_Q8 / 4 * 3,
            squeeze,
            ..Aggregation::OFF
        };
        assert_eq!(end_q8(&aggregation, Party::Untracked), SECOND_Q8 / 4 * 3);
        assert_eq!(end_q8(&aggregation, Party::Tracked), SECOND_Q8 / 4 * 3);
        assert_eq!(end_q8(&aggregation, Party::Proven), SECOND_Q8 + SECOND_Q8 / 8);
        // After a policy has become stricter, a prefix may owe more than its tolerance.
        assert_eq!(pressure(&squeeze, 10 * SECOND_Q8, SECOND_Q8), OCTAVES * OCTAVE);
        assert_eq!(pressure(&squeeze, 1 << 61, SECOND_Q8), OCTAVES * OCTAVE);
    }

    #[test]
    fn a_packet_costs_one_unit_more_than_its_price_and_one_that_owes_nothing_may_be_dear() {
        let squeeze = Squeeze { fair_shift: 4, allowance: 10, ..Squeeze::NONE };
        let now_q8 = 1 << 20;
        let first = take(0, &squeeze, now_q8, 16 * 100, 0).unwrap();
        assert_eq!(first & DEBT_MASK, 101);
        assert_eq!(take(first, &squeeze, now_q8, 16, 0), None);
        // 101 units later nothing is owed.
        assert_eq!(take(first, &squeeze, now_q8 + 16 * 101, 16, 0).unwrap() & DEBT_MASK, 2);
        assert_eq!(
            take(first, &squeeze, now_q8 + 16 * 93, 16, 0).unwrap() & DEBT_MASK,
            10,
            "just the allowance"
        );
        assert_eq!(take(first, &squeeze, now_q8 + 16 * 92, 16, 0), None);
        assert_eq!((saturated(7), saturated(u64::MAX)), (7, u32::MAX));
    }

    #[test]
    fn a_cell_with_a_proven_source_is_known_for_ten_minutes_and_one_that_never_had_one_never_is() {
        for start in 0..600 {
            let now_q8 = 1_000 * SECOND_Q8 + start * (SECOND_Q8 * 8);
            let mark = proven_mark(now_q8);
            assert!((0..=600).all(|later| may_be_proven(mark, now_q8 + later * SECOND_Q8)), "{start}");
            assert!((660..3_700).all(|later| !may_be_proven(mark, now_q8 + later * SECOND_Q8)), "{start}");
            assert!(!may_be_proven(0, now_q8), "{start}");
        }
    }

    #[test]
    fn a_mark_says_until_when_a_source_counts_as_asked_whatever_tells_it_from_others() {
        // The 50 ms end at a whole step of a mark, so that nothing is lost to rounding.
        let now_q8 = (1 << 40) - ASKED_Q8;
        for hash in [0, 0x0000_ffff_ff00_0000, u64::MAX] {
            let word = asked(hash, now_q8);
            assert!(was_asked(word, hash, now_q8) && was_asked(word, hash, now_q8 + ASKED_Q8), "{hash:x}");
            assert!(
                !was_asked(word, hash, now_q8 - 1) && !was_asked(word, hash, now_q8 + ASKED_Q8 + 1),
                "{hash:x}"
            );
        }
    }

    #[test]
    fn an_allowance_that_no_word_can_hold_is_the_largest_that_one_can() {
        assert_eq!(Squeeze::of(1 << 12, 1 << 40).allowance, u32::MAX);
    }

    #[test]
    fn a_word_that_is_further_ahead_than_clocks_differ_was_written_long_ago() {
        let squeeze = Squeeze::of(1 << 24, 100);
        assert_eq!(squeeze.fair_shift, 1);
        let now = 1 << 30;
        let asked = |ahead: u64| take((now + ahead) << DEBT_BITS | DEBT_MASK, &squeeze, now << 1, 2, 0);
        assert_eq!(asked(AHEAD), None, "nothing of its debt is paid");
        assert!(asked(AHEAD + 1).is_some(), "all of its debt is paid");
    }
}
