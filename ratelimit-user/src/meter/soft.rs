//! A bucket with a soft margin, and beside it the bucket of the limit alone, which tells what is above the limit.
//!
//! A margin admits more at once and more in the long run. A key that is a little faster than the limit never empties the bucket with the margin, so the
//! level of that bucket does not tell what is above the limit: of 105 a second at a limit of 100 with 10 percent of margin, five are above in every
//! second. The bucket of the limit alone is charged only with what fits in it; everything else is above the limit.

use super::{Counting, RequestBucket, with_percent};
use crate::policy::largest_burst;

/// Number of words: those of the bucket with the margin, then those of the bucket of the limit alone.
pub(super) const WORDS: usize = 4;
/// Index of the first word of the bucket of the limit alone.
const OWN: usize = 2;

/// Over so many periods, amounts with percents on top are whole.
const PERIODS: u64 = 100;

/// Two buckets with the same period, so that their words have the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    whole: RequestBucket,
    own: RequestBucket,
    /// How many periods of the limit the period of the buckets is: [`PERIODS`] or one.
    periods: u64,
}

impl Soft {
    /// Makes the buckets of a limit of `own`, with `percent` percent more in the bucket that refuses; `margin` is the most that `percent` may ever be.
    ///
    /// Where a hundred periods are too many for the store to count the burst exactly, the buckets have the limit's own period, and the rate with its margin is rounded down to
    /// whole units in a period. The period does not depend on `percent`, so words keep their unit when that changes.
    pub fn new(own: RequestBucket, percent: u32, margin: u32) -> Self {
        let burst = u128::from(with_percent(own.capacity(), margin));
        let fits = burst <= largest_burst(u128::from(own.period_us()) * u128::from(PERIODS));
        let periods = if fits { PERIODS } else { 1 };
        let of = |percent: u32| {
            let (amount, burst) = (own.amount() * periods, own.capacity());
            RequestBucket::new(
                with_percent(amount, percent),
                own.period_us() * periods,
                with_percent(burst, percent),
            )
        };
        Self { whole: of(percent), own: of(0), periods }
    }

    /// The bucket that refuses: the limit with its margin.
    pub fn whole(&self) -> &RequestBucket {
        &self.whole
    }

    /// The bucket of the limit alone.
    pub fn own(&self) -> &RequestBucket {
        &self.own
    }

    /// The words of the bucket of the limit alone.
    pub(super) fn own_words(words: &[u64]) -> &[u64] {
        &words[OWN..]
    }

    /// Converts the words of a key that other buckets, with a margin or without, have counted.
    pub(super) fn carried(
        &self,
        whole: &RequestBucket,
        own: &RequestBucket,
        words: &[u64],
        own_words: &[u64],
    ) -> [u64; WORDS] {
        let ([at, debt], [own_at, own_debt]) =
            (self.whole.carried(whole, words), self.own.carried(own, own_words));
        [at, debt, own_at, own_debt]
    }

    /// Returns the units that are left below the margin.
    pub fn below(&self, words: &[u64], now_us: u64) -> u64 {
        self.own.left(&words[OWN..], now_us).min(self.whole.left(words, now_us))
    }

    /// Returns the microseconds until one unit more is left below the margin; 0 if all units are.
    pub fn more_below(&self, words: &[u64], now_us: u64) -> u64 {
        let one_more = self.below(words, now_us) + 1;
        if one_more > self.own.capacity() {
            return 0;
        }
        self.own.wait(&words[OWN..], now_us, one_more).max(self.whole.wait(words, now_us, one_more))
    }
}

impl Counting for Soft {
    fn words(&self) -> usize {
        WORDS
    }

    fn capacity(&self) -> u64 {
        self.whole.capacity()
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.whole.left(words, now_us)
    }

    fn used(&self, words: &[u64], now_us: u64) -> u64 {
        self.whole.used(words, now_us)
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        self.whole.charge(words, now_us, units);
        if self.own.left(&words[OWN..], now_us) >= units {
            self.own.charge(&mut words[OWN..], now_us, units);
        }
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        let back = self.whole.refund(words, now_us, age_us, units);
        self.own.refund(&mut words[OWN..], now_us, age_us, units) | back
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        self.whole.wait(words, now_us, units)
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        self.whole.reset(words, now_us).max(self.own.reset(&words[OWN..], now_us))
    }

    fn reset_from(&self, used: u64, now_us: u64) -> u64 {
        self.whole.reset_from(used, now_us)
    }

    fn layout(&self) -> String {
        format!("m{}", self.whole.period_us())
    }

    fn script(&self, _now_us: u64) -> [u64; 4] {
        [7, self.whole.amount(), self.whole.period_us(), self.whole.capacity()]
    }

    fn scaled(&self, numerator: u64, denominator: u64, capacity: u64) -> Self {
        let (whole, own) = (&self.whole, &self.own);
        let part = u128::from(own.capacity()) * u128::from(capacity) / u128::from(whole.capacity());
        Self {
            whole: whole.scaled(numerator, denominator, capacity),
            own: own.scaled(numerator, denominator, part as u64),
            periods: self.periods,
        }
    }

    fn bucket(&self) -> Option<&RequestBucket> {
        Some(&self.whole)
    }

    /// Names the layout that a bucket of this limit has without a margin.
    fn kin(&self) -> String {
        RequestBucket::new(1, self.own.period_us() / self.periods, 1).layout()
    }
}
