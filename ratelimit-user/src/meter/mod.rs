//! The algorithms of request limits. Each keeps a few words per key, all zero for a new key, and implements [`Counting`] on them.
//!
//! | algorithm | words | most in any interval W of its window's length | least |
//! |---|---|---|---|
//! | `bucket` | 2 | burst + rate x W | burst + rate x W, for a key that asks all the time |
//! | `soft` | 4 | as `bucket`, with the margin in burst and rate; also tells what is above the limit | as `bucket`, with the margin |
//! | `fixed` | 1 | 2 x limit, across an edge | the limit in every aligned window |
//! | `sliding` | 32 | **the limit** | the limit in every 61/60 windows |
//! | `weighted` | 2 | 2 x limit - 1, across an edge | the limit less the estimate for the window before |
//! | `log` | 1 + one per counted unit, up to the limit or a larger limit before it | **the limit** | the limit |
//!
//! Pure: the time (microseconds since 1970) and the words are arguments. `left` and `wait` only look. `charge` charges whether the units are left
//! or not, because a caller looks at every limit of a key first and then charges all of them or none. Numbers are integers, and below 2^53 where
//! `store/scripts/record.lua`, which has doubles, must count alike.
//!
//! A clock that steps back frees nothing: counts that were written at a later time stay and count.

mod bucket;
pub mod calendar;
mod fixed;
mod log;
mod part;
mod sliding;
mod soft;
mod weighted;

pub use self::{
    bucket::RequestBucket, fixed::Fixed, log::Log, sliding::Sliding, soft::Soft, weighted::Weighted,
};

use ratelimit_common::limit::manner::Algorithm;

use self::calendar::Calendar;
use crate::policy::RequestLimit;

/// Returns the bit that stands for the `nth` limit of an allowance. Limits from the 52nd on share a bit: the store's numbers have room for 52.
pub(crate) const fn bit(nth: usize) -> u64 {
    1 << if nth < 51 { nth } else { 51 }
}

/// One limit: how the units of a key are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A bucket that fills, or leaks, at a rate.
    Bucket(RequestBucket),
    /// A bucket with a soft margin, and beside it the bucket of the limit alone, which tells what is above the limit.
    Soft(Soft),
    /// A count per window of the clock or the calendar.
    Fixed(Fixed),
    /// A sliding window, by counters of its sub-windows.
    Sliding(Sliding),
    /// A sliding window, by an estimate from two counters.
    Weighted(Weighted),
    /// A sliding log, by the time of every unit.
    Log(Log),
}

/// The wait, in microseconds, for something that will never be possible.
pub const NEVER_US: u64 = u64::MAX;

/// Calls a method of the algorithm inside a [`Meter`].
macro_rules! each {
    ($meter:expr, $inner:ident => $answer:expr) => {
        match $meter {
            Meter::Bucket($inner) => $answer,
            Meter::Soft($inner) => $answer,
            Meter::Fixed($inner) => $answer,
            Meter::Sliding($inner) => $answer,
            Meter::Weighted($inner) => $answer,
            Meter::Log($inner) => $answer,
        }
    };
}

/// What every algorithm answers about the words of a key. Times are in microseconds. Its `impl` is in the file of the algorithm, and [`Meter`] passes calls on.
pub trait Counting: Sized {
    /// Returns how many words a key takes at most.
    fn words(&self) -> usize;
    /// Returns the units that a new key may have at once.
    fn capacity(&self) -> u64;
    /// Returns the units that a key may have now.
    fn left(&self, words: &[u64], now_us: u64) -> u64;
    /// Returns the units that count now, also those beyond the capacity that a larger limit has counted.
    fn used(&self, words: &[u64], now_us: u64) -> u64 {
        let wide = self.scaled(1, 1, u32::MAX.into());
        wide.capacity() - wide.left(words, now_us)
    }
    /// Takes `units`, whether they are left or not.
    fn charge(&self, words: &mut [u64], now_us: u64, units: u64);
    /// Gives back `units`, at most the capacity, that were taken `age_us` ago and not used: [`Meter::refund`].
    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool;
    /// Returns how long until `units`, at most the capacity, are left if nobody takes any; 0 if they are left now.
    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64;
    /// Returns how long until a key has one unit more than now: [`Meter::more`].
    #[inline]
    fn more(&self, words: &[u64], now_us: u64, held_back: u64) -> u64 {
        let one_more = self.left(words, now_us).max(held_back) + 1;
        if one_more > self.capacity() { 0 } else { self.wait(words, now_us, one_more) }
    }
    /// Returns how long until a key has its whole capacity again: [`Meter::reset`].
    fn reset(&self, words: &[u64], now_us: u64) -> u64;
    /// Returns how long until a key of which `used` units, at least one, are used has its whole capacity again: exact, or a whole window.
    fn reset_from(&self, used: u64, now_us: u64) -> u64;
    /// Names the format of the words. Words that were written under another layout mean nothing.
    fn layout(&self) -> String;
    /// Returns the limit in the numbers of the store's script: kind, a, b, c.
    fn script(&self, now_us: u64) -> [u64; 4];
    /// Returns the limit with `numerator / denominator` of its rate, and with `capacity`. A window has no rate of its own and keeps its length.
    fn scaled(&self, numerator: u64, denominator: u64, capacity: u64) -> Self;
    /// Returns how long until none of `used` units counts any more. Twice [`Counting::reset_from`] by default: in sliding windows the window before still counts.
    fn forgets_us(&self, used: u64, now_us: u64) -> u64 {
        2 * self.reset_from(used, now_us)
    }
    /// Returns the bucket that refuses, if the algorithm is a bucket.
    fn bucket(&self) -> Option<&RequestBucket> {
        None
    }
    /// Names algorithm and window: [`Meter::kin`].
    fn kin(&self) -> String {
        self.layout()
    }
    /// Whether the words hold every unit, so that their number grows with the limit.
    fn keeps_every_unit(&self) -> bool {
        false
    }
    /// Makes room for `units` units, if the words hold every unit.
    fn make_room(&mut self, _units: u64) {}
    /// Returns the calendar that the windows follow, if there is one.
    fn calendar(&self) -> Option<&Calendar> {
        None
    }
}

