//! Reading what the kernel remembers of one source, entry by entry.

use std::net::IpAddr;

use aya::maps::lpm_trie::Key;
use ratelimit_common::abi::{
    Bucket, Cell, EntryKey, FairCell, Lease, LimitSet, ListEntry, PrefixKey, PrefixLevelCell, Share, Spent,
    SynState, TotalState, WindowState,
};

use super::{DataplaneError, kernel::Maps, table::found};
use crate::{
    explain::Ledger,
    policy::{Prefix, TrieKey},
};

/// The place of the allowance for newcomers, as the kernel program has it.
const NEWCOMERS: u32 = 0;

impl Ledger for Maps {
    type Error = DataplaneError;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, DataplaneError> {
        let entry = match Prefix::masked(address, u8::MAX).trie_key() {
            TrieKey::V4(len, data) => self.lists_v4.get(&Key::new(len, data), 0),
            TrieKey::V6(len, data) => self.lists_v6.get(&Key::new(len, data), 0),
        };
        found(entry).map_err(DataplaneError::map("read the lists"))
    }

    fn entry(&self, key: &EntryKey) -> Result<Option<Bucket>, DataplaneError> {
        self.table.entry(key)
    }

    fn tracked_until_q8(&self, cell: u32) -> Result<u64, DataplaneError> {
        self.table.tracked_until_q8(cell)
    }

    fn cell(&self, index: u32) -> Result<Cell, DataplaneError> {
        self.table.cell(index)
    }

    fn prefix(&self, key: &PrefixKey) -> Result<Option<u64>, DataplaneError> {
        found(self.prefixes.get(key, 0)).map_err(DataplaneError::map("read the table of prefixes"))
    }

    fn prefix_level_cell(&self, index: u32) -> Result<PrefixLevelCell, DataplaneError> {
        self.prefix_levels.get(&index, 0).map_err(DataplaneError::map("read the cells of prefix aggregation"))
    }

    fn fair(&self, cell: u32) -> Result<FairCell, DataplaneError> {
        self.fair.get(&cell, 0).map_err(DataplaneError::map("read the fair shares of sources"))
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, DataplaneError> {
        self.user_limits
            .get(&table, 0)
            .and_then(|limits| limits.get(&index, 0))
            .map_err(DataplaneError::map("read the limits of users"))
    }

    fn window(&self, key: &EntryKey) -> Result<Option<WindowState>, DataplaneError> {
        let state = found(self.windows.get(key, 0)).and_then(|state| match state {
            None => found(self.kept_windows.get(key, 0)),
            state => Ok(state),
        });
        state.map_err(DataplaneError::map("read the windows of sources"))
    }

    fn lease(&self, place: u32) -> Result<(Lease, Spent), DataplaneError> {
        Ok((Maps::lease(self, place)?, self.spent(place)?))
    }

    fn user_window(&self, index: u32) -> Result<WindowState, DataplaneError> {
        self.user_windows.get(&index, 0).map_err(DataplaneError::map("read the windows of users"))
    }

    fn user(&self, index: u32) -> Result<Bucket, DataplaneError> {
        self.users.get(&index, 0).map_err(DataplaneError::map("read the buckets of users"))
    }

    fn total(&self, service: u32) -> Result<TotalState, DataplaneError> {
        self.totals.get(&service, 0).map_err(DataplaneError::map("read the totals of services"))
    }

    fn shares(&self, service: u32) -> Result<Vec<Share>, DataplaneError> {
        let per_cpu = self.shares.get(&service, 0).map_err(DataplaneError::map("read the shares of CPUs"))?;
        Ok(per_cpu.iter().copied().collect())
    }

    fn syns(&self, service: u32) -> Result<SynState, DataplaneError> {
        self.syns.get(&service, 0).map_err(DataplaneError::map("read the SYNs of services"))
    }

    fn newcomers(&self) -> Result<Vec<u64>, DataplaneError> {
        let per_cpu =
            self.allowances.get(&NEWCOMERS, 0).map_err(DataplaneError::map("read the allowances of CPUs"))?;
        Ok(per_cpu.iter().copied().collect())
    }
}
