//! The packet path's tables as rows of words, outside the kernel: which word of which row each method of [`Tables`] uses.
//!
//! An implementation of [`Rows`] decides where rows are kept, what new ones contain, and the rest of the host. The unit tests here keep every word in one
//! map, `memory` in `ratelimit-user` keeps a vector for each table, `explain` reads the rows of the kernel and writes to a copy.

mod row;
mod word_table;

use core::array;

use ratelimit_common::{
    abi::{
        Bucket, Clock, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, MAX_LIMITS, Policy, PrefixKey,
        cell::NEGATIVE_ENTRIES, destination::DestinationKey, service::MAX_TOTALS,
    },
    limit::{fair, prefilter},
};

use self::word_table::REFUSED_UNTIL;
pub use self::{
    row::{Row, RowKey, RowPlace, RowWords, words},
    word_table::WordTable,
};
use crate::{
    packet::{Address, Family},
    tables::{CpuBudget, InsertError, Lane, LaneWord, Tables},
};

/// Storage of rows. Every implementation of this trait also implements [`Tables`].
pub trait Rows {
    /// The address of one word of a row.
    type Word: Copy;

    /// The first word of a row, if the row exists. Rows of arrays always exist, unless the table is missing.
    fn find(&self, row: Row) -> Option<Self::Word>;
    /// The word at a place of the row whose first word is `first`.
    fn along(first: Self::Word, place: usize) -> Self::Word;
    /// Reads a word.
    fn read(&self, word: Self::Word) -> u64;
    /// Writes a word.
    fn write(&self, word: Self::Word, new: u64);
    /// Makes a row for a key that has none.
    fn make(&self, row: Row, words: RowWords) -> Result<(), InsertError>;
    /// Removes the row of a key.
    fn forget(&self, row: Row);
    /// Whether the next exchange is lost to another CPU.
    fn loses_race(&self) -> bool {
        false
    }

    /// Implements [`Tables::now_ns`].
    fn clock_ns(&self, clock: Clock) -> u64;
    /// Implements [`Tables::policy`].
    fn in_force(&self) -> &Policy;
    /// Implements [`Tables::is_listed`].
    fn has_list(&self, _: Family) -> bool {
        true
    }
    /// Implements [`Tables::express`].
    fn open_lane(&self, _: Family) -> Option<Lane<'_>> {
        None
    }
    /// Implements [`Tables::destined`].
    fn service_of(&self, _table: u32, _: &DestinationKey) -> Option<u32> {
        None
    }
    /// Implements [`Tables::listed`].
    fn list_entry(&self, address: Address) -> Option<&ListEntry>;
    /// Implements [`Tables::user_limits`].
    fn limits_of_user(&self, table: u32, index: u32) -> Option<&LimitSet>;
    /// Implements [`Tables::lease`].
    fn lease_at(&self, place: u32) -> Lease;
    /// Implements [`Tables::tell`].
    fn report(&self, _: DropEvent) -> bool {
        false
    }
    /// Implements [`Tables::note`].
    fn note_event(&self, _: Event) {}
    /// Implements [`Tables::count`].
    fn count_frame(&self, _slot: u32, _len: u64) {}
}

const fn entry(key: &EntryKey) -> RowKey {
    [key.hi, key.lo, key.group]
}

const fn prefix(key: &PrefixKey) -> RowKey {
    [key.hi, key.lo, key.prefix_level]
}

impl<R: Rows> Tables for R {
    type Word = R::Word;
    type Bucket = R::Word;
    type Cell = R::Word;
    type PrefixLevelCell = R::Word;
    type Window = R::Word;
    type Share = R::Word;
    type Clients = R::Word;

    fn now_ns(&self, clock: Clock) -> u64 {
        self.clock_ns(clock)
    }

    fn policy(&self) -> Option<&Policy> {
        Some(self.in_force())
    }

