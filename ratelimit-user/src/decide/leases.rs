//! The leases of all keys that hosts count together, in shards.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{key::Hash, lease::Lease};
use crate::cluster::exchange::Timing;

const SHARDS: usize = 64;

/// All leases.
#[derive(Debug)]
pub struct Leases {
    timing: Timing,
    most: usize,
    shards: Box<[Mutex<Shard>]>,
}

/// Leases by the fingerprints of their keys, which nobody can choose.
type Shard = HashMap<u64, Lease, foldhash::fast::RandomState>;

impl Leases {
    /// Leases of about so many keys at most.
    pub fn new(timing: Timing, keys: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { timing, most: (keys as usize).div_ceil(SHARDS).max(1), shards }
    }

    /// How long they last.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Looks at the lease of a key, or changes it. Where there is no room for one more, at one that is forgotten afterwards: the store then
    /// decides about every request of that key.
    pub fn with<R>(&self, hash: Hash, now_us: u64, look: impl FnOnce(&mut Lease) -> R) -> R {
        let mut leases = self.shard(hash);
        if leases.len() >= self.most && !leases.contains_key(&hash.fingerprint) {
            leases.retain(|_, lease| !lease.is_idle(now_us, &self.timing));
            if leases.len() >= self.most {
                return look(&mut Lease::default());
            }
        }
        look(leases.entry(hash.fingerprint).or_default())
    }

    /// The same if there is one.
    pub fn with_known<R>(&self, hash: Hash, look: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        self.shard(hash).get_mut(&hash.fingerprint).map(look)
    }

    fn shard(&self, hash: Hash) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[hash.shard(SHARDS)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys there is something known of.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
