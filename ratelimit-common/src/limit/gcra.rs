//! Token bucket as one word: the generic cell rate algorithm (GCRA).
//!
//! The state is the theoretical arrival time (TAT): the moment the bucket will be full again. Every unit
//! moves it `cost` further; a packet conforms if the TAT is then at most `tolerance` ahead of now.
//!
//! ```text
//!            now                 now + tolerance
//!   ----------|---------#----------------|-------->  time
//!             full      TAT              empty
//! ```
//!
//! Bound: any interval of length W admits at most burst + W / cost, whatever the order of calls. The
//! error is on one side only: charges round up, so a limit may admit less than its rate, by less than
//! 1/256 ns a packet (0.01 % at 25 million packets a second, less below), and never more.
//!
//! # Time in one word
//! Times are in 1/256 ns, so 64 bits wrap after 2.28 years, and comparisons use the
//! difference to now, never absolute values. A bucket that was idle for up to 1.71 years reads as
//! full. A bucket that was idle for longer may read as empty, and refills at its rate from there.
//!
//! # Many CPUs
//! An idle bucket starts again by compare-and-exchange, and a CPU that loses reads the word again. A busy bucket could be
//! changed in the same way, but many CPUs that charge one bucket would fail each other all the time. If the burst is large
//! enough, the charge is simply added, after a check that it conforms. Between check and addition every other CPU may add
//! once, so the bucket runs ahead of its tolerance by at most one charge per CPU; that much is taken out of the tolerance
//! beforehand. If the burst is too small for that, compare-and-exchange decides, and a packet that loses too often is refused.
//!
//! # Worked numbers
//! 5000 packets/s, burst 10000: cost 200 us = 51 200 000 units, tolerance 2 s. An idle source may send 10 000 at
//! once, which puts its TAT 2 s ahead; 200 us later one more conforms.

use crate::abi::{Limit, LimitSet, Meter};

/// Fraction bits of a time word.
pub const TIME_FRAC_BITS: u32 = 8;

/// Differences of this and more lie in the past: three quarters of the circle of time words.
const PAST_Q8: u64 = 1 << 62;

/// Largest tolerance a limit may have (104 days). Below `PAST_Q8`, with room for one more charge.
pub const MAX_TOLERANCE_Q8: u64 = 1 << 61;

/// Largest amount one frame can charge: the kernel's frames end well below 1 MiB.
pub const MAX_AMOUNT: u64 = 1 << 20;

/// Smallest frame that has a source, in bytes. If a limit refuses it, the limit refuses every other frame.
pub const SMALLEST_FRAME: u64 = 34;

/// Larger than any difference between the precise clocks of two CPUs, which are microseconds apart at most.
const CLOCK_SKEW_Q8: u64 = 1_000_000 << TIME_FRAC_BITS;

/// How far a word that sets of limits share, or that is written by either clock, may be beyond the tolerance of one of them before it counts as one of an
/// earlier policy.
pub const SHARED_ROOM_Q8: u64 = 1_000_000_000 << TIME_FRAC_BITS;

/// The largest frame in bytes that receive offloads build.
pub const LARGEST_FRAME: u64 = 65_536;

/// The answer of a bucket to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcraOutcome {
    /// The packet conforms, if this TAT can still be stored.
    Conforms {
        /// The word to store.
        tat_q8: u64,
    },
    /// The packet does not conform. Nothing is stored, so a flood only reads, unless the bucket was charged under an earlier limit: see [`settled_q8`].
    Refused,
}

/// A moment of the kernel's clock as a time word.
#[inline(always)]
pub const fn time_q8(now_ns: u64) -> u64 {
    now_ns << TIME_FRAC_BITS
}

/// The charge of `amount` units in 1/256 ns, rounded up; amounts above [`MAX_AMOUNT`] cost as much as that.
#[inline(always)]
pub const fn charge_q8(limit: &Limit, amount: u64) -> u64 {
    bounded_charge_q8(limit, if amount > MAX_AMOUNT { MAX_AMOUNT } else { amount })
}

/// The charge of `amount` units in 1/256 ns, rounded up, if the amount is at most [`MAX_AMOUNT`]. Without branches, which the verifier would follow.
#[inline(always)]
pub const fn bounded_charge_q8(limit: &Limit, amount: u64) -> u64 {
    // User space bounds cost_fp so that the product stays below 2^62 (limit::rate).
    let fp = amount.wrapping_mul(limit.cost_fp);
    let frac_bits = limit.frac_bits & 63;
    fp.wrapping_add((1 << frac_bits) - 1) >> frac_bits
}

/// How far a time word lies ahead of now, in 1/256 ns; 0 if it is past.
#[inline(always)]
pub const fn ahead_q8(moment_q8: u64, now_q8: u64) -> u64 {
    let difference = moment_q8.wrapping_sub(now_q8);
    if difference >= PAST_Q8 { 0 } else { difference }
}

