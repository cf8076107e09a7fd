//! Records everything that is read to explain one address, each value once, so that the state of limits and the decisions of the packet path are about one
//! moment.

use std::{cell::RefCell, net::IpAddr};

use foldhash::HashMap;

use ratelimit_common::{
    abi::{Lease, LimitSet, ListEntry, Policy, Share, user::NO_USER},
    limit::gcra::{ahead_q8, time_q8},
};
use ratelimit_ebpf::tables::CpuBudget;

use super::{
    ExplainContext,
    remembered::{Remembered, Row, RowWords, words},
};

/// The per-CPU budget of entries for new sources.
pub(super) const NEW_SOURCES: u32 = CpuBudget::Newcomers as u32;

/// The values that were read. A value that cannot be read counts as absent, and [`ReadRecord::finish`] returns the error.
pub(super) struct ReadRecord<'r, R: Remembered> {
    remembered: &'r R,
    pub(super) policy: &'r Policy,
    pub(super) now_ns: u64,
    /// The longest listed prefix around the address.
    pub(super) listed: Option<ListEntry>,
    /// The limits of the user that has the address.
    pub(super) user_limits: LimitSet,
    rows: RefCell<HashMap<Row, Option<RowWords>>>,
    shares: RefCell<HashMap<u32, Vec<Share>>>,
    failed: RefCell<Option<R::Error>>,
}

impl<'r, R: Remembered> ReadRecord<'r, R> {
    pub(super) fn new(
        remembered: &'r R,
        setting: &ExplainContext<'r>,
        address: IpAddr,
    ) -> Result<Self, R::Error> {
        let listed = remembered.listed(address)?;
        let user = listed.map_or(NO_USER, |entry| entry.user);
        let user_limits = match user.checked_sub(1) {
            Some(index) => remembered.user_limits(setting.kernel.tables, u32::from(index))?,
            None => LimitSet::NONE,
        };
        Ok(Self { listed, user_limits, ..Self::of_nobody(remembered, setting) })
    }

    /// A record without a source, for values that no source has for itself.
    pub(super) fn of_nobody(remembered: &'r R, setting: &ExplainContext<'r>) -> Self {
        Self {
            remembered,
            policy: setting.kernel,
            now_ns: setting.now_ns,
            listed: None,
            user_limits: LimitSet::NONE,
            rows: RefCell::default(),
            shares: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// Returns `made`, or the error of a value that could not be read.
    pub(super) fn finish<T>(self, made: T) -> Result<T, R::Error> {
        self.failed.into_inner().map_or(Ok(made), Err)
    }

    /// The words of a row, if there is one.
    pub(super) fn row(&self, row: Row) -> Option<RowWords> {
        if let Some(known) = self.rows.borrow().get(&row) {
            return *known;
        }
        let read = match row {
            Row::Share(total) => Some(self.best_share(total)),
            Row::Budget(NEW_SOURCES) => Some(words(&[&[self.best_new_sources()]])),
            _ => self.checked(self.remembered.row(row)).flatten(),
        };
        self.rows.borrow_mut().insert(row, read);
        read
    }

    /// The words of a row of an array, which has every row.
    pub(super) fn place(&self, row: Row) -> RowWords {
        self.row(row).unwrap_or_default()
    }

    /// The lease of a user's limit.
    pub(super) fn lease(&self, place: u32) -> Lease {
        self.checked(self.remembered.lease(place)).unwrap_or(Lease::NONE)
    }

    /// What each CPU holds of a total.
    pub(super) fn shares(&self, total: u32) -> Vec<Share> {
        let read = || self.checked(self.remembered.shares(total)).unwrap_or_default();
        self.shares.borrow_mut().entry(total).or_insert_with(read).clone()
    }

    /// The best share of a total among the CPUs, word by word: a packet may arrive on any CPU.
    fn best_share(&self, total: u32) -> RowWords {
        let now_q8 = time_q8(self.now_ns);
        let mut best = Share::EMPTY;
        for (nth, share) in self.shares(total).iter().enumerate() {
            for place in 0..best.pool_q8.len() {
                let (until, known) = (share.refused_until_q8[place], best.refused_until_q8[place]);
                best.pool_q8[place] = best.pool_q8[place].max(share.pool_q8[place]);
                if nth == 0 || ahead_q8(until, now_q8) < ahead_q8(known, now_q8) {
                    best.refused_until_q8[place] = until;
                }
            }
        }
        words(&[&best.pool_q8, &best.refused_until_q8])
    }

    fn best_new_sources(&self) -> u64 {
        let all = self.checked(self.remembered.new_sources()).unwrap_or_default();
        first_to_enter(&all, time_q8(self.now_ns))
    }

    fn checked<T>(&self, read: Result<T, R::Error>) -> Option<T> {
        read.map_err(|error| self.failed.replace(Some(error))).ok()
    }
}

/// The bucket of the CPU that may make an entry first. A word of zero belongs to a CPU that has never made one, and most likely does not exist.
fn first_to_enter(buckets: &[u64], now_q8: u64) -> u64 {
    let used = buckets.iter().copied().filter(|word| *word != 0);
    used.min_by_key(|word| ahead_q8(*word, now_q8)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_source_waits_for_the_first_cpu_that_makes_entries_and_not_for_those_that_never_did() {
        let now_q8 = time_q8(1 << 50);
        let spent = |ms: u64| now_q8 + time_q8(ms * 1_000_000);
        assert_eq!(first_to_enter(&[0, 0], now_q8), 0);
        assert_eq!(first_to_enter(&[spent(170), 0, spent(130)], now_q8), spent(130));
        assert_eq!(first_to_enter(&[spent(170), now_q8 - 1], now_q8), now_q8 - 1);
    }
}
