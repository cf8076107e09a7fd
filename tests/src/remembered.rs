//! What `explain` reads, from the memory that the packet path writes.

use std::{convert::Infallible, net::IpAddr};

use ratelimit_common::abi::{
    EntryKey, Lease, LimitSet, ListEntry, MAX_LIMITS, PrefixKey, Share, SourceKey, cell::NEGATIVE_ENTRIES,
    service::MAX_TOTALS,
};
use ratelimit_ebpf::{
    packet::{Address, Family},
    tables::{CpuBudget, Tables},
};
use ratelimit_user::explain::{Remembered, Row, Words, words};

use crate::memory::{Memory, Word};

const EXISTS: &str = "memory has every place of an array";

/// Tables in memory, as `explain` reads them.
#[derive(Clone, Copy, Debug)]
pub struct Recollection<'m>(pub &'m Memory);

impl Recollection<'_> {
    /// The contents of these words.
    fn words(&self, all: impl IntoIterator<Item = Word>) -> Words {
        let all: Vec<u64> = all.into_iter().map(|word| self.0.load(word)).collect();
        words(&[&all])
    }

    fn bucket_words(&self, bucket: usize) -> Words {
        let buckets = (0..MAX_LIMITS).map(|index| self.0.bucket_word(bucket, index));
        self.words(buckets.chain([self.0.proven_until(bucket)]))
    }

    fn window_words(&self, state: usize) -> Words {
        self.words((0..Words::default().len()).map(|slot| self.0.window_word(state, slot)))
    }
}

impl Remembered for Recollection<'_> {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        let address = match address {
            IpAddr::V4(v4) => Address::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Address { family: Family::V6, key: SourceKey::from_octets(v6.octets()) },
        };
        Ok(Tables::listed(self.0, address).copied())
    }

    fn row(&self, row: Row) -> Result<Option<Words>, Infallible> {
        Ok(match row {
            Row::Source([hi, lo, group]) => {
                self.0.bucket(&EntryKey { hi, lo, group }).map(|bucket| self.bucket_words(bucket))
            }
            Row::Window([hi, lo, group]) => {
                let key = EntryKey { hi, lo, group };
                self.0.window(&key).or_else(|| self.0.kept_window(&key)).map(|state| self.window_words(state))
            }
            Row::Prefix([hi, lo, prefix_level]) => {
                self.0.prefix(&PrefixKey { hi, lo, prefix_level }).map(|word| self.words([word]))
            }
            Row::Hot(cell) => Some(words(&[&[self.0.tracked_until(cell)]])),
            Row::Cell(index) => self.0.cell(index).map(|cell| {
                let entries = (0..NEGATIVE_ENTRIES).map(|slot| self.0.cell_negative_entry(cell, slot));
                self.words([self.0.cell_tat(cell)].into_iter().chain(entries))
            }),
            Row::PrefixCell(index) => self.0.prefix_level_cell(index).map(|cell| {
                self.words([self.0.prefix_level_tat(cell), self.0.prefix_level_tracked_until(cell)])
            }),
            Row::Fair(index) => self
                .0
                .fair_cell(index)
                .map(|cell| self.words([self.0.fair_share(cell), self.0.fair_asked(cell)])),
            Row::User(index) => self.0.user(index).map(|bucket| self.bucket_words(bucket)),
            Row::UserWindow(index) => self.0.user_window(index).map(|state| self.window_words(state)),
            Row::Spent(place) => {
                Some(self.words(self.0.lease_used(place).into_iter().chain(self.0.lease_unmet(place))))
            }
            Row::Total(index) => {
                Some(self.words((0..MAX_TOTALS).filter_map(|place| self.0.total(index, place))))
            }
            Row::Syns(index) => {
                Some(self.words(self.0.syn_meter(index).into_iter().chain(self.0.cookies_until(index))))
            }
            Row::Share(_) | Row::NewSources => None,
        })
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
