//! The leases of all keys that hosts count together, in shards.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::{key::Hash, lease::Lease};
use crate::cluster::exchange::Timing;

const SHARDS: usize = 64;

/// All leases.
#[derive(Debug)]
pub struct Leases {
    timing: Timing,
    most: usize,
    shards: Box<[Mutex<HashMap<u64, Lease>>]>,
}

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
        let shard = &self.shards[(hash.shard % SHARDS as u64) as usize];
        let mut leases = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.len() >= self.most && !leases.contains_key(&hash.fingerprint) {
            leases.retain(|_, lease| !lease.is_idle(now_us, &self.timing));
            if leases.len() >= self.most {
                return look(&mut Lease::default());
            }
        }
        look(leases.entry(hash.fingerprint).or_default())
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
