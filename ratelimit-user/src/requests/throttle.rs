//! Limits that the caller describes with every question, under keys of its own. The policy knows nothing of them.

use super::{
    cells::{Cells, Shape},
    key::{Hash, KeyHasher},
};
use crate::meter::{Meter, NEVER_US, RequestBucket};

/// The words of a bucket.
pub(super) const SHAPE: Shape = Shape { words: 2, logs: 0 };
/// What keys begin with that are no policy's.
const SEED: u64 = u64::from_be_bytes(*b"throttle");

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// Whether the request was refused.
    pub limited: bool,
    /// The units that are left.
    pub remaining: u64,
    /// How long until it would fit; none if it did, or never will.
    pub retry_us: Option<u64>,
    /// How long until the bucket is full again.
    pub reset_us: u64,
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
}
