//! The totals of a service and of the host: exact over all CPUs, without a cache line that all of them write.
//!
//! Each CPU takes a portion from the shared bucket at a time and spends it by itself. A portion is charged when it is taken, so the sum
//! of all CPUs can never exceed the bucket; what CPUs hold unspent is taken out of the tolerance beforehand.
//!
//! Untracked sources (sources without an entry) may push the bucket only so far. The rest is for tracked sources: in a spoofed flood
//! they still find tokens, because untracked sources stop before the bucket is empty.

use ratelimit_common::{
    abi::{
        Limit, Meter, Policy, Share, Total,
        service::{HOST_TOTAL, MAX_TOTALS, Party},
    },
    limit::{
        clients::{TotalReserve, WANTED_Q8, reserve_price_q8},
        gcra::{self, Start, ahead_q8},
    },
};

use super::{
    negative_cache::ended_early,
    word::{self, Charging, Unmoved},
};
use crate::{forget::forget, tables::Tables};

/// One total, from the view of this CPU.
pub(super) struct TotalView<'p, T: Tables> {
    number: u32,
    count: u64,
    totals: &'p [Total; MAX_TOTALS],
    share: T::Share,
}

impl<'p, T: Tables> TotalView<'p, T> {
    /// The view of a service's total; `None` if the service has none.
    #[inline(always)]
    pub(super) fn of(tables: &T, policy: &'p Policy, service_number: u32) -> Option<Self> {
        let (number, service) = policy.service(service_number)?;
        Self::open(tables, number, service.total_count, &service.totals)
    }

    /// The view of the host's total; `None` if the host has none.
    #[inline(always)]
    pub(super) fn of_host(tables: &T, policy: &'p Policy) -> Option<Self> {
        Self::open(tables, HOST_TOTAL, policy.host_total_count, &policy.host_totals)
    }

    #[inline(always)]
    fn open(tables: &T, number: u32, count: u64, totals: &'p [Total; MAX_TOTALS]) -> Option<Self> {
        if count == 0 {
            return None;
        }
        Some(Self { number, count, totals, share: tables.share(number)? })
    }

    /// The view with a number of limits that the verifier no longer knows.
    #[inline(always)]
    pub(super) fn forgotten(self, unknown: u64) -> Self {
        Self { count: forget(self.count, unknown), ..self }
    }

    /// Whether this CPU knows by its own words that nothing is left for a party.
    #[inline(always)]
    pub(super) fn is_spent(&self, tables: &T, len: u64, now_q8: u64, party: Party) -> bool {
        self.spent_until(tables, len, now_q8, party).is_some()
    }

    /// Until when this CPU knows that nothing is left for a party, as a time word.
    #[inline(always)]
    pub(super) fn spent_until(&self, tables: &T, len: u64, now_q8: u64, party: Party) -> Option<u64> {
        for index in 0..MAX_TOTALS {
            let Some(total) = self.total(index) else { break };
            let price = price(len, &total.limit);
            let place = Share::place(index, party);
            let refused_until = tables.load(tables.share_refused_until(self.share, place));
            if tables.load(tables.share_pool(self.share, place)) < price
                && ahead_q8(refused_until, now_q8) != 0
            {
                return Some(refused_until);
            }
        }
        None
    }

    /// Whether this CPU knew at some time since then that nothing is left for untracked sources. A place without a limit is never refused, and is asked like the
    /// others: kernel 6.1 cannot follow a loop that ends with their number.
    #[inline(always)]
    pub(super) fn was_spent_since(&self, tables: &T, since_q8: u64) -> bool {
        let refused = (0..MAX_TOTALS).fold(0, |refused, index| {
            let place = Share::place(index, Party::Untracked);
            refused | ahead_q8(tables.load(tables.share_refused_until(self.share, place)), since_q8)
        });
        refused != 0
    }

