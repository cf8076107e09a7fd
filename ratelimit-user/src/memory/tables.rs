//! The packet path's tables: a vector of words for each.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{
    Clock, DropEvent, Lease, LimitSet, ListEntry, Policy, destination::DestinationKey,
};
use ratelimit_ebpf::{
    packet::{Address, Family},
    rows::{Row, RowPlace, RowWords, Rows, WordTable},
    tables::{InsertError, Lane},
};

use super::{Memory, MemoryWord};
use crate::compile::{Destination, lists::Prefix};

impl Rows for Memory {
    type Word = MemoryWord;

    fn find(&self, row: Row) -> Option<MemoryWord> {
        let (table, place) = row.place();
        let nth = match place {
            RowPlace::Key(key) => self.keys[table as usize].borrow_mut().get(&key)?,
            RowPlace::Index(index) => index as usize,
        };
        let at = nth * table.width();
        (at < self.words[table as usize].borrow().len()).then_some((table, at))
    }

    fn along((table, at): MemoryWord, place: usize) -> MemoryWord {
        (table, at + place)
    }

    fn read(&self, word: MemoryWord) -> u64 {
        let seen = self.words[word.0 as usize].borrow()[word.1];
        if let Some((_, new)) = self.rival.get().filter(|(at, _)| *at == word) {
            self.rival.set(None);
            self.write(word, new);
        }
        seen
    }

    fn write(&self, word: MemoryWord, new: u64) {
        if let Some(written) = &self.written {
            written.borrow_mut().words.push(word);
        }
        self.words[word.0 as usize].borrow_mut()[word.1] = new;
    }

    fn make(&self, row: Row, words: RowWords) -> Result<(), InsertError> {
        let (table, RowPlace::Key(key)) = row.place() else { return Err(InsertError::Exists) };
        let mut keys = self.keys[table as usize].borrow_mut();
        if keys.has(&key) {
            return Err(InsertError::Exists);
        }
        if table == WordTable::Source && self.full.get() {
            return Err(InsertError::Full);
        }
        let width = table.width();
        let at = keys.insert(key) * width;
        let mut all = self.words[table as usize].borrow_mut();
        // Rows are numbered without gaps, so this one may be new.
        let end = all.len().max(at + width);
        all.resize(end, 0);
        all[at..at + width].copy_from_slice(&words[..width]);
        Ok(())
    }

    fn forget(&self, row: Row) {
        if let (table, RowPlace::Key(key)) = row.place() {
            self.keys[table as usize].borrow_mut().remove(&key);
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
            Clock::Coarse => self.now_ns.get().saturating_sub(self.lag_ns.get()),
        }
    }

    fn in_force(&self) -> &Policy {
        &self.policy
    }

    fn has_list(&self, family: Family) -> bool {
        !self.listed_lens[family as usize].is_empty()
    }

    fn open_lane(&self, _: Family) -> Option<Lane<'_>> {
        let open = self.express.get() && self.policy.serves_lane();
        open.then_some(Lane { policy: &self.lane_policy })
    }

    fn service_of(&self, _: u32, key: &DestinationKey) -> Option<u32> {
        let around = |one: &&Destination| {
            let octets = one.bits as usize / 8;
            let differ = key[octets..].first().zip(one.key[octets..].first()).map_or(0, |(a, b)| a ^ b);
            key[..octets] == one.key[..octets] && differ.leading_zeros() >= one.bits % 8
        };
        self.destinations.iter().filter(around).max_by_key(|one| one.bits).map(|one| one.service)
    }

    fn list_entry(&self, address: Address) -> Option<&ListEntry> {
        let octets = address.key.octets();
        let address_family = address.family as usize;
        let address = match address.family {
            Family::V4 => Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).into(),
            Family::V6 => Ipv6Addr::from(octets).into(),
        };
        let lens = &self.listed_lens[address_family];
        lens.iter().find_map(|len| self.lists.get(&Prefix::masked(address, *len)))
    }

    fn limits_of_user(&self, _: u32, index: u32) -> Option<&LimitSet> {
        Some(self.user_limits.get(&index).unwrap_or(&LimitSet::NONE))
    }

    fn lease_at(&self, place: u32) -> Lease {
        self.leases.borrow().get(&place).copied().unwrap_or(Lease::NONE)
    }

    fn report(&self, event: DropEvent) -> bool {
        if !self.replays {
            self.told.borrow_mut().push(event);
        }
        true
    }

    fn count_frame(&self, slot: u32, len: u64) {
        // The program that the packet was tail-called into counts it.
        if self.successor.get().is_some() {
            return;
        }
        self.counted.set(slot);
        if let Some(written) = &self.written {
            written.borrow_mut().counters.push(slot);
        }
        let counter = &mut self.counters.borrow_mut()[slot as usize];
        counter.packets += 1;
        counter.bytes += len;
    }
}
