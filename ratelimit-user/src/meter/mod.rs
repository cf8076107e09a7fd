//! The algorithms. Each keeps a few words per key, all zero for a key that is new, and answers the same questions about them.
//!
//! | algorithm | words | most in any interval W of its window's length | least |
//! |---|---|---|---|
//! | `bucket` | 2 | burst + rate x W | the same, for whoever always asks |
//! | `soft` | 4 | the same with its margin, and which of it is above | the same |
//! | `fixed` | 1 | 2 x limit, across an edge | the limit in every aligned window |
//! | `sliding` | 32 | **the limit** | the limit in every 61/60 windows |
//! | `weighted` | 2 | 2 x limit - 1, across an edge | limit less what the estimate says of before |
//! | `log` | 1 + what it has counted, up to the limit or a larger one before | **the limit** | the limit |
//!
//! Pure: time is an argument, in microseconds since 1970, and so are the words. `left` and `wait` only look; `charge` charges whether it fits or
//! not, because whoever asks looks at every limit of a key first and then charges all of them or none. Whole numbers only, and below 2^53 where
//! `store/scripts/record.lua` has to count alike.
//!
//! A clock that steps back gives nothing: what was written later stays as it is, and counts.

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

/// The bit of a limit among those of its allowance. Nobody writes as many as 52, which is what the store's numbers have room for.
pub(crate) const fn bit(nth: usize) -> u64 {
    1 << if nth < 51 { nth } else { 51 }
}

/// One limit of one key: how it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A bucket that fills, or leaks, at a rate.
    Bucket(RequestBucket),
    /// A bucket with a margin above it, which tells what is above.
    Soft(Soft),
    /// So many in every window that the clock counts.
    Fixed(Fixed),
    /// So many in any window, by counters of parts of it.
    Sliding(Sliding),
    /// So many in any window, by an estimate from two counters.
    Weighted(Weighted),
    /// So many in any window, by the time of every request.
    Log(Log),
}

/// When something will be possible.
pub const NEVER_US: u64 = u64::MAX;

/// Passes one question on to the algorithm.
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

/// What every algorithm answers about the words of a key. Its file has its `impl`, and [`Meter`] a line for it.
pub trait Counting: Sized {
    /// Words that it keeps for a key.
    fn words(&self) -> usize;
    /// What a key that is new may have at once.
    fn capacity(&self) -> u64;
    /// What a key may have now.
    fn left(&self, words: &[u64], now_us: u64) -> u64;
    /// Takes so many units, whether they are there or not.
    fn charge(&self, words: &mut [u64], now_us: u64, units: u64);
    /// Gives back units, at most the capacity, that were taken so long ago and not used: [`Meter::refund`].
    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool;
    /// How long until so many units, at most the capacity, are there if nobody takes any; 0 if they are now.
    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64;
    /// How long until a key has one unit more than it has: [`Meter::more`].
    #[inline]
    fn more(&self, words: &[u64], now_us: u64, held_back: u64) -> u64 {
        let one_more = self.left(words, now_us).max(held_back) + 1;
        if one_more > self.capacity() { 0 } else { self.wait(words, now_us, one_more) }
    }
    /// How long until a key has everything again: [`Meter::reset`].
    fn reset(&self, words: &[u64], now_us: u64) -> u64;
    /// How long until a key has everything again of which so much, more than nothing, is used: exact, or a whole window.
    fn reset_from(&self, used: u64, now_us: u64) -> u64;
    /// What tells its words from those of any other: state that was written under another layout means nothing.
    fn layout(&self) -> String;
    /// The limit in the numbers of the store's script: kind, a, b, c.
    fn script(&self, now_us: u64) -> [u64; 4];
    /// A part of it: `numerator / denominator` of its rate, and this capacity.
    fn scaled(&self, numerator: u64, denominator: u64, capacity: u64) -> Self;
    /// How long until nothing counts any more of what was used; a window that slides has something of the one before.
    fn forgets_us(&self, used: u64, now_us: u64) -> u64 {
        2 * self.reset_from(used, now_us)
    }
    /// The bucket that refuses, if it is one.
    fn bucket(&self) -> Option<&RequestBucket> {
        None
    }
    /// Algorithm and window: [`Meter::kin`].
    fn kin(&self) -> String {
        self.layout()
    }
    /// Whether its words grow with its numbers: it keeps every unit.
    fn keeps_every_unit(&self) -> bool {
        false
    }
    /// Has room for so many units, if it keeps every one of them.
    fn make_room(&mut self, _units: u64) {}
    /// The calendar that its windows follow, if they do.
    fn calendar(&self) -> Option<&Calendar> {
        None
    }
}

