//! The total of a service, whoever sends: exact over all CPUs, without a cache line that all of them write.
//!
//! Each CPU takes a portion from the shared bucket at a time and spends it by itself. What is taken is charged at once, so the sum
//! of all CPUs can never exceed the bucket; what lies unspent on them has been taken out of the tolerance beforehand.
//!
//! Strangers (sources without state) may push the bucket only so far. The rest is for known sources: under a spoofed flood
//! they still find tokens, because strangers stop before the bucket is empty.

use ratelimit_common::{
    abi::{
        Limit, Meter, Policy, Service, Share, Total,
        service::{MAX_SERVICES, MAX_TOTALS, NO_SERVICE, PORT_SLOTS, Party},
    },
    limit::gcra::{self, Start, ahead_q8},
};

use super::word::{self, Charging, Unmoved};
use crate::{frame::forget, packet::Packet, tables::Tables};

/// The number that the policy's ports have for a packet: of a service, or of a class of services that share the port.
#[inline(always)]
pub fn service_number(policy: &Policy, packet: &Packet) -> u32 {
    match packet.port_slot() {
        Some(slot) if policy.service_count != 0 => {
            // A mask and not a comparison: see `service`. The compiler knows that it changes nothing and would leave it out; kernel 6.1
            // does not know what a port can be once its bytes have been swapped.
            let slot = forget(slot as u64, policy.generation) as usize & (PORT_SLOTS - 1);
            policy.ports[slot] as u32
        }
        _ => NO_SERVICE,
    }
}

/// The service of a number from the table of ports, and its index.
#[inline(always)]
pub fn service(policy: &Policy, number: u32) -> Option<(u32, &Service)> {
    if number == NO_SERVICE {
        return None;
    }
    // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
    let index = (number - 1) & (MAX_SERVICES as u32 - 1);
    Some((index, &policy.services[index as usize]))
}

/// The total of one service, as this CPU sees it.
pub(super) struct Account<'p, T: Tables> {
    number: u32,
    service: &'p Service,
    share: T::Share,
}

impl<'p, T: Tables> Account<'p, T> {
    /// The account of the service that a packet is for; `None` if it has no total.
    #[inline(always)]
    pub(super) fn of(tables: &T, policy: &'p Policy, service_number: u32) -> Option<Self> {
        let (number, service) = service(policy, service_number)?;
        if service.total_count == 0 {
            return None;
        }
        Some(Self { number, service, share: tables.share(number)? })
    }

    /// Whether this CPU knows without asking anybody that there is nothing left.
    #[inline(always)]
    pub(super) fn is_spent(&self, tables: &T, len: u64, now_q8: u64, party: Party) -> bool {
        for index in 0..MAX_TOTALS {
            let Some(total) = total(self.service, index) else { break };
            let place = Share::place(index, party);
            let short = tables.load(tables.share_pool(self.share, place)) < price(len, &total.limit);
            let refused_until = tables.share_refused_until(self.share, place);
            if short && ahead_q8(tables.load(refused_until), now_q8) != 0 {
                return true;
            }
        }
        false
    }

    /// Charges every limit of the total; false if there is not enough left.
    #[inline(always)]
    pub(super) fn charge(&self, tables: &T, len: u64, now_q8: u64, party: Party) -> bool {
        // Every limit gets its portion before any is spent.
        for index in 0..MAX_TOTALS {
            let Some(total) = total(self.service, index) else { break };
            let word = || tables.total(self.number, index);
            if !stock(tables, (len, now_q8), total, word, self.share, Share::place(index, party), party) {
                return false;
            }
        }
        for index in 0..MAX_TOTALS {
            let Some(total) = total(self.service, index) else { break };
            let pool = tables.share_pool(self.share, Share::place(index, party));
            tables.store(pool, tables.load(pool).saturating_sub(price(len, &total.limit)));
        }
        true
    }
}

#[inline(always)]
fn total(service: &Service, index: usize) -> Option<&Total> {
    if (index as u64) < service.total_count { service.totals.get(index) } else { None }
}

#[inline(always)]
fn price(len: u64, limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, len) } else { limit.cost_fp }
}

/// Sees to it that this CPU has enough for the packet, and says whether it has.
#[inline(always)]
fn stock<T: Tables>(
    tables: &T,
    (len, now_q8): (u64, u64),
    total: &Total,
    word: impl FnOnce() -> Option<T::Word>,
    share: T::Share,
    place: usize,
    party: Party,
) -> bool {
    let pool = tables.share_pool(share, place);
    let price = price(len, &total.limit);
    let left = tables.load(pool);
    if left >= price {
        return true;
    }
    let Some(word) = word() else { return false };
    let wanted = price.max(total.portion_q8);
    let tolerance_q8 = match party {
        Party::Stranger => total.stranger_tolerance_q8,
        Party::Known | Party::Proven => total.limit.tolerance_q8,
    };
    let limit = Limit { tolerance_q8, ..total.limit };
    match word::charge(tables, word, &limit, now_q8, wanted, Start::FULL, Charging::Exchange) {
        Ok(()) => {
            tables.store(pool, left + wanted);
            true
        }
        Err(Unmoved::Refused) => {
            let until = tables.load(word).wrapping_add(wanted).wrapping_sub(tolerance_q8);
            tables.store(tables.share_refused_until(share, place), until);
            false
        }
        Err(Unmoved::Contended) => false,
    }
}
