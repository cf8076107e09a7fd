//! What `explain` reads, from the memory that the packet path writes.

use std::{convert::Infallible, net::IpAddr};

use ratelimit_common::abi::{Lease, LimitSet, ListEntry, Share, SourceKey};
use ratelimit_ebpf::{
    packet::{Address, Family},
    rows::Rows as _,
    tables::{CpuBudget, Tables},
};
use ratelimit_user::explain::{Remembered, Row, RowWords};

use crate::memory::{Memory, MemoryWord};

const EXISTS: &str = "memory has every place of an array";

/// Tables in memory, as `explain` reads them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryTables<'m>(pub &'m Memory);

impl Remembered for MemoryTables<'_> {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        let address = match address {
            IpAddr::V4(v4) => Address::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Address { family: Family::V6, key: SourceKey::from_octets(v6.octets()) },
        };
        Ok(Tables::listed(self.0, address).copied())
    }

    fn row(&self, row: Row) -> Result<Option<RowWords>, Infallible> {
        let kept = match row {
            Row::Share(_) | Row::Budget(_) => return Ok(None),
            Row::Window(key) => self.0.find(Row::KeptWindow(key)),
            _ => None,
        };
        let read = |(table, at): MemoryWord| {
            let place = |place| if place < table.width() { self.0.read((table, at + place)) } else { 0 };
            std::array::from_fn(place)
        };
        Ok(self.0.find(row).or(kept).map(read))
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Infallible> {
        Ok(*Tables::user_limits(self.0, table, index).expect(EXISTS))
    }

    fn lease(&self, place: u32) -> Result<Lease, Infallible> {
        Ok(Tables::lease(self.0, place).expect(EXISTS))
    }

    fn shares(&self, total: u32) -> Result<Vec<Share>, Infallible> {
        let share = self.0.share(total).expect(EXISTS);
        Ok(vec![Share {
            pool_q8: std::array::from_fn(|place| self.0.load(self.0.share_pool(share, place))),
            refused_until_q8: std::array::from_fn(|place| {
                self.0.load(self.0.share_refused_until(share, place))
            }),
        }])
    }

    fn new_sources(&self) -> Result<Vec<u64>, Infallible> {
        Ok(vec![self.0.load(self.0.budget(CpuBudget::Newcomers).expect(EXISTS))])
    }
}
