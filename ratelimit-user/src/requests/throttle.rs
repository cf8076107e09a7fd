//! Limits that the caller describes with every question, under keys of its own. The policy knows nothing of them.

use super::{
    cells::{Cells, Shape},
    key::{Hash, KeyHasher},
};
use crate::meter::{Meter, NEVER_US, RequestBucket};

/// Nanoseconds in a microsecond. Engine and clock count in microseconds.
const NS_IN_US: u64 = 1_000;
/// The words of a bucket.
pub(super) const SHAPE: Shape = Shape { words: 2, logs: 0 };
/// The seed of keys that come from callers and not from a policy.
const SEED: u64 = u64::from_be_bytes(*b"throttle");

/// A limit as a caller describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleTerms {
    /// Units at once. A limit below 1 admits nothing.
    pub limit: i64,
    /// What a unit costs, in nanoseconds.
    pub interval_ns: u64,
    /// Units that are asked for.
    pub quantity: u64,
}

/// The answer, before a protocol writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleAnswer {
    /// Whether the request is refused.
    pub limited: bool,
    /// Units at once.
    pub limit: i64,
    /// Units that are left.
    pub remaining: i64,
    /// Microseconds until the request would fit; none if it did fit, or never will.
    pub retry_us: Option<u64>,
    /// Microseconds until the key has everything again.
    pub reset_us: u64,
}

/// What came of taking units from a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Whether the request was refused.
    pub limited: bool,
    /// The units that are left.
    pub remaining: u64,
    /// Microseconds until the request would fit; none if it did fit, or never will.
    pub retry_us: Option<u64>,
    /// Microseconds until the bucket is full again.
    pub reset_us: u64,
}

impl ThrottleTerms {
    /// Returns the answer about the key whose bucket `take` takes from.
    pub fn answer(&self, take: impl FnOnce(&RequestBucket, u64) -> Throttled) -> ThrottleAnswer {
        let Self { limit, interval_ns, quantity } = *self;
        let bucket = RequestBucket::new(NS_IN_US, interval_ns, limit.max(1).unsigned_abs());
        if limit < 1 {
            // No request ever fits, but the key may still have a debt from when it had a limit.
            let debt_us = take(&bucket, 0).reset_us;
            let nothing = limit == 0 && quantity == 0 && debt_us == 0;
            return ThrottleAnswer {
                limited: !nothing,
                limit,
                remaining: 0,
                retry_us: None,
                reset_us: debt_us,
            };
        }
        let took = take(&bucket, quantity);
        let most_us = (bucket.capacity() * interval_ns).div_ceil(NS_IN_US);
        // A key that owes more than it may, because the limit was higher before, is limited even when nothing is asked for.
        let over_us = took.reset_us.saturating_sub(most_us);
        let owes = quantity == 0 && over_us > 0;
        ThrottleAnswer {
            limited: took.limited || owes,
            limit,
            remaining: i64::try_from(took.remaining).unwrap_or(i64::MAX),
            retry_us: if owes { Some(over_us) } else { took.retry_us },
            reset_us: took.reset_us,
        }
    }
}

pub(super) fn hash(hasher: &KeyHasher, key: &[u8]) -> Hash {
    hasher.begin(SEED).bytes(key)
}

pub(super) fn take(
    cells: &mut Cells,
    hash: Hash,
    bucket: &RequestBucket,
    quantity: u64,
    now_us: u64,
) -> Throttled {
    let meter = Meter::Bucket(*bucket);
    let place = cells.find_or_insert(hash.fingerprint);
    let words = cells.words_mut(place);
    let left = meter.left(words, now_us);
    let limited = left < quantity;
    let retry_us = match limited {
        true => Some(meter.wait(words, now_us, quantity)).filter(|wait_us| *wait_us != NEVER_US),
        false => {
            meter.charge(words, now_us, quantity);
            None
        }
    };
    let remaining = if limited { left } else { left - quantity };
    Throttled { limited, remaining, retry_us, reset_us: meter.reset(words, now_us) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_for_more_than_is_left_is_told_how_long_to_wait_and_pays_nothing() {
        const SECOND: u64 = 1_000_000;
        let bucket = RequestBucket::new(10, 10 * SECOND, 5);
        let (mut cells, hash) = (Cells::new(SHAPE, 1), hash(&KeyHasher::known((1, 2)), b"key"));
        let mut ask = |quantity| take(&mut cells, hash, &bucket, quantity, SECOND);
        let throttled = |limited, remaining, retry_us, reset_s| Throttled {
            limited,
            remaining,
            retry_us,
            reset_us: reset_s * SECOND,
        };
        assert_eq!(ask(3), throttled(false, 2, None, 3));
        assert_eq!(ask(4), throttled(true, 2, Some(2 * SECOND), 3));
        assert_eq!(ask(6), throttled(true, 2, None, 3), "it never fits");
        assert_eq!(ask(2), throttled(false, 0, None, 5), "all that is left");
        assert_eq!(ask(0), throttled(false, 0, None, 5), "who only looks");
        assert_eq!(ask(1), throttled(true, 0, Some(SECOND), 5));
    }
    #[test]
    fn a_key_owes_what_it_was_given_under_whatever_limit_it_comes_again() {
        const SECOND: u64 = 1_000_000;
        let (mut cells, hash) = (Cells::new(SHAPE, 1), hash(&KeyHasher::known((1, 2)), b"key"));
        // A unit costs a second.
        let mut ask = |limit, quantity| {
            let terms = ThrottleTerms { limit, interval_ns: SECOND * NS_IN_US, quantity };
            let ThrottleAnswer { limited, limit: told, remaining, retry_us, reset_us } =
                terms.answer(|bucket, units| take(&mut cells, hash, bucket, units, SECOND));
            assert_eq!(told, limit);
            (limited, remaining, retry_us.map(|retry_us| retry_us / SECOND), reset_us / SECOND)
        };
        assert_eq!(ask(0, 0), (false, 0, None, 0), "nothing is asked for, and nothing owed");
        assert_eq!([ask(0, 1), ask(-1, 0)], [(true, 0, None, 0); 2], "no limit below 1 admits anything");
        assert_eq!(ask(5, 4), (false, 1, None, 4));
        assert_eq!(ask(1, 0), (true, 0, Some(3), 4), "more is owed than this limit lets anybody owe");
        assert_eq!(ask(4, 0), (false, 0, None, 4), "as much is owed as this limit lets anybody owe");
        assert_eq!(ask(1, 1), (true, 0, Some(4), 4));
        assert_eq!(ask(0, 0), (true, 0, None, 4), "somebody who owes something is limited by 0");
        assert_eq!(ask(5, 1), (false, 0, None, 5));
    }
}