/// Evaluates a charge of `charge_q8` to the bucket `tat_q8` at time `now_q8`.
#[inline(always)]
pub const fn take(tat_q8: u64, limit: &Limit, now_q8: u64, charge_q8: u64) -> GcraOutcome {
    take_restarting(tat_q8, limit, now_q8, charge_q8, Start::FULL)
}

/// What counts as spent of a bucket besides what its word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// A full bucket starts again with this much spent: see [`super::prefilter`].
    pub restart_q8: u64,
    /// At least this much counts as spent now, because a change of policy lost sight of what was spent: see [`owed_q8`].
    pub owed_q8: u64,
}

impl Start {
    /// A bucket that starts with its whole burst.
    pub const FULL: Self = Self::after(0);

    /// A bucket that, when full, starts again with `restart_q8` spent.
    #[inline(always)]
    pub const fn after(restart_q8: u64) -> Self {
        Self { restart_q8, owed_q8: 0 }
    }

    /// The start of a limit of a set.
    #[inline(always)]
    pub const fn of(set: &LimitSet, limit: &Limit, now_q8: u64) -> Self {
        Self { restart_q8: set.prefilter_tolerance_q8, owed_q8: owed_q8(set, limit.tolerance_q8, now_q8) }
    }

    /// What is spent of a bucket whose word is `ahead_q8` ahead.
    #[inline(always)]
    pub const fn spent_q8(self, ahead_q8: u64) -> u64 {
        let ahead = if ahead_q8 == 0 { self.restart_q8 } else { ahead_q8 };
        if ahead > self.owed_q8 { ahead } else { self.owed_q8 }
    }
}

/// What every source owes of a tolerance because a change of policy lost sight of what it had spent: all that it may have spent at that
/// moment, less what has filled up since. So a change may refuse more for a moment, and never admits more.
#[inline(always)]
pub const fn owed_q8(set: &LimitSet, tolerance_q8: u64, now_q8: u64) -> u64 {
    if set.owed_q8 == 0 {
        return 0;
    }
    let at_first = if set.owed_q8 < tolerance_q8 { set.owed_q8 } else { tolerance_q8 };
    let left = ahead_q8(set.owed_since_q8.wrapping_add(at_first), now_q8);
    if left <= at_first {
        left
    } else if left <= at_first + SOON_Q8 {
        at_first
    } else {
        // Time words have wrapped: the change was years ago.
        0
    }
}

/// Whether packets above a limit of a set pass now, and are counted apart.
#[inline(always)]
pub const fn has_margin(set: &LimitSet, limit: &Limit, now_q8: u64) -> bool {
    // A beginning further ahead than any bucket takes to fill was years ago: time words have wrapped.
    let begins = matches!(ahead_q8(set.margins_from_q8, now_q8), 1..=MAX_TOLERANCE_Q8);
    limit.is_soft() && !limit.is_held() && (set.margins_from_q8 == 0 || !begins)
}

/// How far ahead the beginning of a debt may lie: a policy takes a moment from being compiled to being in force,
/// and one for other maps is in force before the links have the program that reads them, for which a busy kernel takes half a minute.
pub const SOON_Q8: u64 = 64_000_000_000 << TIME_FRAC_BITS;

/// Evaluates a charge of `charge_q8` to the bucket `tat_q8` at time `now_q8`, if some of it counts as spent whatever its word says.
#[inline(always)]
pub const fn take_restarting(
    tat_q8: u64,
    limit: &Limit,
    now_q8: u64,
    charge_q8: u64,
    start: Start,
) -> GcraOutcome {
    let ahead = start.spent_q8(ahead_q8(tat_q8, now_q8));
    // Both terms are below 2^62.
    let after = ahead + charge_q8;
    if after <= limit.tolerance_q8 {
        GcraOutcome::Conforms { tat_q8: now_q8.wrapping_add(after) }
    } else {
        GcraOutcome::Refused
    }
}

/// The word of a bucket, or an exactly empty one in its place if the bucket was charged under a limit that took longer to fill.
///
/// No packet under the limit in force moves a word further ahead of the precise clock than `most_q8`: the tolerance, and the [`room_q8`] of additions. A word that is
/// further ahead is from before a change, and its source would be refused until the time of the old limit has passed. It is never moved to less than the
/// tolerance, so nothing is given.
#[inline(always)]
pub const fn settled_q8(tat_q8: u64, most_q8: u64, tolerance_q8: u64, now_q8: u64) -> u64 {
    if ahead_q8(tat_q8, now_q8) > most_q8 + CLOCK_SKEW_Q8 {
        now_q8.wrapping_add(tolerance_q8)
    } else {
        tat_q8
    }
}

/// How far additions may move a bucket of a set beyond its tolerance: every CPU may add its largest charge after it looked. 0 if the bucket is charged by exchange.
#[inline(always)]
pub const fn room_q8(set: &LimitSet, index: usize) -> u64 {
    if set.adds & (1 << index) == 0 {
        return 0;
    }
    largest_charge_q8(&set.limits[index]).wrapping_mul(set.cpus())
}

