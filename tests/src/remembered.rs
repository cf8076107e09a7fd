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

impl Memory {
    /// The contents of these words.
    fn words(&self, all: impl IntoIterator<Item = Word>) -> Words {
        let all: Vec<u64> = all.into_iter().map(|word| self.load(word)).collect();
        words(&[&all])
    }

    fn bucket_words(&self, bucket: usize) -> Words {
        let buckets = (0..MAX_LIMITS).map(|index| self.bucket_word(bucket, index));
        self.words(buckets.chain([self.proven_until(bucket)]))
    }

    fn window_words(&self, state: usize) -> Words {
        self.words((0..Words::default().len()).map(|slot| self.window_word(state, slot)))
    }
}

impl Remembered for Memory {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        let address = match address {
            IpAddr::V4(v4) => Address::v4(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => Address { family: Family::V6, key: SourceKey::from_octets(v6.octets()) },
        };
        Ok(Tables::listed(self, address).copied())
    }

    fn row(&self, row: Row) -> Result<Option<Words>, Infallible> {
        Ok(match row {
            Row::Source([hi, lo, group]) => {
                self.bucket(&EntryKey { hi, lo, group }).map(|bucket| self.bucket_words(bucket))
            }
            Row::Window([hi, lo, group]) => {
                let key = EntryKey { hi, lo, group };
                self.window(&key).or_else(|| self.kept_window(&key)).map(|state| self.window_words(state))
            }
            Row::Prefix([hi, lo, prefix_level]) => {
                self.prefix(&PrefixKey { hi, lo, prefix_level }).map(|word| self.words([word]))
            }
            Row::Hot(cell) => Some(words(&[&[self.tracked_until(cell)]])),
            Row::Cell(index) => self.cell(index).map(|cell| {
                let entries = (0..NEGATIVE_ENTRIES).map(|slot| self.cell_negative_entry(cell, slot));
                self.words([self.cell_tat(cell)].into_iter().chain(entries))
            }),
            Row::PrefixCell(index) => self
                .prefix_level_cell(index)
                .map(|cell| self.words([self.prefix_level_tat(cell), self.prefix_level_tracked_until(cell)])),
            Row::Fair(index) => {
                self.fair_cell(index).map(|cell| self.words([self.fair_share(cell), self.fair_asked(cell)]))
            }
            Row::User(index) => self.user(index).map(|bucket| self.bucket_words(bucket)),
            Row::UserWindow(index) => self.user_window(index).map(|state| self.window_words(state)),
            Row::Spent(place) => {
                Some(self.words(self.lease_used(place).into_iter().chain(self.lease_unmet(place))))
            }
            Row::Total(index) => {
                Some(self.words((0..MAX_TOTALS).filter_map(|place| self.total(index, place))))
            }
            Row::Syns(index) => {
                Some(self.words(self.syn_meter(index).into_iter().chain(self.cookies_until(index))))
            }
            Row::Share(_) | Row::NewSources => None,
        })
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Infallible> {
        Ok(*Tables::user_limits(self, table, index).expect(EXISTS))
    }

    fn lease(&self, place: u32) -> Result<Lease, Infallible> {
        Ok(Tables::lease(self, place).expect(EXISTS))
    }

    fn shares(&self, total: u32) -> Result<Vec<Share>, Infallible> {
        let share = self.share(total).expect(EXISTS);
        Ok(vec![Share {
            pool_q8: std::array::from_fn(|place| self.load(self.share_pool(share, place))),
            refused_until_q8: std::array::from_fn(|place| self.load(self.share_refused_until(share, place))),
        }])
    }

    fn new_sources(&self) -> Result<Vec<u64>, Infallible> {
        Ok(vec![self.load(self.budget(CpuBudget::Newcomers).expect(EXISTS))])
    }
}
