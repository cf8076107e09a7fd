//! A bucket with a margin above it, and beside it the bucket of the limit itself, which tells what is above.
//!
//! The margin is more at once and more in the long run. Whoever asks a little faster than the limit never empties the larger bucket, so how full
//! that one is says nothing about being above: 105 a second of 100, with 10 percent of margin, are five above in every second. The bucket of the
//! limit is charged with what fits in it and with nothing else; what does not is above the limit.

use super::{Counting, RequestBucket};
use crate::policy::terms::gcd;

/// Words: those of the bucket with the margin, and those of the limit's.
pub(super) const WORDS: usize = 4;
/// Where the second begin.
const OWN: usize = 2;

/// Two buckets whose words mean the same: their periods are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soft {
    whole: RequestBucket,
    own: RequestBucket,
}

impl Soft {
    /// What is given, with the margin, and what the limit says. Both are the same while there is no margin.
    pub fn new(whole: RequestBucket, own: RequestBucket) -> Self {
        Self { whole, own }
    }

    /// The bucket that refuses.
    pub fn whole(&self) -> &RequestBucket {
        &self.whole
    }

    /// The bucket of the limit itself.
    pub fn own(&self) -> &RequestBucket {
        &self.own
    }

    /// The words of the limit's own bucket.
    pub(super) fn own_words(words: &[u64]) -> &[u64] {
        &words[OWN..]
    }

    /// Words of a key that was counted by another bucket, with a margin or without.
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

    /// What is left below the margin.
    pub fn below(&self, words: &[u64], now_us: u64) -> u64 {
        self.own.left(&words[OWN..], now_us).min(self.whole.left(words, now_us))
    }

    /// How long until one unit more is left below the margin; 0 if everything is.
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
        // Reduced alike, whatever the rates are: words mean the same with the margin and without.
        let common = gcd(numerator.into(), denominator.into()) as u64;
        let (times, in_times) = (numerator / common, denominator / common);
        let of = |bucket: &RequestBucket, capacity| {
            RequestBucket::new(bucket.amount() * times, bucket.period_us() * in_times, capacity)
        };
        let (whole, own) = (&self.whole, &self.own);
        let part = u128::from(own.capacity()) * u128::from(capacity) / u128::from(whole.capacity());
        Self::new(of(whole, capacity), of(own, part as u64))
    }

    fn bucket(&self) -> Option<&RequestBucket> {
        Some(&self.whole)
    }

    /// As a bucket of this limit without a margin is laid out: periods here are a hundred of its own.
    fn kin(&self) -> String {
        RequestBucket::new(1, self.own.period_us() / 100, 1).layout()
    }
}
