//! Every word of every table in one map; a word that was never written is zero.

use std::vec::Vec;

use ratelimit_common::abi::{
    Clock, DropEvent, Event, Lease, LimitSet, ListEntry, Policy, destination::DestinationKey,
};

use super::{TestHost, std};
use crate::{
    packet::{Address, Family},
    rows::{Row, RowKey, RowPlace, RowWords, Rows, WordTable},
    tables::{InsertError, Lane},
};

/// A table and the number of a word in it.
pub type WordPlace = (WordTable, u64);

/// Words from one row to the next: more than any row has.
pub(crate) const ROW: u64 = 16;

impl TestHost {
    /// How many rows a table has.
    pub fn rows(&self, table: WordTable) -> usize {
        self.keys(table).len()
    }

    /// The keys of a table.
    pub fn keys(&self, table: WordTable) -> Vec<RowKey> {
        let rows = self.rows.borrow();
        let mut keys: Vec<RowKey> =
            rows.keys().filter(|(other, _)| *other == table).map(|(_, key)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// Removes all rows of a table.
    pub fn evict(&self, table: WordTable) {
        self.rows.borrow_mut().retain(|(other, _), _| *other != table);
    }

    /// Units spent of a lease, and units needed beyond it.
    pub fn spent(&self, place: u32) -> [u64; 2] {
        let first = self.find(Row::Spent(place)).unwrap();
        [0, 1].map(|word| self.read(Self::along(first, word)))
    }
}

impl Rows for TestHost {
    type Word = WordPlace;

    fn find(&self, row: Row) -> Option<WordPlace> {
        match row.place() {
            (table, RowPlace::Key(key)) => Some((table, *self.rows.borrow().get(&(table, key))?)),
            // An index that no array has.
            (_, RowPlace::Index(u32::MAX)) => None,
            (table, RowPlace::Index(index)) => Some((table, u64::from(index) * ROW)),
        }
    }

    fn along((table, at): WordPlace, place: usize) -> WordPlace {
        assert!(place < table.width(), "word {place} of {table:?}");
        (table, at + place as u64)
    }

    fn read(&self, word: WordPlace) -> u64 {
        self.words.borrow().get(&word).copied().unwrap_or(0)
    }

    fn write(&self, word: WordPlace, new: u64) {
        self.words.borrow_mut().insert(word, new);
    }

    fn make(&self, row: Row, words: RowWords) -> Result<(), InsertError> {
        let (table, RowPlace::Key(key)) = row.place() else { panic!("{row:?} is there") };
        if self.full.get() {
            return Err(InsertError::Full);
        }
        let mut rows = self.rows.borrow_mut();
        if rows.contains_key(&(table, key)) {
            return Err(InsertError::Exists);
        }
        let at = self.made.get() * ROW;
        self.made.set(self.made.get() + 1);
        rows.insert((table, key), at);
        for (place, word) in words.into_iter().enumerate() {
            self.write((table, at + place as u64), word);
        }
        Ok(())
    }

    fn forget(&self, row: Row) {
        if let (table, RowPlace::Key(key)) = row.place() {
            self.rows.borrow_mut().remove(&(table, key));
        }
    }

    fn loses_race(&self) -> bool {
        let left = self.lost_races.get();
        self.lost_races.set(left.saturating_sub(1));
        left > 0
    }

    fn clock_ns(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Precise => self.now_ns.get(),
            Clock::Coarse => self.now_ns.get() - self.lag_ns.get(),
        }
    }

    fn in_force(&self) -> &Policy {
        &self.policy
    }

    fn has_list(&self, _: Family) -> bool {
        !self.lists.is_empty()
    }

    fn open_lane(&self, _: Family) -> Option<Lane<'_>> {
        let policy = if self.policy.lenient == 0 { &self.policy } else { &self.lane_policy };
        self.express.get().then_some(Lane { policy })
    }

    fn service_of(&self, table: u32, key: &DestinationKey) -> Option<u32> {
        assert_eq!(table, self.policy.tables, "the tables of the policy");
        self.destinations.get(&key[..]).copied()
    }

    fn list_entry(&self, address: Address) -> Option<&ListEntry> {
        self.lists.get(&(address.key.hi, address.key.lo))
    }

    fn limits_of_user(&self, table: u32, index: u32) -> Option<&LimitSet> {
        assert_eq!(table, self.policy.tables, "the tables of the policy");
        self.users.get(index as usize)
    }

    fn lease_at(&self, place: u32) -> Lease {
        self.leases.borrow().get(&place).copied().unwrap_or(Lease::NONE)
    }

    fn report(&self, event: DropEvent) -> bool {
        self.told.borrow_mut().push(event);
        self.hears
    }

    fn note_event(&self, event: Event) {
        self.noted.borrow_mut().push(event);
    }

    fn count_frame(&self, slot: u32, len: u64) {
        self.counted.borrow_mut().push((slot, len));
    }
}
