//! The leases of all keys that hosts count together, in shards.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{key::Hash, lease::RequestLease};

const SHARDS: usize = 64;

/// All leases of requests that this host holds.
#[derive(Debug)]
pub struct RequestLeases {
    most: usize,
    shards: Box<[Mutex<LeaseShard>]>,
}

/// The leases of one shard.
#[derive(Debug, Default)]
struct LeaseShard {
    /// Leases by the fingerprints of their keys, which nobody can choose.
    leases: HashMap<u64, RequestLease, foldhash::fast::RandomState>,
    /// When idle leases were last removed, in microseconds since 1970.
    swept_us: u64,
}

/// Microseconds between two removals of idle leases from a full shard: each looks at all leases of the shard.
const SWEEP_US: u64 = 1_000_000;

impl RequestLeases {
    /// Makes room for the leases of about `keys` keys at most.
    pub fn new(keys: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { most: (keys as usize).div_ceil(SHARDS).max(1), shards }
    }

    /// Calls `look` with the lease of a key, which may be new. `None` where there is no room for one more lease: the store then decides about every
    /// request of that key.
    pub fn with<R>(&self, hash: Hash, now_us: u64, look: impl FnOnce(&mut RequestLease) -> R) -> Option<R> {
        let mut shard = self.shard(hash);
        let LeaseShard { leases, swept_us } = &mut *shard;
        if leases.len() >= self.most && !leases.contains_key(&hash.fingerprint) {
            if *swept_us + SWEEP_US <= now_us {
                leases.retain(|_, lease| !lease.is_idle(now_us));
                *swept_us = now_us;
            }
            if leases.len() >= self.most {
                return None;
            }
        }
        Some(look(leases.entry(hash.fingerprint).or_default()))
    }

    /// Calls `look` with the lease of a key, if there is one.
    pub fn with_known<R>(&self, hash: Hash, look: impl FnOnce(&mut RequestLease) -> R) -> Option<R> {
        self.shard(hash).leases.get_mut(&hash.fingerprint).map(look)
    }

    fn shard(&self, hash: Hash) -> MutexGuard<'_, LeaseShard> {
        locked(&self.shards[hash.shard(SHARDS)])
    }

    /// The number of keys that have a lease.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).leases.len()).sum()
    }

    /// Whether no key has a lease.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn locked(shard: &Mutex<LeaseShard>) -> MutexGuard<'_, LeaseShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_nothing_is_said_about_a_lease() {
        let leases = RequestLeases::new(1);
        let hash = |fingerprint| Hash { fingerprint };
        let ask = |fingerprint| leases.with(hash(fingerprint), 0, |lease| lease.ask(1, 640, 0).sequence);
        assert_eq!(ask(64), Some(1));
        assert_eq!(ask(128), None, "it would be forgotten, and the same number be used again");
        assert_eq!(ask(65), Some(1), "in another shard");
        assert_eq!(
            leases.with(hash(64), 0, |lease| lease.ask(1, 640, 0).sequence),
            Some(0),
            "it has one, under way"
        );
        assert_eq!(leases.len(), 2);
    }

    #[test]
    fn a_full_shard_makes_room_of_those_that_nothing_is_lost_without() {
        let later_us = 10_000 * SWEEP_US;
        for (is_asked_for, room) in [(false, Some(())), (true, None)] {
            let leases = RequestLeases::new(1);
            let first = |lease: &mut RequestLease| is_asked_for.then(|| lease.ask(1, 640, 0));
            leases.with(Hash { fingerprint: 64 }, 0, first);
            assert_eq!(leases.with(Hash { fingerprint: 128 }, later_us, |_| ()), room, "{is_asked_for}");
        }
    }
}
