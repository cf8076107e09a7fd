//! Token bucket, and leaky bucket as a meter: the same maths. Units that were taken are a debt, which is paid off at the rate.
//!
//! ```text
//! debt(now) = max(debt - (now - at) x amount, 0)        units x period, so nothing is ever rounded
//! left      = (burst x period - debt(now)) / period
//! ```
//!
//! Bound: any interval W admits at most burst + W x amount / period. Exact: 3 a second is 3 in every 1 000 000 us, with no remainder lost.
//!
//! 15/s, burst 15: a key that takes 15 at once has a debt of 15 000 000, which shrinks by 15 every us: the next one fits after 66 667 us.

use super::Counting;

/// Number of words: the time at which the debt was written, in microseconds, and the debt.
pub(super) const WORDS: usize = 2;

/// The largest number up to which every integer is a double.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// A token bucket for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBucket {
    amount: u64,
    period_us: u64,
    burst: u64,
}

impl RequestBucket {
    /// `amount` units come in every `period_us`, and the bucket holds at most `burst`. A 0 counts as 1.
    pub fn new(amount: u64, period_us: u64, burst: u64) -> Self {
        Self { amount: amount.max(1), period_us: period_us.max(1), burst: burst.max(1) }
    }

    /// Units in a period.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The period in microseconds.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// Units that a full bucket holds.
    pub fn capacity(&self) -> u64 {
        self.burst
    }

    fn debt(&self, words: &[u64], now_us: u64) -> u64 {
        let paid = now_us.saturating_sub(words[0]).saturating_mul(self.amount);
        words[1].saturating_sub(paid)
    }

    /// Returns the most debt that is kept, in units x microseconds. The store counts in doubles, which are not exact beyond [`MOST_EXACT`]. It is at least
    /// the whole bucket: a bucket that forgets a part of its debt never runs empty, and admits everything.
    fn most_debt(&self) -> u64 {
        MOST_EXACT.max(self.full())
    }

    fn full(&self) -> u64 {
        self.burst.saturating_mul(self.period_us)
    }

    /// Returns the microseconds in which `numerator / denominator` of this rate gives as many units. They are rounded up, so the rate may be less than that part
    /// by one in as many as the period has microseconds, and is never more. The units are not changed: words then mean nearly the same when the part changes.
    pub(super) fn longer_period(&self, numerator: u64, denominator: u64) -> u64 {
        let period =
            (u128::from(self.period_us) * u128::from(denominator)).div_ceil(u128::from(numerator.max(1)));
        u64::try_from(period).unwrap_or(u64::MAX)
    }

    /// Returns the microseconds until the whole debt is paid off: the next request in a queue has its turn then.
    pub fn turn(&self, words: &[u64], now_us: u64) -> u64 {
        quotient_up(self.debt(words, now_us), self.amount)
    }

    /// Converts the words of a key that bucket `from` has counted: the debt in units stays, and is written for the period of this bucket.
    pub(super) fn carried(&self, from: &Self, words: &[u64]) -> [u64; WORDS] {
        let owed = u128::from(words[1]) * u128::from(self.period_us);
        let owed = owed.div_ceil(u128::from(from.period_us)).min(u128::from(self.most_debt()));
        [words[0], owed as u64]
    }

    /// Whether the debt, without the refunded units, still delays a caller. In a queue every caller but the first is delayed; otherwise only a debt
    /// above the burst delays anybody.
    pub fn is_waited_for(&self, words: &[u64], now_us: u64, units: u64, queue: bool) -> bool {
        let served = if queue { units.saturating_mul(self.period_us) } else { self.full() };
        self.debt(words, now_us) > served
    }
}

/// `dividend / divisor`. Each decision divides four times, and dividing doubles takes half as long as dividing 64-bit integers, or less. It is exact where
/// both numbers are below 2^53: a quotient that is no integer is at least 1 / divisor below the next one, which is more than rounding adds.
#[inline]
pub(super) fn quotient(dividend: u64, divisor: u64) -> u64 {
    if dividend | divisor <= MOST_EXACT {
        (dividend as i64 as f64 / divisor as i64 as f64) as i64 as u64
    } else {
        dividend / divisor
    }
}

/// `dividend / divisor`, rounded up.
#[inline]
pub(super) fn quotient_up(dividend: u64, divisor: u64) -> u64 {
    match dividend.checked_add(divisor - 1) {
        Some(above) => quotient(above, divisor),
        None => dividend.div_ceil(divisor),
    }
}

impl Counting for RequestBucket {
    fn words(&self) -> usize {
        WORDS
    }

    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        quotient(self.full().saturating_sub(self.debt(words, now_us)), self.period_us)
    }

    fn used(&self, words: &[u64], now_us: u64) -> u64 {
        quotient_up(self.debt(words, now_us), self.period_us)
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        let charge = units.saturating_mul(self.period_us);
        // What a larger limit of the same key has left behind stays owed.
        let owed = self.debt(words, now_us);
        words[1] = owed.saturating_add(charge).min(self.most_debt()).max(owed);
        words[0] = words[0].max(now_us);
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        // Debt that was paid off since the charge is not given back: without the charge the bucket would have been full, and would have gained nothing.
        let paid = age_us.saturating_mul(self.amount);
        let debt = self.debt(words, now_us);
        let back = units.saturating_mul(self.period_us).saturating_sub(paid).min(debt);
        if back > 0 {
            words[1] = debt - back;
            words[0] = words[0].max(now_us);
        }
        back > 0
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        let after = self.debt(words, now_us).saturating_add(units.saturating_mul(self.period_us));
        // After a clock has stepped back, debt is paid off only from the moment at which it was written.
        let behind_us = words[0].saturating_sub(now_us);
        match after.saturating_sub(self.full()) {
            0 => 0,
            excess => behind_us + quotient_up(excess, self.amount),
        }
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        self.turn(words, now_us)
    }

    fn reset_from(&self, used: u64, _now_us: u64) -> u64 {
        used.saturating_mul(self.period_us).div_ceil(self.amount)
    }

    fn layout(&self) -> String {
        format!("b{}", self.period_us)
    }

    fn script(&self, _now_us: u64) -> [u64; 4] {
        [1, self.amount, self.period_us, self.burst]
    }

    fn scaled(&self, numerator: u64, denominator: u64, capacity: u64) -> Self {
        Self::new(self.amount, self.longer_period(numerator, denominator), capacity)
    }

    fn bucket(&self) -> Option<&RequestBucket> {
        Some(self)
    }
}