/// The charge of the largest frame under a limit.
#[inline(always)]
pub const fn largest_charge_q8(limit: &Limit) -> u64 {
    let amount = if limit.meter == Meter::Bytes as u32 { LARGEST_FRAME } else { 1 };
    bounded_charge_q8(limit, amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::limit::cpus;

    #[test]
    fn more_than_the_largest_amount_costs_what_that_does() {
        let limit = Limit { cost_fp: 5, tolerance_q8: 1 << 40, frac_bits: 1, meter: 0 };
        assert_eq!([1, 2, 3].map(|amount| charge_q8(&limit, amount)), [3, 5, 8], "rounded up");
        let most = MAX_AMOUNT / 2 * 5;
        assert_eq!([MAX_AMOUNT, MAX_AMOUNT + 1, u64::MAX].map(|amount| charge_q8(&limit, amount)), [most; 3]);
    }

    const NOW_Q8: u64 = 77 << 40;

    #[test]
    fn a_bucket_admits_up_to_its_tolerance() {
        let limit = Limit { cost_fp: 1, tolerance_q8: 1_000, frac_bits: 0, meter: 0 };
        let asked = |ahead, charge| take(NOW_Q8 + ahead, &limit, NOW_Q8, charge);
        assert_eq!(asked(400, 600), GcraOutcome::Conforms { tat_q8: NOW_Q8 + 1_000 });
        assert_eq!(asked(400, 601), GcraOutcome::Refused);
        assert_eq!(time_q8(3), 768, "a nanosecond has 256 steps");
    }

    #[test]
    fn a_word_from_before_a_change_is_settled_empty() {
        let settled = |ahead| settled_q8(NOW_Q8.wrapping_add(ahead), 1_200, 1_000, NOW_Q8);
        for ahead in [0, 1_000, 1_200, 1_200 + CLOCK_SKEW_Q8] {
            assert_eq!(settled(ahead), NOW_Q8 + ahead, "{ahead}");
        }
        for ahead in [1_201 + CLOCK_SKEW_Q8, MAX_TOLERANCE_Q8] {
            assert_eq!(settled(ahead), NOW_Q8 + 1_000, "{ahead}");
        }
        assert_eq!(settled(0_u64.wrapping_sub(5)), NOW_Q8 - 5, "a full bucket");
    }

    #[test]
    fn every_cpu_may_add_its_largest_charge() {
        let limit = |meter: Meter| Limit { cost_fp: 7, tolerance_q8: 1, frac_bits: 0, meter: meter as u32 };
        let limits = [Meter::Packets, Meter::Bytes, Meter::Syns, Meter::Packets].map(limit);
        let set = LimitSet { adds: 0b11 | cpus(3), limits, ..LimitSet::NONE };
        assert_eq!([0, 1, 2, 3].map(|index| room_q8(&set, index)), [21, 21 << 16, 0, 0]);
    }

    #[test]
    fn what_a_change_of_policy_lost_sight_of_is_owed_until_it_has_filled_up() {
        let set = LimitSet { owed_q8: 100, owed_since_q8: NOW_Q8, ..LimitSet::NONE };
        let owed = |tolerance, now| owed_q8(&set, tolerance, now);
        for (tolerance, later, left) in
            [(60, 0, 60), (60, 10, 50), (60, 60, 0), (60, 9_999, 0), (1_000, 30, 70)]
        {
            assert_eq!(owed(tolerance, NOW_Q8 + later), left, "{tolerance}, {later} later");
        }
        // The policy is in force soon: the whole debt is owed until then. A time further ahead was years ago.
        assert_eq!([1, SOON_Q8, SOON_Q8 + 1].map(|before| owed(60, NOW_Q8 - before)), [60, 60, 0]);
        assert_eq!(owed_q8(&LimitSet { owed_q8: 0, ..set }, 60, NOW_Q8), 0);
    }

    #[test]
    fn the_margin_of_a_soft_limit_is_open_from_its_beginning_on_unless_it_is_held() {
        use crate::abi::limit::{HELD, SOFT};
        let margin = |frac_bits, margins_from_q8, now_q8| {
            let set = LimitSet { margins_from_q8, ..LimitSet::NONE };
            has_margin(&set, &Limit { frac_bits, ..Limit::UNUSED }, now_q8)
        };
        assert!(margin(SOFT, 0, NOW_Q8) && margin(SOFT, 0, u64::MAX - 5), "0 is no moment");
        assert!(!margin(0, 0, NOW_Q8) && !margin(SOFT | HELD, 0, NOW_Q8));
        assert!(!margin(0, NOW_Q8 - 1, NOW_Q8) && !margin(SOFT | HELD, NOW_Q8 - 1, NOW_Q8));
        assert!(margin(SOFT, NOW_Q8, NOW_Q8) && margin(SOFT, NOW_Q8 - 1, NOW_Q8));
        assert!(!margin(SOFT, NOW_Q8 + 1, NOW_Q8) && !margin(SOFT, NOW_Q8 + MAX_TOLERANCE_Q8, NOW_Q8));
        assert!(margin(SOFT, NOW_Q8 + MAX_TOLERANCE_Q8 + 1, NOW_Q8), "that was years ago");
    }
}