impl Meter {
    /// Makes the meter of a limit, with `percent` percent more than its amount and burst.
    pub fn of(limit: &RequestLimit, percent: u32, now_us: u64) -> Self {
        let rate = &limit.rate;
        let wide = |number: u64| with_percent(number, percent);
        let period_us = rate.period.ns() / 1_000;
        match rate.manner.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let own = RequestBucket::new(rate.amount, period_us, rate.burst);
                match rate.manner.margin(true) {
                    0 => Self::Bucket(own),
                    margin => Self::Soft(Soft::new(own, percent, margin)),
                }
            }
            Algorithm::FixedWindow => Self::Fixed(Fixed::of(limit, wide(rate.amount), now_us)),
            Algorithm::SlidingWindow => Self::Sliding(Sliding::new(wide(rate.amount), period_us)),
            Algorithm::SlidingWindowWeighted => Self::Weighted(Weighted::new(wide(rate.amount), period_us)),
            Algorithm::SlidingLog => Self::Log(Log::new(wide(rate.amount), period_us)),
        }
    }

    /// Returns the limit with `numerator / denominator` of its rate, and with `capacity`.
    fn scaled(&self, numerator: u64, denominator: u64, capacity: u64) -> Self {
        match self {
            Self::Bucket(inner) => Self::Bucket(inner.scaled(numerator, denominator, capacity)),
            Self::Soft(inner) => Self::Soft(inner.scaled(numerator, denominator, capacity)),
            Self::Fixed(inner) => Self::Fixed(inner.scaled(numerator, denominator, capacity)),
            Self::Sliding(inner) => Self::Sliding(inner.scaled(numerator, denominator, capacity)),
            Self::Weighted(inner) => Self::Weighted(inner.scaled(numerator, denominator, capacity)),
            Self::Log(inner) => Self::Log(inner.scaled(numerator, denominator, capacity)),
        }
    }

    /// Returns how many words a key takes at most.
    pub fn words(&self) -> usize {
        each!(self, inner => inner.words())
    }

    /// Returns the units that a new key may have at once.
    #[inline]
    pub fn capacity(&self) -> u64 {
        each!(self, inner => inner.capacity())
    }

    /// Returns the units that a key may have now.
    #[inline]
    pub fn left(&self, words: &[u64], now_us: u64) -> u64 {
        each!(self, inner => inner.left(words, now_us))
    }

    /// Takes `units`, whether they are left or not.
    #[inline]
    pub fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        each!(self, inner => inner.charge(words, now_us, units));
    }

    /// Gives back `units` that were taken `age_us` ago and not used; an age of 0 matches units of any age. A bucket gives back what it still owes for
    /// them. A window gives back all of them, or nothing if fewer units of that age still count. Returns whether anything came back.
    pub fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        units <= self.capacity() && each!(self, inner => inner.refund(words, now_us, age_us, units))
    }

    /// Returns the bucket that refuses, if the limit is a bucket: of a soft bucket, the one with the margin.
    pub fn bucket(&self) -> Option<&RequestBucket> {
        each!(self, inner => inner.bucket())
    }

    /// Returns the microseconds until `units` are left if nobody takes any; 0 if they are left now, [`NEVER_US`] if they never will be.
    #[inline]
    pub fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        if units > self.capacity() {
            return NEVER_US;
        }
        each!(self, inner => inner.wait(words, now_us, units))
    }

    /// Returns the microseconds until a key has its whole capacity again, if nobody takes any. Once something is used, a fixed window has it at its end.
    #[inline]
    pub fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        each!(self, inner => inner.reset(words, now_us))
    }

    /// Returns the microseconds until a key has one unit more than now, not counting `held_back` units; 0 if it has its whole capacity.
    #[inline]
    pub fn more(&self, words: &[u64], now_us: u64, held_back: u64) -> u64 {
        each!(self, inner => inner.more(words, now_us, held_back))
    }

    /// Returns the longest wait, in microseconds, until a key with `left` units has one more: the time of one unit for buckets, the rest of the window
    /// for fixed windows, a whole window for the others.
    pub fn more_from(&self, left: u64, now_us: u64) -> u64 {
        match self.bucket() {
            _ if left >= self.capacity() => 0,
            Some(bucket) => bucket.period_us().div_ceil(bucket.amount()),
            None => self.reset_from(left, now_us),
        }
    }

    /// Returns the microseconds until a key with `left` units has its whole capacity again: exact for buckets and fixed windows, a whole window for the others.
    pub fn reset_from(&self, left: u64, now_us: u64) -> u64 {
        match self.capacity().saturating_sub(left) {
            0 => 0,
            used => each!(self, inner => inner.reset_from(used, now_us)),
        }
    }

    /// Returns the units that are left at least at `now_us`, if `left` were left at `then_us` and nobody has taken any since.
    pub fn left_since(&self, left: u64, then_us: u64, now_us: u64) -> u64 {
        let passed_us = now_us.saturating_sub(then_us);
        if let Some(bucket) = self.bucket() {
            let refilled = passed_us.saturating_mul(bucket.amount()) / bucket.period_us();
            return left.saturating_add(refilled).min(self.capacity());
        }
        let used = self.capacity().saturating_sub(left);
        let forgotten = used == 0 || passed_us >= each!(self, inner => inner.forgets_us(used, then_us));
        if forgotten { self.capacity() } else { left }
    }

    /// Names the format of the words. Words that were written under another layout mean nothing.
    pub fn layout(&self) -> String {
        each!(self, inner => inner.layout())
    }

    /// Names algorithm and window. Limits with equal names count alike, whatever their numbers and margins are, so words can be carried over.
    pub fn kin(&self) -> String {
        each!(self, inner => inner.kin())
    }

    /// Whether `other` is the same limit. The room in the ring of a log is not compared.
    pub fn is_same_limit(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Log(one), Self::Log(other)) => one.with_room(0) == other.with_room(0),
            (one, other) => one == other,
        }
    }

    /// Makes room for `units` units, if the words hold every unit.
    pub fn make_room(&mut self, units: u64) {
        each!(self, inner => inner.make_room(units));
    }

    /// Returns how many words a key takes in a table. A log takes one, which says where its ring is.
    pub fn words_in_table(&self) -> usize {
        if self.keeps_every_unit() { 1 } else { self.words() }
    }

    /// Whether the words hold every unit, so that their number grows with the limit.
    pub fn keeps_every_unit(&self) -> bool {
        each!(self, inner => inner.keeps_every_unit())
    }

    /// Converts the words of a key that `from` has counted. A meter that counts in another way goes on with the units that count now, as if they had been taken at
    /// this moment: it may count them for longer, and never for less.
    pub fn carried(&self, from: &Self, words: &[u64], now_us: u64) -> Vec<u64> {
        match (from, self) {
            (Self::Bucket(from), Self::Bucket(to)) => to.carried(from, words).to_vec(),
            (Self::Bucket(from), Self::Soft(to)) => to.carried(from, from, words, words).to_vec(),
            (Self::Soft(from), Self::Bucket(to)) => to.carried(from.whole(), words).to_vec(),
            (Self::Soft(from), Self::Soft(to)) => {
                to.carried(from.whole(), from.own(), words, Soft::own_words(words)).to_vec()
            }
            (Self::Log(from), Self::Log(to)) => to.carried(from, words),
            (from, to) if from.kin() == to.kin() => words.to_vec(),
            (from, to) => to.recounted(each!(from, inner => inner.used(words, now_us)), now_us),
        }
    }

    /// Returns the words of a key that has taken `units` at this moment and nothing before.
    fn recounted(&self, units: u64, now_us: u64) -> Vec<u64> {
        let size = match self {
            Self::Log(log) => log.words_for(units),
            _ => self.words(),
        };
        let mut words = vec![0; size];
        self.charge(&mut words, now_us, units);
        words
    }

    /// Returns the microseconds until nothing counts any more of a key that has used its whole capacity.
    pub fn forgets_us(&self, now_us: u64) -> u64 {
        each!(self, inner => inner.forgets_us(self.capacity(), now_us))
    }

    /// Returns the limit in the numbers of the store's script: kind, a, b, c. `now_us` selects the day or month of a limit with a calendar.
    pub fn script(&self, now_us: u64) -> [u64; 4] {
        each!(self, inner => inner.script(now_us))
    }

    /// Returns the calendar that the windows follow, if there is one.
    pub fn calendar(&self) -> Option<&Calendar> {
        each!(self, inner => inner.calendar())
    }
}

/// Returns a number with `percent` percent more, rounded down.
fn with_percent(number: u64, percent: u32) -> u64 {
    (u128::from(number) * (100 + u128::from(percent)) / 100) as u64
}

/// Splits a word into its upper and its lower 32 bits.
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

const fn joined(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}

/// Returns a count in 32 bits. Larger counts become the largest number of 32 bits.
fn counted(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
