//! Reads the kernel's entries about one source, value by value, for `explain`.

use std::net::IpAddr;

use aya::maps::{MapError, lpm_trie::Key};
use ratelimit_common::abi::{EntryKey, Lease, LimitSet, ListEntry, PrefixKey, Share};

use super::{DataplaneError, kernel::KernelMaps, table::found};
use crate::{
    explain::{Remembered, Row, RowWords, words},
    policy::{Prefix, TrieKey},
};

/// The index of the budget for new sources in the kernel program's map.
const NEW_SOURCES: u32 = 0;

impl Remembered for KernelMaps {
    type Error = DataplaneError;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, DataplaneError> {
        let entry = match Prefix::masked(address, u8::MAX).trie_key() {
            TrieKey::V4(len, data) => self.lists_v4.get(&Key::new(len, data), 0),
            TrieKey::V6(len, data) => self.lists_v6.get(&Key::new(len, data), 0),
        };
        found(entry).map_err(DataplaneError::map("read the lists"))
    }

    fn row(&self, row: Row) -> Result<Option<RowWords>, DataplaneError> {
        let failed = |error: MapError| DataplaneError::map("read what is remembered of an address")(error);
        let value = match row {
            Row::Source([hi, lo, group]) => {
                let bucket = self.table.entry(&EntryKey { hi, lo, group })?;
                return Ok(bucket.map(|bucket| words(&[&bucket.tat_q8, &[bucket.proven_until_q8]])));
            }
            Row::Window([hi, lo, group]) => {
                let key = EntryKey { hi, lo, group };
                let state = match found(self.windows.get(&key, 0)).map_err(failed)? {
                    None => found(self.kept_windows.get(&key, 0)).map_err(failed)?,
                    state => state,
                };
                return Ok(state.map(|state| state.words));
            }
            Row::Prefix([hi, lo, prefix_level]) => {
                let word =
                    found(self.prefixes.get(&PrefixKey { hi, lo, prefix_level }, 0)).map_err(failed)?;
                return Ok(word.map(|word| words(&[&[word]])));
            }
            Row::Mark(cell) => words(&[&[self.table.tracked_until_q8(cell)?]]),
            Row::Cell(index) => {
                words(&[&[self.table.cell(index)?.tat_q8], &self.table.negative_entries(index)?])
            }
            Row::PrefixCell(index) => {
                let cell = self.prefix_levels.get(&index, 0).map_err(failed)?;
                words(&[&[cell.tat_q8, cell.tracked_until_q8]])
            }
            Row::Fair(index) => words(&[&[self.fair.get(&index, 0).map_err(failed)?]]),
            Row::User(index) => words(&[&self.users.get(&index, 0).map_err(failed)?.tat_q8]),
            Row::UserWindow(index) => self.user_windows.get(&index, 0).map_err(failed)?.words,
            Row::Spent(place) => {
                let spent = self.spent(place)?;
                words(&[&[spent.used, spent.unmet]])
            }
            Row::Total(index) => {
                let state = self.totals.get(&index, 0).map_err(failed)?;
                words(&[&state.tat_q8, &state.reserve_tat_q8, &[state.wanted_until_q8]])
            }
            Row::Clients(set) => self.clients.set(set)?,
            Row::Claimed(set) => self.clients.claimed(set)?,
            // `explain` looks every client up.
            Row::ClientFilter(_) => words(&[&[u64::MAX]]),
            Row::Syn(index) => {
                let syns = self.syns.get(&index, 0).map_err(failed)?;
                words(&[&[syns.tat_q8, syns.cookies_until_q8]])
            }
            // `explain` looks at one source, whose entry says whether it is proven.
            Row::Proven(_) | Row::Asked(_) | Row::Challenged(_) => return Ok(None),
            // These rows are kept for each CPU, so there is no single value.
            Row::Share(_) | Row::Budget(_) | Row::Quiet(_) | Row::Lane => return Ok(None),
            // Kept windows are read as windows above, and rows of links belong to frames without a source.
            Row::KeptWindow(_) | Row::Link(_) | Row::LinkCell(_) => return Ok(None),
        };
        Ok(Some(value))
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, DataplaneError> {
        let limits = self.user_limits.get(table).ok_or(MapError::KeyNotFound);
        limits
            .and_then(|limits| limits.get(&index, 0))
            .map_err(DataplaneError::map("read the limits of users"))
    }

    fn lease(&self, place: u32) -> Result<Lease, DataplaneError> {
        KernelMaps::lease(self, place)
    }

    fn shares(&self, total: u32) -> Result<Vec<Share>, DataplaneError> {
        let per_cpu = self.shares.get(&total, 0).map_err(DataplaneError::map("read the shares of CPUs"))?;
        Ok(per_cpu.iter().copied().collect())
    }

    fn new_sources(&self) -> Result<Vec<u64>, DataplaneError> {
        let per_cpu =
            self.allowances.get(&NEW_SOURCES, 0).map_err(DataplaneError::map("read the budgets of CPUs"))?;
        Ok(per_cpu.iter().copied().collect())
    }
}
