//! Limits of users that hold on all hosts together: what this host was given of them is spent first.
//!
//! A packet is covered if there is a lease for it under every such limit that applies to it. Then these limits are satisfied, and their
//! buckets are not asked. Otherwise nothing of the leases is touched and the buckets decide, which hold the little that this host may have
//! without a lease.

use ratelimit_common::{
    abi::{LimitSet, MAX_LIMITS, lease::lease_place},
    limit::lease,
};

use super::request::Request;
use crate::tables::Tables;

/// Exchanges that are tried before the buckets decide.
const ATTEMPTS: usize = 4;

/// Has the buckets of leased limits not asked about the packet, if leases cover it; else notes what is missing.
#[inline(always)]
pub(super) fn judge<T: Tables>(tables: &T, set: &LimitSet, request: &mut Request, user: u32) {
    let mut covered = true;
    for place in 0..MAX_LIMITS {
        if !applies(set, request, place) {
            continue;
        }
        let at = lease_place(user, place as u32);
        let amount = request.amount(set.limits[place].meter);
        let (Some(lease), Some(used)) = (tables.lease(at), tables.lease_used(at)) else { return };
        if lease::take(tables.load(used), &lease, request.now_q8, amount).is_some() {
            continue;
        }
        covered = false;
        // The daemon asks for as much as is wanted. Beyond what it would ask for, CPUs need not share the word.
        if let Some(unmet) = tables.lease_unmet(at)
            && tables.load(unmet) < lease.enough
        {
            tables.add(unmet, amount);
        }
    }
    if covered {
        waive(set, request);
    }
}

/// Spends leases for the packet, and has the buckets of their limits not charged; or leaves it to the buckets.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, set: &LimitSet, request: &mut Request, user: u32) {
    for place in 0..MAX_LIMITS {
        // One that was spent before another turned out to be used up stays spent: the error is on the safe side.
        if applies(set, request, place)
            && !spend(tables, set, request, lease_place(user, place as u32), place)
        {
            return;
        }
    }
    waive(set, request);
}

#[inline(always)]
fn spend<T: Tables>(tables: &T, set: &LimitSet, request: &Request, at: u32, place: usize) -> bool {
    let amount = request.amount(set.limits[place].meter);
    let (Some(lease), Some(used)) = (tables.lease(at), tables.lease_used(at)) else { return false };
    for _ in 0..ATTEMPTS {
        let seen = tables.load(used);
        let Some(after) = lease::take(seen, &lease, request.now_q8, amount) else { return false };
        if tables.compare_exchange(used, seen, after) {
            return true;
        }
    }
    false
}

#[inline(always)]
fn applies(set: &LimitSet, request: &Request, place: usize) -> bool {
    set.is_leased(place) && request.charges_q8[place] != 0
}

#[inline(always)]
fn waive(set: &LimitSet, request: &mut Request) {
    for place in 0..MAX_LIMITS {
        if set.is_leased(place) {
            request.charges_q8[place] = 0;
        }
    }
}
