//! Every word of every table in one map; one that was never written is zero.

use std::vec::Vec;

use ratelimit_common::{
    abi::{
        Bucket, Clock, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, MAX_LIMITS, Policy, PrefixKey,
        destination::DestinationKey,
    },
    limit::prefilter,
};

use super::{TestHost, std};
use crate::{
    packet::{Address, Family},
    tables::{CpuBudget, InsertError, Lane, LaneWord, Tables},
};

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WordTable {
    Source,
    User,
    Window,
    KeptWindow,
    UserWindow,
    Budget,
    Mark,
    Cell,
    PrefixCell,
    Prefix,
    FairCell,
    Total,
    Share,
    Link,
    LinkCell,
    Syn,
    LeaseUsed,
    LeaseUnmet,
    Quiet,
    Lane,
}

/// Which word of a table.
pub(crate) type WordPlace = (WordTable, u64);

/// Words of a row, more than any has.
const ROW: u64 = 16;
/// Where the windows of users and those that are kept begin.
const USERS_AT: u64 = 1 << 32;
const KEPT_AT: u64 = 1 << 33;

impl TestHost {
    /// The row of a key, if it has one.
    fn row(&self, table: WordTable, key: [u64; 3]) -> Option<u64> {
        self.rows.borrow().get(&(table, key)).copied()
    }

    /// A row for a key that has none.
    fn new_row(&self, table: WordTable, key: [u64; 3]) -> Result<u64, InsertError> {
        if self.full.get() {
            return Err(InsertError::Full);
        }
        let mut rows = self.rows.borrow_mut();
        if rows.contains_key(&(table, key)) {
            return Err(InsertError::Exists);
        }
        let row = rows.len() as u64 * ROW;
        rows.insert((table, key), row);
        Ok(row)
    }

    /// How many rows a table has.
    pub(crate) fn rows(&self, table: WordTable) -> usize {
        self.rows.borrow().keys().filter(|(other, _)| *other == table).count()
    }