    fn express(&self, family: Family, _: u64) -> Option<Lane<'_>> {
        self.open_lane(family)
    }

    fn is_listed(&self, family: Family) -> bool {
        self.has_list(family)
    }

    fn weighs_alike(&self) -> bool {
        self.in_force().weighs_alike()
    }

    fn lane_word(&self, word: LaneWord) -> Option<R::Word> {
        Some(R::along(self.find(Row::Lane)?, word as usize))
    }

    fn destined(&self, table: u32, key: &DestinationKey) -> Option<u32> {
        self.service_of(table, key)
    }

    fn listed(&self, address: Address) -> Option<&ListEntry> {
        self.list_entry(address)
    }

    fn bucket(&self, key: &EntryKey) -> Option<R::Word> {
        self.find(Row::Source(entry(key)))
    }

    fn bucket_word(&self, bucket: R::Word, index: usize) -> R::Word {
        debug_assert!(index < MAX_LIMITS, "limit {index} of {MAX_LIMITS}");
        R::along(bucket, index)
    }

    fn proven_until(&self, bucket: R::Word) -> R::Word {
        R::along(bucket, MAX_LIMITS)
    }

    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError> {
        self.make(Row::Source(entry(key)), words(&[&bucket.tat_q8, &[bucket.proven_until_q8]]))
    }

    fn user(&self, index: u32) -> Option<R::Word> {
        self.find(Row::User(index))
    }

    fn user_limits(&self, table: u32, index: u32) -> Option<&LimitSet> {
        self.limits_of_user(table, index)
    }

    fn lease(&self, place: u32) -> Option<Lease> {
        Some(self.lease_at(place))
    }

    fn lease_used(&self, place: u32) -> Option<R::Word> {
        self.find(Row::Spent(place))
    }

    fn lease_unmet(&self, place: u32) -> Option<R::Word> {
        Some(R::along(self.find(Row::Spent(place))?, 1))
    }

    fn window(&self, key: &EntryKey) -> Option<R::Word> {
        self.find(Row::Window(entry(key)))
    }

    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError> {
        self.make(Row::Window(entry(key)), RowWords::default())
    }

    fn kept_window(&self, key: &EntryKey) -> Option<R::Word> {
        self.find(Row::KeptWindow(entry(key)))
    }

    fn keep_window(&self, key: &EntryKey, state: R::Word) {
        let words = array::from_fn(|slot| self.read(R::along(state, slot)));
        // A window that is kept already stays, and one without room is lost, as in the kernel.
        let _ = self.make(Row::KeptWindow(entry(key)), words);
        self.forget(Row::Window(entry(key)));
    }

    fn user_window(&self, index: u32) -> Option<R::Word> {
        self.find(Row::UserWindow(index))
    }

    fn window_word(&self, state: R::Word, slot: usize) -> R::Word {
        R::along(state, slot)
    }

    fn budget(&self, budget: CpuBudget) -> Option<R::Word> {
        self.find(Row::Budget(budget as u32))
    }

    fn tracked_until(&self, cell: u32) -> u64 {
        self.find(Row::Mark(cell)).map_or(0, |mark| self.read(mark))
    }

    fn track_until(&self, cell: u32, until_q8: u64) {
        if let Some(mark) = self.find(Row::Mark(cell)) {
            // Rounded to the kernel's coarse marks.
            self.write(mark, prefilter::marked_until_q8(prefilter::mark(until_q8)));
        }
    }

    fn cell_bits(&self, cell: u32) -> u64 {
        // The daemon sets every bit for a policy under which entries exist behind cells without marks.
        let tracked = self.tracked_until(cell) != 0 || self.in_force().source.set.tracked_until_q8 != 0;
        let first = cell * NEGATIVE_ENTRIES as u32;
        let mut places = (first..first + NEGATIVE_ENTRIES as u32).filter_map(|at| self.negative_entry(at));
        let remembered = places.any(|place| self.read(place) != 0) || self.proven_mark(cell) != 0;
        let tracked = if tracked { prefilter::TRACKED_BIT } else { 0 };
        tracked | if remembered { prefilter::REMEMBERED_BIT } else { 0 }
    }

    fn proven_mark(&self, cell: u32) -> u8 {
        // Storage without this table has no express lane either, which is the only reader.
        self.find(Row::Proven(cell)).map_or(u8::MAX, |mark| self.read(mark) as u8)
    }

    fn mark_proven(&self, cell: u32, now_q8: u64) {
        if let Some(mark) = self.find(Row::Proven(cell)) {
            self.write(mark, fair::proven_mark(now_q8).into());
        }
    }

    fn cell(&self, index: u32) -> Option<R::Word> {
        self.find(Row::Cell(index))
    }

    fn cell_tat(&self, cell: R::Word) -> R::Word {
        cell
    }

    fn negative_entry(&self, place: u32) -> Option<R::Word> {
        const IN_CELL: u32 = NEGATIVE_ENTRIES as u32;
        Some(R::along(self.find(Row::Cell(place / IN_CELL))?, 1 + (place % IN_CELL) as usize))
    }

    fn prefix_level_cell(&self, index: u32) -> Option<R::Word> {
        self.find(Row::PrefixCell(index))
    }

    fn prefix_level_tat(&self, cell: R::Word) -> R::Word {
        cell
    }

    fn prefix_level_tracked_until(&self, cell: R::Word) -> R::Word {
        R::along(cell, 1)
    }

    fn prefix_level_negative_entry(&self, cell: R::Word) -> R::Word {
        R::along(cell, 2)
    }

    fn prefix_level_squeezed(&self, cell: R::Word) -> R::Word {
        R::along(cell, 3)
    }

    fn prefix(&self, key: &PrefixKey) -> Option<R::Word> {
        self.find(Row::Prefix(prefix(key)))
    }

    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError> {
        self.make(Row::Prefix(prefix(key)), words(&[&[tat_q8]]))
    }

    fn fair_share(&self, cell: u32) -> Option<R::Word> {
        self.find(Row::Fair(cell))
    }

    fn asked(&self, cell: u32) -> Option<R::Word> {
        self.find(Row::Asked(cell))
    }

    fn challenged(&self, cell: u32) -> Option<R::Word> {
        self.find(Row::Challenged(cell))
    }

    fn clients(&self, set: u32) -> Option<R::Word> {
        self.find(Row::Clients(set))
    }

    fn client(&self, set: R::Word, way: usize) -> R::Word {
        R::along(set, way)
    }

    fn claimed(&self, set: u32) -> Option<R::Word> {
        self.find(Row::Claimed(set))
    }

    fn client_filter(&self, index: u32) -> Option<R::Word> {
        self.find(Row::ClientFilter(index))
    }

    fn wanted_until(&self, service: u32) -> Option<R::Word> {
        Some(R::along(self.find(Row::Total(service))?, 2 * MAX_TOTALS))
    }

    fn reserve(&self, service: u32, index: usize) -> Option<R::Word> {
        Some(R::along(self.find(Row::Total(service))?, MAX_TOTALS + index))
    }

    fn total(&self, service: u32, index: usize) -> Option<R::Word> {
        Some(R::along(self.find(Row::Total(service))?, index))
    }

    fn share(&self, service: u32) -> Option<R::Word> {
        self.find(Row::Share(service))
    }

    fn share_pool(&self, share: R::Word, place: usize) -> R::Word {
        R::along(share, place)
    }

    fn share_refused_until(&self, share: R::Word, place: usize) -> R::Word {
        R::along(share, REFUSED_UNTIL + place)
    }

    fn link(&self, interface: u32) -> Option<R::Word> {
        self.find(Row::Link(interface))
    }

    fn link_cell(&self, index: u32) -> Option<(R::Word, R::Word)> {
        let name = self.find(Row::LinkCell(index))?;
        Some((name, R::along(name, 1)))
    }

    fn syn_meter(&self, service: u32) -> Option<R::Word> {
        self.find(Row::Syn(service))
    }

    fn cookies_until(&self, service: u32) -> Option<R::Word> {
        Some(R::along(self.find(Row::Syn(service))?, 1))
    }

    fn load(&self, word: R::Word) -> u64 {
        self.read(word)
    }

    fn store(&self, word: R::Word, new: u64) {
        self.write(word, new);
    }

    fn add(&self, word: R::Word, amount: u64) {
        self.write(word, self.read(word).wrapping_add(amount));
    }

    fn compare_exchange(&self, word: R::Word, seen: u64, new: u64) -> bool {
        let same = !self.loses_race() && self.read(word) == seen;
        if same {
            self.write(word, new);
        }
        same
    }

    fn quiet_until(&self, slot: u32) -> Option<R::Word> {
        self.find(Row::Quiet(slot))
    }

    fn tell(&self, event: DropEvent) -> bool {
        self.report(event)
    }

    fn note(&self, event: Event) {
        self.note_event(event);
    }

    fn count(&self, slot: u32, len: u64) {
        self.count_frame(slot, len);
    }
}