    /// Whether all packets have the same charge under the total: no limit is in bytes.
    #[inline(always)]
    pub(super) fn weighs_alike(&self) -> bool {
        let by_bytes =
            |index| self.total(index).is_some_and(|total| total.limit.meter == Meter::Bytes as u32);
        !(0..MAX_TOTALS).any(by_bytes)
    }

    /// Whether this CPU's pool has enough for the packet.
    #[inline(always)]
    pub(super) fn holds(&self, tables: &T, len: u64, party: Party) -> bool {
        for index in 0..MAX_TOTALS {
            let Some(total) = self.total(index) else { break };
            let pool = tables.share_pool(self.share, Share::place(index, party));
            if tables.load(pool) < price(len, &total.limit) {
                return false;
            }
        }
        true
    }

    /// Takes a portion if this CPU needs one for the packet under some limit, and returns whether it then holds enough under all. Nothing is spent.
    #[inline(always)]
    pub(super) fn stock(&self, tables: &T, len: u64, now_q8: u64, party: Party) -> bool {
        for index in 0..MAX_TOTALS {
            let Some(total) = self.total(index) else { break };
            if !self.stock_one(tables, (len, now_q8), (index, total), party) {
                return false;
            }
        }
        true
    }

    /// Until when this CPU knows that a source with an entry that is not known is refused, as a time word: the ordinary part is spent, and so is the reserve or its part of it.
    #[inline(always)]
    pub(super) fn spent_for_tracked_until(&self, tables: &T, len: u64, now_q8: u64) -> Option<u64> {
        let ordinary_q8 = self.spent_until(tables, len, now_q8, Party::Untracked)?;
        let reserve_q8 = match self.spent_until(tables, len, now_q8, Party::Tracked) {
            Some(until_q8) => until_q8,
            None => self.reserve_spent_until(tables, len, now_q8)?,
        };
        let is_later = ahead_q8(ordinary_q8, now_q8) > ahead_q8(reserve_q8, now_q8);
        Some(if is_later { reserve_q8 } else { ordinary_q8 })
    }

    /// Until when the reserve has nothing for a source that is not known, as a time word.
    #[inline(always)]
    fn reserve_spent_until(&self, tables: &T, len: u64, now_q8: u64) -> Option<u64> {
        for index in 0..MAX_TOTALS {
            let Some(reserve) = self.reserve(tables, index, len, now_q8) else { break };
            if !reserve.has_room_for_tracked() {
                let wanted_q8 = ahead_q8(tables.load(tables.wanted_until(self.number)?), now_q8);
                // When known clients no longer want it, there is more.
                return Some(now_q8.wrapping_add(reserve.tracked_wait_q8().min(wanted_q8)));
            }
        }
        None
    }

    /// The reserve of one limit, in the view of a packet.
    #[inline(always)]
    pub(super) fn reserve(&self, tables: &T, index: usize, len: u64, now_q8: u64) -> Option<TotalReserve> {
        let total = self.total(index)?;
        let debt_q8 = ahead_q8(tables.load(tables.reserve(self.number, index)?), now_q8);
        let end_q8 = total.limit.tolerance_q8.saturating_sub(total.untracked_tolerance_q8);
        let is_wanted = ahead_q8(tables.load(tables.wanted_until(self.number)?), now_q8) != 0;
        Some(TotalReserve {
            debt_q8,
            end_q8: reserve_price_q8(end_q8, total.known_parts),
            price_q8: reserve_price_q8(price(len, &total.limit), total.known_parts),
            is_wanted,
        })
    }

    /// Remembers that a known client wants a part of the reserve.
    #[inline(always)]
    pub(super) fn want_reserve(&self, tables: &T, now_q8: u64) {
        let Some(word) = tables.wanted_until(self.number) else { return };
        // Not for every packet: other CPUs read the word.
        if ahead_q8(tables.load(word), now_q8) < WANTED_Q8 - WANTED_Q8 / 8 {
            tables.store(word, now_q8.wrapping_add(WANTED_Q8));
        }
    }

