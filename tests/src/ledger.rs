//! What `explain` reads, from the memory that the packet path writes.

use std::{convert::Infallible, net::IpAddr};

use ratelimit_common::abi::{
    Bucket, Cell, EntryKey, FairCell, Lease, LimitSet, ListEntry, PrefixKey, PrefixLevelCell, Share,
    SourceKey, Spent, SynState, TotalState, WindowState,
};
use ratelimit_ebpf::{
    packet::{Address, Family},
    tables::{CpuBudget, Tables},
};
use ratelimit_user::explain::Ledger;

use crate::memory::Memory;

const EXISTS: &str = "memory has every place of an array";

impl Ledger for Memory {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        let address = match address {
            IpAddr::V4(v4) => Address::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Address { family: Family::V6, key: SourceKey::from_octets(v6.octets()) },
        };
        Ok(Tables::listed(self, address).copied())
    }

    fn entry(&self, key: &EntryKey) -> Result<Option<Bucket>, Infallible> {
        Ok(self.bucket(key).map(|bucket| bucket_of(self, bucket)))
    }

    fn tracked_until_q8(&self, cell: u32) -> Result<u64, Infallible> {
        Ok(self.tracked_until(cell))
    }

    fn cell(&self, index: u32) -> Result<Cell, Infallible> {
        let cell = Tables::cell(self, index).expect(EXISTS);
        Ok(Cell {
            tat_q8: self.load(self.cell_tat(cell)),
            negative_entries: std::array::from_fn(|slot| self.load(self.cell_negative_entry(cell, slot))),
        })
    }

    fn prefix(&self, key: &PrefixKey) -> Result<Option<u64>, Infallible> {
        Ok(Tables::prefix(self, key).map(|word| self.load(word)))
    }

    fn prefix_level_cell(&self, index: u32) -> Result<PrefixLevelCell, Infallible> {
        let cell = Tables::prefix_level_cell(self, index).expect(EXISTS);
        let (tat, tracked) = (self.prefix_level_tat(cell), self.prefix_level_tracked_until(cell));
        Ok(PrefixLevelCell { tat_q8: self.load(tat), tracked_until_q8: self.load(tracked) })
    }

    fn fair(&self, cell: u32) -> Result<FairCell, Infallible> {
        let cell = self.fair_cell(cell).expect(EXISTS);
        let (share, asked) = (self.fair_share(cell), self.fair_asked(cell));
        Ok(FairCell { share: self.load(share), asked: self.load(asked) })
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Infallible> {
        Ok(*Tables::user_limits(self, table, index).expect(EXISTS))
    }

    fn window(&self, key: &EntryKey) -> Result<Option<WindowState>, Infallible> {
        Ok(Tables::window(self, key).or_else(|| self.kept_window(key)).map(|state| window_of(self, state)))
    }

    fn lease(&self, place: u32) -> Result<(Lease, Spent), Infallible> {
        let word = |word: Option<_>| self.load(word.expect(EXISTS));
        let spent = Spent { used: word(self.lease_used(place)), unmet: word(self.lease_unmet(place)) };
        Ok((Tables::lease(self, place).expect(EXISTS), spent))
    }

    fn user_window(&self, index: u32) -> Result<WindowState, Infallible> {
        Ok(window_of(self, Tables::user_window(self, index).expect(EXISTS)))
    }

    fn user(&self, index: u32) -> Result<Bucket, Infallible> {
        Ok(bucket_of(self, Tables::user(self, index).expect(EXISTS)))
    }

    fn total(&self, service: u32) -> Result<TotalState, Infallible> {
        let word = |index| self.load(Tables::total(self, service, index).expect(EXISTS));
        Ok(TotalState { tat_q8: std::array::from_fn(word) })
    }

    fn shares(&self, service: u32) -> Result<Vec<Share>, Infallible> {
        let share = self.share(service).expect(EXISTS);
        Ok(vec![Share {
            pool_q8: std::array::from_fn(|place| self.load(self.share_pool(share, place))),
            refused_until_q8: std::array::from_fn(|place| self.load(self.share_refused_until(share, place))),
        }])
    }

    fn syns(&self, service: u32) -> Result<SynState, Infallible> {
        Ok(SynState {
            tat_q8: self.load(self.syn_meter(service).expect(EXISTS)),
            cookies_until_q8: self.load(self.cookies_until(service).expect(EXISTS)),
        })
    }

    fn newcomers(&self) -> Result<Vec<u64>, Infallible> {
        Ok(vec![self.load(self.budget(CpuBudget::Newcomers).expect(EXISTS))])
    }
}

fn bucket_of(memory: &Memory, bucket: usize) -> Bucket {
    Bucket {
        tat_q8: std::array::from_fn(|index| memory.load(memory.bucket_word(bucket, index))),
        proven_until_q8: memory.load(memory.proven_until(bucket)),
    }
}

fn window_of(memory: &Memory, state: usize) -> WindowState {
    WindowState { words: std::array::from_fn(|slot| memory.load(memory.window_word(state, slot))) }
}
