//! The state of all keys, in shards: a decision locks only the shards of its own keys, so two decisions about different keys wait for each other
//! only by chance, and only for as long as one decision takes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    cells::{Cells, Shape},
    counter_keys::CounterKey,
    key::{Hash, MAX_COUNTER_KEYS},
};
use crate::policy::log_bytes;

/// Shards. Many more than threads, so that two threads seldom meet.
const SHARDS: usize = 64;

/// The counters of all keys.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Apart]>,
    bounds: Bounds,
}

/// The most that a shard may have.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Keys of each shape.
    keys: usize,
    /// Bytes of all logs.
    log_bytes: usize,
}

/// A shard on cache lines of its own, so that locking it does not slow down its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(Mutex<TableShard>);

/// A part of all keys: one table for each shape of state.
#[derive(Debug, Default)]
struct TableShard {
    tables: Vec<(Shape, Cells)>,
}

/// How full the table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys that are remembered.
    pub keys: u64,
    /// Keys that had to make way since the start.
    pub evicted: u64,
    /// Bytes that logs take.
    pub log_bytes: u64,
}

/// Shards that are locked, always in ascending order.
#[derive(Debug)]
pub(super) struct Locked<'t> {
    shards: [Option<(usize, MutexGuard<'t, TableShard>)>; MAX_COUNTER_KEYS],
    bounds: Bounds,
}

impl Table {
    /// Makes a table for about `keys` keys of each shape of state.
    pub(super) fn new(keys: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Apart::default()).collect();
        let bounds = Bounds {
            keys: (keys as usize).div_ceil(SHARDS).max(1),
            log_bytes: (log_bytes(keys) / SHARDS as u64) as usize,
        };
        Self { shards, bounds }
    }

    /// Locks the shards of these keys.
    #[inline]
    pub(super) fn lock<'c>(&self, hashes: impl Iterator<Item = &'c Hash>) -> Locked<'_> {
        let (mut wanted, mut count) = ([0; MAX_COUNTER_KEYS], 0);
        for (place, hash) in wanted.iter_mut().zip(hashes) {
            *place = hash.shard(SHARDS);
            count += 1;
        }
        let wanted = &mut wanted[..count];
        // Most requests have one key.
        if count > 1 {
            wanted.sort_unstable();
        }
        let mut locked = Locked { shards: [const { None }; MAX_COUNTER_KEYS], bounds: self.bounds };
        let mut last = None;
        for (place, shard) in locked.shards.iter_mut().zip(wanted) {
            if last != Some(*shard) {
                *place = Some((*shard, self.shard(*shard)));
                last = Some(*shard);
            }
        }
        locked
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, TableShard> {
        // Words are whole at any time, so a thread that panicked with the lock has left nothing half done.
        self.shards[at].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how full the table is.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for at in 0..self.shards.len() {
            for (_, cells) in &self.shard(at).tables {
                usage.keys += cells.len() as u64;
                usage.evicted += cells.evicted();
                usage.log_bytes += cells.log_bytes() as u64;
            }
        }
        usage
    }
}

impl Locked<'_> {
    /// The table of a key with state of this shape.
    #[inline]
    pub(super) fn cells(&mut self, hash: Hash, shape: Shape) -> &mut Cells {
        let keys = self.bounds.keys;
        self.shard(hash).cells(shape, keys)
    }

    #[inline]
    fn shard(&mut self, hash: Hash) -> &mut TableShard {
        let wanted = hash.shard(SHARDS);
        let at =
            self.shards.iter().position(|shard| shard.as_ref().is_some_and(|(shard, _)| *shard == wanted));
        // Callers ask only about keys that they have locked. Should one not do so, a release build answers from the first shard.
        debug_assert!(at.is_some(), "the shard of this key is not locked");
        match &mut self.shards[at.unwrap_or(0)] {
            Some((_, shard)) => shard,
            None => unreachable!("a request without keys asks about none"),
        }
    }

    /// The table of a counter key.
    pub(super) fn of(&mut self, counter: &CounterKey<'_>) -> &mut Cells {
        self.cells(counter.hash, counter.allowance.shape)
    }

    /// Has keys with logs make way until the logs of a shard fit into its bytes. The key that was charged last stays.
    pub(super) fn bound_logs(&mut self, charged: &CounterKey<'_>) {
        let most = self.bounds.log_bytes;
        let tables = &mut self.shard(charged.hash).tables;
        while tables.iter().map(|(_, cells)| cells.log_bytes()).sum::<usize>() > most {
            tables.sort_unstable_by_key(|(_, cells)| std::cmp::Reverse(cells.log_bytes()));
            if !tables.iter_mut().any(|(_, cells)| cells.drop_a_log(charged.hash.fingerprint)) {
                return;
            }
        }
    }
}

impl TableShard {
    fn cells(&mut self, shape: Shape, most: usize) -> &mut Cells {
        let at = match self.tables.iter().position(|(other, _)| *other == shape) {
            Some(at) => at,
            None => {
                self.tables.push((shape, Cells::new(shape, most)));
                self.tables.len() - 1
            }
        };
        &mut self.tables[at].1
    }
}