    /// The keys of a table.
    pub(crate) fn keys(&self, table: WordTable) -> Vec<[u64; 3]> {
        let rows = self.rows.borrow();
        let mut keys: Vec<[u64; 3]> =
            rows.keys().filter(|(other, _)| *other == table).map(|(_, key)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// Forgets the rows of a table.
    pub(crate) fn evict(&self, table: WordTable) {
        self.rows.borrow_mut().retain(|(other, _), _| *other != table);
    }
}

fn window_table(state: u64) -> WordTable {
    match state {
        KEPT_AT.. => WordTable::KeptWindow,
        USERS_AT.. => WordTable::UserWindow,
        _ => WordTable::Window,
    }
}

fn entry(key: &EntryKey) -> [u64; 3] {
    [key.hi, key.lo, key.group]
}

impl Tables for TestHost {
    type Word = WordPlace;
    type Bucket = (WordTable, u64);
    type Cell = u64;
    type PrefixLevelCell = u64;
    type FairCell = u64;
    type Window = u64;
    type Share = u64;

    fn now_ns(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Precise => self.now_ns.get(),
            Clock::Coarse => self.now_ns.get() - self.lag_ns.get(),
        }
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn express(&self, _: Family, _: u64) -> Option<Lane<'_>> {
        self.express.get().then_some(Lane {
            policy: if self.policy.lenient == 0 { &self.policy } else { &self.lane_policy },
            listed: !self.lists.is_empty(),
            totals: self.policy.weighs_alike(),
        })
    }

    fn lane_word(&self, word: LaneWord) -> Option<WordPlace> {
        Some((WordTable::Lane, word as u64))
    }

    fn destined(&self, table: u32, key: &DestinationKey) -> Option<u32> {
        assert_eq!(table, self.policy.tables, "the tables of the policy");
        self.destinations.get(&key[..]).copied()
    }

    fn listed(&self, address: Address) -> Option<&ListEntry> {
        self.lists.get(&(address.key.hi, address.key.lo))
    }

    fn bucket(&self, key: &EntryKey) -> Option<(WordTable, u64)> {
        Some((WordTable::Source, self.row(WordTable::Source, entry(key))?))
    }

    fn bucket_word(&self, (table, row): (WordTable, u64), index: usize) -> WordPlace {
        assert!(index < MAX_LIMITS);
        (table, row + index as u64)
    }

    fn proven_until(&self, (table, row): (WordTable, u64)) -> WordPlace {
        (table, row + MAX_LIMITS as u64)
    }

    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError> {
        let row = self.new_row(WordTable::Source, entry(key))?;
        for (index, word) in bucket.tat_q8.into_iter().chain([bucket.proven_until_q8]).enumerate() {
            self.store((WordTable::Source, row + index as u64), word);
        }
        Ok(())
    }

    fn user(&self, index: u32) -> Option<(WordTable, u64)> {
        Some((WordTable::User, u64::from(index) * ROW))
    }

    fn user_limits(&self, table: u32, index: u32) -> Option<&LimitSet> {
        assert_eq!(table, self.policy.tables, "the tables of the policy");
        self.users.get(index as usize)
    }

    fn lease(&self, place: u32) -> Option<Lease> {
        Some(self.leases.borrow().get(&place).copied().unwrap_or(Lease::NONE))
    }

    fn lease_used(&self, place: u32) -> Option<WordPlace> {
        Some((WordTable::LeaseUsed, u64::from(place)))
    }

    fn lease_unmet(&self, place: u32) -> Option<WordPlace> {
        Some((WordTable::LeaseUnmet, u64::from(place)))
    }

    fn window(&self, key: &EntryKey) -> Option<u64> {
        self.row(WordTable::Window, entry(key))
    }

    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError> {
        self.new_row(WordTable::Window, entry(key)).map(|_| ())
    }

    fn kept_window(&self, key: &EntryKey) -> Option<u64> {
        Some(KEPT_AT + self.row(WordTable::KeptWindow, entry(key))?)
    }

    fn keep_window(&self, key: &EntryKey, state: u64) {
        if let Ok(row) = self.new_row(WordTable::KeptWindow, entry(key)) {
            for slot in 0..ROW {
                self.store(
                    (WordTable::KeptWindow, row + slot),
                    self.load(self.window_word(state, slot as usize)),
                );
            }
        }
        self.rows.borrow_mut().remove(&(WordTable::Window, entry(key)));
    }

    fn user_window(&self, index: u32) -> Option<u64> {
        Some(USERS_AT + u64::from(index) * ROW)
    }

    fn window_word(&self, state: u64, slot: usize) -> WordPlace {
        let table = window_table(state);
        let at = match table {
            WordTable::KeptWindow => state - KEPT_AT,
            WordTable::UserWindow => state - USERS_AT,
            _ => state,
        };
        (table, at + slot as u64)
    }

    fn budget(&self, budget: CpuBudget) -> Option<WordPlace> {
        Some((WordTable::Budget, budget as u64))
    }

    fn tracked_until(&self, cell: u32) -> u64 {
        prefilter::marked_until_q8(self.load((WordTable::Mark, u64::from(cell))) as u32)
    }

    fn track_until(&self, cell: u32, until_q8: u64) {
        self.store((WordTable::Mark, u64::from(cell)), u64::from(prefilter::mark(until_q8)));
    }

    fn cell(&self, index: u32) -> Option<u64> {
        Some(u64::from(index) * ROW)
    }

    fn cell_tat(&self, cell: u64) -> WordPlace {
        (WordTable::Cell, cell)
    }

    fn cell_negative_entry(&self, cell: u64, slot: usize) -> WordPlace {
        (WordTable::Cell, cell + 1 + slot as u64)
    }

    fn prefix_level_cell(&self, index: u32) -> Option<u64> {
        Some(u64::from(index) * ROW)
    }

    fn prefix_level_tat(&self, cell: u64) -> WordPlace {
        (WordTable::PrefixCell, cell)
    }

    fn prefix_level_tracked_until(&self, cell: u64) -> WordPlace {
        (WordTable::PrefixCell, cell + 1)
    }

    fn prefix_level_negative_entry(&self, cell: u64) -> WordPlace {
        (WordTable::PrefixCell, cell + 2)
    }

    fn prefix(&self, key: &PrefixKey) -> Option<WordPlace> {
        Some((WordTable::Prefix, self.row(WordTable::Prefix, [key.hi, key.lo, key.prefix_level])?))
    }

    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError> {
        let row = self.new_row(WordTable::Prefix, [key.hi, key.lo, key.prefix_level])?;
        self.store((WordTable::Prefix, row), tat_q8);
        Ok(())
    }

    fn fair_cell(&self, index: u32) -> Option<u64> {
        Some(u64::from(index) * ROW)
    }

    fn fair_share(&self, cell: u64) -> WordPlace {
        (WordTable::FairCell, cell)
    }

    fn fair_asked(&self, cell: u64) -> WordPlace {
        (WordTable::FairCell, cell + 1)
    }

    fn total(&self, service: u32, index: usize) -> Option<WordPlace> {
        Some((WordTable::Total, u64::from(service) * ROW + index as u64))
    }

    fn share(&self, service: u32) -> Option<u64> {
        Some(u64::from(service) * ROW)
    }

    fn share_pool(&self, share: u64, place: usize) -> WordPlace {
        (WordTable::Share, share + place as u64)
    }

    fn share_refused_until(&self, share: u64, place: usize) -> WordPlace {
        (WordTable::Share, share + ROW / 2 + place as u64)
    }

    fn link(&self, interface: u32) -> Option<WordPlace> {
        Some((WordTable::Link, u64::from(interface)))
    }

    fn link_cell(&self, index: u32) -> Option<(WordPlace, WordPlace)> {
        let at = u64::from(index) * 2;
        (index != u32::MAX).then_some(((WordTable::LinkCell, at), (WordTable::LinkCell, at + 1)))
    }

    fn syn_meter(&self, service: u32) -> Option<WordPlace> {
        Some((WordTable::Syn, u64::from(service) * 2))
    }

    fn cookies_until(&self, service: u32) -> Option<WordPlace> {
        Some((WordTable::Syn, u64::from(service) * 2 + 1))
    }

    fn load(&self, word: WordPlace) -> u64 {
        self.words.borrow().get(&word).copied().unwrap_or(0)
    }

    fn store(&self, word: WordPlace, new: u64) {
        self.words.borrow_mut().insert(word, new);
    }

    fn add(&self, word: WordPlace, amount: u64) {
        self.store(word, self.load(word).wrapping_add(amount));
    }

    fn compare_exchange(&self, word: WordPlace, seen: u64, new: u64) -> bool {
        if self.lost_races.get() > 0 {
            self.lost_races.set(self.lost_races.get() - 1);
            return false;
        }
        let same = self.load(word) == seen;
        if same {
            self.store(word, new);
        }
        same
    }

    fn quiet_until(&self, slot: u32) -> Option<WordPlace> {
        Some((WordTable::Quiet, u64::from(slot)))
    }

    fn tell(&self, event: DropEvent) -> bool {
        self.told.borrow_mut().push(event);
        self.hears
    }

    fn note(&self, event: Event) {
        self.noted.borrow_mut().push(event);
    }

    fn count(&self, slot: u32, len: u64) {
        self.counted.borrow_mut().push((slot, len));
    }
}