impl Meter {
    /// The meter of a limit, with so many percent on top.
    pub fn of(limit: &RequestLimit, percent: u32, now_us: u64) -> Self {
        let rate = &limit.rate;
        let wide = |number: u64| (u128::from(number) * (100 + u128::from(percent)) / 100) as u64;
        let period_us = rate.period.ns() / 1_000;
        match rate.manner.algorithm {
            // A hundred periods, so that percents are whole; the same with and without them, so that words mean the same.
            Algorithm::TokenBucket | Algorithm::LeakyBucket if rate.manner.margin(true) > 0 => {
                let bucket = |percent: u32, burst| {
                    RequestBucket::new(rate.amount * (100 + u64::from(percent)), period_us * 100, burst)
                };
                Self::Soft(Soft::new(bucket(percent, wide(rate.burst)), bucket(0, rate.burst)))
            }
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self::Bucket(RequestBucket::new(rate.amount, period_us, rate.burst))
            }
            Algorithm::FixedWindow => Self::Fixed(Fixed::of(limit, wide(rate.amount), now_us)),
            Algorithm::SlidingWindow => Self::Sliding(Sliding::new(wide(rate.amount), period_us)),
            Algorithm::SlidingWindowWeighted => Self::Weighted(Weighted::new(wide(rate.amount), period_us)),
            Algorithm::SlidingLog => Self::Log(Log::new(wide(rate.amount), period_us)),
        }
    }

    /// A part of it: `numerator / denominator` of its rate, and this capacity.
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

    /// Words that it keeps for a key at most.
    pub fn words(&self) -> usize {
        each!(self, inner => inner.words())
    }

    /// What a key that is new may have at once.
    #[inline]
    pub fn capacity(&self) -> u64 {
        each!(self, inner => inner.capacity())
    }

    /// What a key may have now.
    #[inline]
    pub fn left(&self, words: &[u64], now_us: u64) -> u64 {
        each!(self, inner => inner.left(words, now_us))
    }

    /// Takes so many units, whether they are there or not.
    #[inline]
    pub fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        each!(self, inner => inner.charge(words, now_us, units));
    }

    /// Gives back units that were taken so long ago and not used; an age of 0 is any. All of them, or what a bucket still owes for them, or
    /// nothing: where less was taken than that, of what still counts, it was none of this. Whether anything came back.
    pub fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        units <= self.capacity() && each!(self, inner => inner.refund(words, now_us, age_us, units))
    }

    /// The bucket that refuses, if it is one.
    pub fn bucket(&self) -> Option<&RequestBucket> {
        each!(self, inner => inner.bucket())
    }

    /// How long until so many units are there, if nobody takes any; 0 if they are now, [`NEVER_US`] if they never will be.
    #[inline]
    pub fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        if units > self.capacity() {
            return NEVER_US;
        }
        each!(self, inner => inner.wait(words, now_us, units))
    }

    /// How long until a key has everything again, if nobody takes any; for windows of which something is used until the one ends that counts now.
    #[inline]
    pub fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        each!(self, inner => inner.reset(words, now_us))
    }

    /// How long until a key has one unit more than it has, of those above `held_back`; 0 if it has everything.
    #[inline]
    pub fn more(&self, words: &[u64], now_us: u64, held_back: u64) -> u64 {
        each!(self, inner => inner.more(words, now_us, held_back))
    }

    /// How long until a key of which this is left has one unit more, at most: until the next one for buckets, the end of a fixed window, and
    /// a whole window for the others.
    pub fn more_from(&self, left: u64, now_us: u64) -> u64 {
        match self.bucket() {
            _ if left >= self.capacity() => 0,
            Some(bucket) => bucket.period_us().div_ceil(bucket.amount()),
            None => self.reset_from(left, now_us),
        }
    }

    /// How long until a key has everything again of which this is left: exact for buckets and fixed windows, a whole window for the others.
    pub fn reset_from(&self, left: u64, now_us: u64) -> u64 {
        match self.capacity().saturating_sub(left) {
            0 => 0,
            used => each!(self, inner => inner.reset_from(used, now_us)),
        }
    }

    /// What is left at least if so much was left then and nobody has taken any since.
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

    /// What tells its words from those of any other: state that was written under another layout means nothing.
    pub fn layout(&self) -> String {
        each!(self, inner => inner.layout())
    }

    /// Algorithm and window: limits that have them in common count alike, whatever their numbers and margins are.
    pub fn kin(&self) -> String {
        each!(self, inner => inner.kin())
    }

    /// Whether it is the same limit, whatever room its words have.
    pub fn is_same_limit(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Log(one), Self::Log(other)) => one.with_room(0) == other.with_room(0),
            (one, other) => one == other,
        }
    }

    /// Has room for so many units, if it keeps every one of them.
    pub fn make_room(&mut self, units: u64) {
        each!(self, inner => inner.make_room(units));
    }

    /// Words of a key in a table: all of them, but of what keeps every unit only where those are.
    pub fn words_in_table(&self) -> usize {
        if self.keeps_every_unit() { 1 } else { self.words() }
    }

    /// Whether its words grow with its numbers: it keeps every unit.
    pub fn keeps_every_unit(&self) -> bool {
        each!(self, inner => inner.keeps_every_unit())
    }

    /// Words as this meter has them, of a key that was counted by another of its kin.
    pub fn carried(&self, from: &Self, words: &[u64]) -> Vec<u64> {
        match (from, self) {
            (Self::Bucket(from), Self::Bucket(to)) => to.carried(from, words).to_vec(),
            (Self::Bucket(from), Self::Soft(to)) => to.carried(from, from, words, words).to_vec(),
            (Self::Soft(from), Self::Bucket(to)) => to.carried(from.whole(), words).to_vec(),
            (Self::Soft(from), Self::Soft(to)) => {
                to.carried(from.whole(), from.own(), words, Soft::own_words(words)).to_vec()
            }
            (Self::Log(from), Self::Log(to)) => to.carried(from, words),
            _ => words.to_vec(),
        }
    }

    /// How long until nothing counts any more of a key that has used everything.
    pub fn forgets_us(&self, now_us: u64) -> u64 {
        each!(self, inner => inner.forgets_us(self.capacity(), now_us))
    }

    /// The limit in the numbers of the store's script: kind, a, b, c. `now_us` says which day it is, for limits by a calendar.
    pub fn script(&self, now_us: u64) -> [u64; 4] {
        each!(self, inner => inner.script(now_us))
    }

    /// The calendar that its windows follow, if they do.
    pub fn calendar(&self) -> Option<&Calendar> {
        each!(self, inner => inner.calendar())
    }
}

/// Two counts in one word.
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

const fn joined(high: u32, low: u32) -> u64 {
    ((high as u64) << 32) | low as u64
}

/// A count as it fits in half a word. What is beyond counts as much as there can be.
fn counted(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
