//! The packet path's tables, as words in memory.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::{
    abi::{
        Bucket, Clock, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, MAX_LIMITS, Policy, PrefixKey,
        destination::DestinationKey, link::LINK_CELLS, service::MAX_TOTALS,
    },
    limit::{prefilter, window::sliding::SUB_WINDOWS},
};
use ratelimit_ebpf::{
    packet::{Address, Family},
    tables::{CpuBudget, InsertError, Lane, LaneWord, Tables},
};

use super::{
    BUCKET_WORDS, CELL_WORDS, KEPT_AT, Memory, PREFIX_LEVEL_WORDS, SHARE_WORDS, USER_WINDOW_WORDS, USERS_AT,
    Word,
};
use crate::compile::{Destination, lists::Prefix};

impl Tables for Memory {
    type Word = Word;
    type Bucket = usize;
    type Cell = usize;
    type PrefixLevelCell = usize;
    type FairCell = usize;
    type Window = usize;
    type Share = usize;

    fn now_ns(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Precise => self.now_ns.get(),
            Clock::Coarse => self.now_ns.get().saturating_sub(self.lag_ns.get()),
        }
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn express(&self, family: Family, _: u64) -> Option<Lane<'_>> {
        let listed = !self.listed_lens[family as usize].is_empty();
        let totals = self.policy.weighs_alike();
        (self.express.get() && self.policy.serves_lane()).then_some(Lane {
            policy: &self.lane_policy,
            listed,
            totals,
        })
    }

    fn lane_word(&self, word: LaneWord) -> Option<Word> {
        Some(Word::Lane(word as usize))
    }

    fn destined(&self, _: u32, key: &DestinationKey) -> Option<u32> {
        let around = |one: &&Destination| {
            let octets = one.bits as usize / 8;
            let differ = key[octets..].first().zip(one.key[octets..].first()).map_or(0, |(a, b)| a ^ b);
            key[..octets] == one.key[..octets] && differ.leading_zeros() >= one.bits % 8
        };
        self.destinations.iter().filter(around).max_by_key(|one| one.bits).map(|one| one.service)
    }

    fn listed(&self, address: Address) -> Option<&ListEntry> {
        let octets = address.key.octets();
        let address_family = address.family as usize;
        let address = match address.family {
            Family::V4 => Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]).into(),
            Family::V6 => Ipv6Addr::from(octets).into(),
        };
        let lens = &self.listed_lens[address_family];
        lens.iter().find_map(|len| self.lists.get(&Prefix::masked(address, *len)))
    }

    fn bucket(&self, key: &EntryKey) -> Option<usize> {
        let row = self.sources.borrow_mut().get(&[key.hi, key.lo, key.group]);
        row.map(|row| row * BUCKET_WORDS)
    }

    fn bucket_word(&self, bucket: usize, index: usize) -> Word {
        if bucket >= USERS_AT { Word::User(bucket - USERS_AT + index) } else { Word::Bucket(bucket + index) }
    }

    fn proven_until(&self, bucket: usize) -> Word {
        self.bucket_word(bucket, MAX_LIMITS)
    }

    fn user(&self, index: u32) -> Option<usize> {
        Some(USERS_AT + index as usize * BUCKET_WORDS)
    }

    fn user_limits(&self, _: u32, index: u32) -> Option<&LimitSet> {
        Some(self.user_limits.get(&index).unwrap_or(&LimitSet::NONE))
    }

    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError> {
        let key = [key.hi, key.lo, key.group];
        let mut sources = self.sources.borrow_mut();
        if sources.has(&key) {
            return Err(InsertError::Exists);
        }
        if self.full.get() {
            return Err(InsertError::Full);
        }
        let at = sources.insert(key) * BUCKET_WORDS;
        let words = bucket.tat_q8.into_iter().chain([bucket.proven_until_q8]);
        write(&mut self.buckets.borrow_mut(), at, words);
        Ok(())
    }

    fn lease(&self, place: u32) -> Option<Lease> {
        Some(self.leases.borrow().get(&place).copied().unwrap_or(Lease::NONE))
    }

    fn lease_used(&self, place: u32) -> Option<Word> {
        Some(Word::Spent(place as usize * 2))
    }

    fn lease_unmet(&self, place: u32) -> Option<Word> {
        Some(Word::Spent(place as usize * 2 + 1))
    }

    fn window(&self, key: &EntryKey) -> Option<usize> {
        let row = self.windows.borrow_mut().get(&[key.hi, key.lo, key.group]);
        row.map(|row| USER_WINDOW_WORDS + row * SUB_WINDOWS)
    }

    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError> {
        let mut words = self.window_words.borrow_mut();
        let mut windows = self.windows.borrow_mut();
        let key = [key.hi, key.lo, key.group];
        if windows.has(&key) {
            return Err(InsertError::Exists);
        }
        let at = USER_WINDOW_WORDS + windows.insert(key) * SUB_WINDOWS;
        write(&mut words, at, [0; SUB_WINDOWS]);
        Ok(())
    }

    fn kept_window(&self, key: &EntryKey) -> Option<usize> {
        let row = self.kept_windows.borrow_mut().get(&[key.hi, key.lo, key.group]);
        row.map(|row| KEPT_AT + row * SUB_WINDOWS)
    }

    fn keep_window(&self, key: &EntryKey, state: usize) {
        let key = [key.hi, key.lo, key.group];
        let mut kept = self.kept_windows.borrow_mut();
        if !kept.has(&key) {
            let words: [u64; SUB_WINDOWS] =
                std::array::from_fn(|slot| self.load(self.window_word(state, slot)));
            write(&mut self.kept_words.borrow_mut(), kept.insert(key) * SUB_WINDOWS, words);
        }
        self.windows.borrow_mut().remove(&key);
    }

    fn user_window(&self, index: u32) -> Option<usize> {
        Some(index as usize * SUB_WINDOWS)
    }

    fn window_word(&self, state: usize, slot: usize) -> Word {
        if state >= KEPT_AT { Word::KeptWindow(state - KEPT_AT + slot) } else { Word::Window(state + slot) }
    }

    fn budget(&self, budget: CpuBudget) -> Option<Word> {
        Some(Word::Budget(budget as usize))
    }

    fn tracked_until(&self, cell: u32) -> u64 {
        prefilter::marked_until_q8(self.marks.borrow()[cell as usize])
    }

    fn track_until(&self, cell: u32, until_q8: u64) {
        self.store(Word::Mark(cell as usize), prefilter::mark(until_q8).into());
    }

    fn cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * CELL_WORDS)
    }

    fn cell_tat(&self, cell: usize) -> Word {
        Word::Cell(cell)
    }

    fn cell_negative_entry(&self, cell: usize, slot: usize) -> Word {
        Word::Cell(cell + 1 + slot)
    }

    fn prefix_level_cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * PREFIX_LEVEL_WORDS)
    }

    fn prefix_level_tat(&self, cell: usize) -> Word {
        Word::PrefixLevel(cell)
    }

    fn prefix_level_tracked_until(&self, cell: usize) -> Word {
        Word::PrefixLevel(cell + 1)
    }

    fn prefix_level_negative_entry(&self, cell: usize) -> Word {
        Word::PrefixLevel(cell + 2)
    }

    fn prefix(&self, key: &PrefixKey) -> Option<Word> {
        self.prefixes.borrow_mut().get(&[key.hi, key.lo, key.prefix_level]).map(Word::Prefix)
    }

    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError> {
        let mut prefixes = self.prefixes.borrow_mut();
        let key = [key.hi, key.lo, key.prefix_level];
        if prefixes.has(&key) {
            return Err(InsertError::Exists);
        }
        write(&mut self.prefix_words.borrow_mut(), prefixes.insert(key), [tat_q8]);
        Ok(())
    }

    fn fair_cell(&self, index: u32) -> Option<usize> {
        Some(index as usize * 2)
    }

    fn fair_share(&self, cell: usize) -> Word {
        Word::Fair(cell)
    }

    fn fair_asked(&self, cell: usize) -> Word {
        Word::Fair(cell + 1)
    }

    fn total(&self, service: u32, index: usize) -> Option<Word> {
        Some(Word::Total(service as usize * MAX_TOTALS + index))
    }

    fn share(&self, service: u32) -> Option<usize> {
        Some(service as usize * SHARE_WORDS)
    }

    fn share_pool(&self, share: usize, place: usize) -> Word {
        Word::Share(share + place)
    }

    fn share_refused_until(&self, share: usize, place: usize) -> Word {
        Word::Share(share + SHARE_WORDS / 2 + place)
    }

    fn link(&self, interface: u32) -> Option<Word> {
        Some(Word::Link(interface as usize))
    }

    fn link_cell(&self, index: u32) -> Option<(Word, Word)> {
        let at = index as usize * 2;
        (index < LINK_CELLS).then_some((Word::LinkCell(at), Word::LinkCell(at + 1)))
    }

    fn syn_meter(&self, service: u32) -> Option<Word> {
        Some(Word::Syns(service as usize * 2))
    }

    fn cookies_until(&self, service: u32) -> Option<Word> {
        Some(Word::Syns(service as usize * 2 + 1))
    }

    fn load(&self, word: Word) -> u64 {
        let seen = self.read(word);
        if let Some((_, new)) = self.rival.get().filter(|(at, _)| *at == word) {
            self.rival.set(None);
            self.store(word, new);
        }
        seen
    }

    fn store(&self, word: Word, new: u64) {
        if let Some(written) = &self.written {
            written.borrow_mut().words.push(word);
        }
        match word {
            Word::Bucket(at) => self.buckets.borrow_mut()[at] = new,
            Word::Cell(at) => self.cells.borrow_mut()[at] = new,
            // A mark has 32 bits.
            Word::Mark(at) => self.marks.borrow_mut()[at] = new as u32,
            Word::Share(at) => self.shares.borrow_mut()[at] = new,
            Word::Total(at) => self.totals.borrow_mut()[at] = new,
            Word::User(at) => self.users.borrow_mut()[at] = new,
            Word::Budget(at) => self.budgets.borrow_mut()[at] = new,
            Word::PrefixLevel(at) => self.prefix_levels.borrow_mut()[at] = new,
            Word::Fair(at) => self.fair.borrow_mut()[at] = new,
            Word::Prefix(at) => self.prefix_words.borrow_mut()[at] = new,
            Word::Syns(at) => self.syns.borrow_mut()[at] = new,
            Word::Window(at) => self.window_words.borrow_mut()[at] = new,
            Word::KeptWindow(at) => self.kept_words.borrow_mut()[at] = new,
            Word::Link(at) => self.links.borrow_mut()[at] = new,
            Word::LinkCell(at) => self.link_cells.borrow_mut()[at] = new,
            Word::Quiet(at) => self.quiet.borrow_mut()[at] = new,
            Word::Spent(at) => self.spent.borrow_mut()[at] = new,
            Word::Lane(word) => self.lane[word].set(new),
        }
    }

    fn add(&self, word: Word, amount: u64) {
        self.store(word, self.load(word).wrapping_add(amount));
    }

    fn compare_exchange(&self, word: Word, seen: u64, new: u64) -> bool {
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

    fn quiet_until(&self, slot: u32) -> Option<Word> {
        Some(Word::Quiet(slot as usize))
    }

    fn tell(&self, event: DropEvent) -> bool {
        if !self.replays {
            self.told.borrow_mut().push(event);
        }
        true
    }

    fn note(&self, _: Event) {}

    fn count(&self, slot: u32, len: u64) {
        // The program that the packet was handed to counts it.
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

/// Puts words into a row that may be new: rows are numbered without gaps.
fn write(words: &mut Vec<u64>, at: usize, row: impl IntoIterator<Item = u64>) {
    for (place, word) in (at..).zip(row) {
        match words.get_mut(place) {
            Some(old) => *old = word,
            None => words.push(word),
        }
    }
}
