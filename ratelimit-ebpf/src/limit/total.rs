//! The total of a service, whoever sends: exact over all CPUs, without a cache line that all of them write.
//!
//! Each CPU takes a portion from the shared bucket at a time and spends it by itself. What is taken is charged at once, so the sum
//! of all CPUs can never exceed the bucket; what lies unspent on them has been taken out of the tolerance beforehand.
//!
//! Strangers (sources without state) may push the bucket only so far. The rest is for known sources: under a spoofed flood
//! they still find tokens, because strangers stop before the bucket is empty.

use ratelimit_common::{
    abi::{
        Limit, Meter, Policy, Reason, Service, Share, Total,
        service::{MAX_SERVICES, MAX_TOTALS, NO_SERVICE, Party},
    },
    limit::gcra::{self, ahead_q8},
};

use super::{
    request::Request,
    word::{self, Unmoved},
};
use crate::{packet::Packet, tables::Tables};

/// Charges the total of the packet's service, if it has one.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, request: &Request<'_>, party: Party) -> Result<(), Reason> {
    let Some((number, service)) = service(tables, request.policy, request.packet) else { return Ok(()) };
    let Some(share) = tables.share(number) else { return Err(Reason::ServiceTotal) };
    // Every limit gets its portion before any is spent.
    for index in 0..MAX_TOTALS {
        let Some(total) = total(service, index) else { break };
        let word = || tables.total(number, index);
        if !stock(tables, request, total, word, share, Share::place(index, party), party) {
            return Err(Reason::ServiceTotal);
        }
    }
    for index in 0..MAX_TOTALS {
        let Some(total) = total(service, index) else { break };
        let pool = tables.share_pool(share, Share::place(index, party));
        tables.store(pool, tables.load(pool).saturating_sub(price(request, &total.limit)));
    }
    Ok(())
}

/// The service that a packet is for, and its index.
#[inline(always)]
pub(super) fn service<'p, T: Tables>(
    tables: &T,
    policy: &'p Policy,
    packet: &Packet,
) -> Option<(u32, &'p Service)> {
    if policy.service_count == 0 {
        return None;
    }
    let number = tables.service(policy.ports, packet.port_slot()?);
    if number == NO_SERVICE {
        return None;
    }
    // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
    let index = (number - 1) & (MAX_SERVICES as u32 - 1);
    Some((index, &policy.services[index as usize]))
}

#[inline(always)]
fn total(service: &Service, index: usize) -> Option<&Total> {
    if (index as u64) < service.total_count { service.totals.get(index) } else { None }
}

#[inline(always)]
fn price(request: &Request<'_>, limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, request.len) } else { limit.cost_fp }
}

/// Sees to it that this CPU has enough for the packet, and says whether it has.
#[inline(always)]
fn stock<T: Tables>(
    tables: &T,
    request: &Request<'_>,
    total: &Total,
    word: impl FnOnce() -> Option<T::Word>,
    share: T::Share,
    place: usize,
    party: Party,
) -> bool {
    let pool = tables.share_pool(share, place);
    let price = price(request, &total.limit);
    let left = tables.load(pool);
    if left >= price {
        return true;
    }
    // Refused before, and nothing has changed since: the shared word need not be read.
    let refused_until = tables.share_refused_until(share, place);
    if ahead_q8(tables.load(refused_until), request.now_q8) != 0 {
        return false;
    }
    let Some(word) = word() else { return false };
    let wanted = price.max(total.portion_q8);
    let tolerance_q8 = match party {
        Party::Stranger => total.stranger_tolerance_q8,
        Party::Known => total.limit.tolerance_q8,
    };
    let limit = Limit { tolerance_q8, ..total.limit };
    match word::charge(tables, word, &limit, request.now_q8, wanted, 0) {
        Ok(()) => {
            tables.store(pool, left + wanted);
            true
        }
        Err(Unmoved::Refused) => {
            let until = tables.load(word).wrapping_add(wanted).wrapping_sub(tolerance_q8);
            tables.store(refused_until, until);
            false
        }
        Err(Unmoved::Contended) => false,
    }
}