    /// Charges the reserve of every limit for a packet, if known clients want it.
    #[inline(always)]
    pub(super) fn charge_reserve(&self, tables: &T, len: u64, now_q8: u64) {
        let is_wanted = |word| ahead_q8(tables.load(word), now_q8) != 0;
        if !tables.wanted_until(self.number).is_some_and(is_wanted) {
            return;
        }
        for index in 0..MAX_TOTALS {
            let Some(total) = self.total(index) else { break };
            let Some(word) = tables.reserve(self.number, index) else { break };
            let price_q8 = reserve_price_q8(price(len, &total.limit), total.known_parts);
            let seen = tables.load(word);
            // A CPU that loses the first packet of a shortage to another one charges nothing: the total itself is exact.
            if ahead_q8(seen, now_q8) == 0 {
                tables.compare_exchange(word, seen, now_q8.wrapping_add(price_q8));
            } else {
                tables.add(word, price_q8);
            }
        }
    }

    /// Spends the packet's charge from what [`stock`](Self::stock) has made available.
    #[inline(always)]
    pub(super) fn spend(&self, tables: &T, len: u64, party: Party) {
        for index in 0..MAX_TOTALS {
            let Some(total) = self.total(index) else { break };
            let pool = tables.share_pool(self.share, Share::place(index, party));
            tables.store(pool, tables.load(pool).saturating_sub(price(len, &total.limit)));
        }
    }

    /// Takes a portion of one limit if this CPU needs one for the packet, and returns whether it then holds enough.
    #[inline(always)]
    fn stock_one(
        &self,
        tables: &T,
        (len, now_q8): (u64, u64),
        (index, total): (usize, &Total),
        party: Party,
    ) -> bool {
        let place = Share::place(index, party);
        let pool = tables.share_pool(self.share, place);
        let price = price(len, &total.limit);
        let left = tables.load(pool);
        if left >= price {
            return true;
        }
        let Some(word) = tables.total(self.number, index) else { return false };
        let wanted = price.max(total.portion_q8);
        let tolerance_q8 = match party {
            Party::Untracked => total.untracked_tolerance_q8,
            Party::Tracked | Party::Proven => total.limit.tolerance_q8,
        };
        let limit = Limit { tolerance_q8, ..total.limit };
        match word::charge(tables, word, &limit, now_q8, wanted, Start::FULL, Charging::Exchange) {
            Ok(()) => {
                tables.store(pool, left + wanted);
                true
            }
            Err(Unmoved::Refused) => {
                let until_q8 = tables.load(word).wrapping_add(wanted).wrapping_sub(tolerance_q8);
                // By either clock: a burst that is shorter than the longest lag is rare where the coarse one decides, and then only the lane is used less.
                let until_q8 = ended_early(until_q8, tolerance_q8.saturating_sub(wanted));
                tables.store(tables.share_refused_until(self.share, place), until_q8);
                false
            }
            Err(Unmoved::Contended) => false,
        }
    }

    #[inline(always)]
    fn total(&self, index: usize) -> Option<&'p Total> {
        if (index as u64) < self.count { self.totals.get(index) } else { None }
    }
}

#[inline(always)]
pub(super) fn price(len: u64, limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, len) } else { limit.cost_fp }
}

/// Takes a portion of the host's total if this CPU needs one for a packet, and returns whether it then holds enough.
#[inline(always)]
pub fn stock_host<T: Tables>(tables: &T, policy: &Policy, len: u64, now_q8: u64, party: Party) -> bool {
    match TotalView::of_host(tables, policy) {
        Some(view) => view.stock(tables, len, now_q8, party),
        None => true,
    }
}

/// Spends the packet's charge from this CPU's part of the host's total.
#[inline(always)]
pub fn spend_host<T: Tables>(tables: &T, policy: &Policy, len: u64, party: Party) {
    if let Some(view) = TotalView::of_host(tables, policy) {
        view.spend(tables, len, party);
    }
}
