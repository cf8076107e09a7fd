//! What all proxies together hold of each bucket.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The most buckets of all streams, each counted once for every stream that has it. A bucket takes 1 to 2 KB.
pub const MAX_HELD: usize = 200_000;

/// All buckets of all streams. `K` is the name of a bucket.
#[derive(Debug)]
pub struct QuotaTable<K> {
    buckets: Mutex<HashMap<K, QuotaShare>>,
    /// The number of buckets of all streams, each counted once for every stream that has it.
    held: AtomicUsize,
}

/// What proxies have of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaShare {
    /// Proxies that have the bucket.
    pub proxies: u64,
    /// The tokens that the proxies hold.
    pub held: u64,
}

impl<K> Default for QuotaTable<K> {
    fn default() -> Self {
        Self { buckets: Mutex::default(), held: AtomicUsize::new(0) }
    }
}

impl<K: Clone + Eq + Hash> QuotaTable<K> {
    /// Counts one proxy more that has a bucket. Returns whether there was room.
    pub fn join(&self, key: &K) -> bool {
        if self.held.fetch_add(1, Ordering::Relaxed) >= MAX_HELD {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.with(key, |shared| shared.proxies += 1);
        true
    }

    /// Counts one proxy less that has a bucket, and takes off the tokens that it held.
    pub fn leave(&self, key: &K, held: u64) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        let Ok(mut buckets) = self.buckets.lock() else { return };
        let Some(shared) = buckets.get_mut(key) else { return };
        shared.proxies -= 1;
        shared.held = shared.held.saturating_sub(held);
        if shared.proxies == 0 {
            buckets.remove(key);
        }
    }

    /// Records that one proxy holds `now` tokens of a bucket instead of `before`.
    pub fn note(&self, key: &K, before: u64, now: u64) {
        self.with(key, |shared| shared.held = (shared.held + now).saturating_sub(before));
    }

    /// Returns what proxies have of a bucket.
    pub fn get(&self, key: &K) -> QuotaShare {
        self.with(key, |shared| *shared)
    }

    fn with<R: Default>(&self, key: &K, then: impl FnOnce(&mut QuotaShare) -> R) -> R {
        let Ok(mut buckets) = self.buckets.lock() else { return R::default() };
        match buckets.get_mut(key) {
            Some(shared) => then(shared),
            None => then(buckets.entry(key.clone()).or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_nobody_has_is_forgotten() {
        let (quotas, key) = (QuotaTable::default(), ("shop", 7));
        assert!(quotas.join(&key) && quotas.join(&key));
        quotas.note(&key, 0, 7);
        quotas.note(&key, 0, 5);
        assert_eq!(quotas.get(&key), QuotaShare { proxies: 2, held: 12 });
        quotas.leave(&key, 7);
        assert_eq!(quotas.get(&key), QuotaShare { proxies: 1, held: 5 });
        quotas.leave(&key, 5);
        assert!(quotas.buckets.lock().unwrap().is_empty());
    }

    #[test]
    fn streams_have_only_so_many_buckets_together_and_who_leaves_makes_room() {
        let (quotas, key) = (QuotaTable::default(), ("shop", 7));
        (0..MAX_HELD).for_each(|n| assert!(quotas.join(&key), "{n}"));
        assert!(!quotas.join(&key) && !quotas.join(&key));
        assert_eq!(quotas.get(&key).proxies, MAX_HELD as u64);
        quotas.leave(&key, 0);
        assert!(quotas.join(&key) && !quotas.join(&key));
    }
}
