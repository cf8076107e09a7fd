//! Leased limits of users, which hold on all hosts together: the lease of this host is spent first.
//!
//! A packet is covered if every leased limit that applies to it has a lease for it. Then these limits are satisfied, and their
//! buckets are not used. Otherwise no lease is touched and the buckets decide, which hold the little that this host may spend
//! without a lease.

use ratelimit_common::{
    abi::{LimitSet, MAX_LIMITS, lease::lease_place},
    limit::lease,
};

use super::request::PacketCharge;
use crate::tables::Tables;

/// Exchanges that are tried before the buckets decide.
const ATTEMPTS: usize = 4;

/// If leases cover the packet, takes the buckets of leased limits out of its charge; otherwise notes what is missing.
#[inline(always)]
pub(super) fn judge<T: Tables>(tables: &T, set: &LimitSet, request: &mut PacketCharge, user: u32) {
    // Not a loop: kernel 6.1 loses the bound of an index that stays in a register across this much code.
    let first = covers::<T, 0>(tables, set, request, user) & covers::<T, 1>(tables, set, request, user);
    let last = covers::<T, 2>(tables, set, request, user) & covers::<T, 3>(tables, set, request, user);
    if first & last {
        waive(set, request);
    }
}

/// Spends leases for the packet, and takes the buckets of their limits out of its charge; or leaves the packet to the buckets.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, set: &LimitSet, request: &mut PacketCharge, user: u32) {
    // A lease that was spent before another one turned out to be used up stays spent: the error is on the safe side.
    if spend::<T, 0>(tables, set, request, user)
        && spend::<T, 1>(tables, set, request, user)
        && spend::<T, 2>(tables, set, request, user)
        && spend::<T, 3>(tables, set, request, user)
    {
        waive(set, request);
    }
}

const _: () = assert!(MAX_LIMITS == 4);

/// Whether a lease covers the packet under the limit at a place. If not, what is missing is counted for the daemon.
#[inline(always)]
fn covers<T: Tables, const PLACE: usize>(
    tables: &T,
    set: &LimitSet,
    request: &PacketCharge,
    user: u32,
) -> bool {
    if !applies::<PLACE>(set, request) {
        return true;
    }
    let at = lease_place(user, PLACE as u32);
    let amount = request.amount(set.limits[PLACE].meter);
    let (Some(lease), Some(used)) = (tables.lease(at), tables.lease_used(at)) else { return false };
    if lease::take(tables.load(used), &lease, request.now_q8, amount).is_some() {
        return true;
    }
    // More than the daemon would ask for is not counted, so CPUs need not share the word.
    if let Some(unmet) = tables.lease_unmet(at)
        && tables.load(unmet) < lease.enough
    {
        tables.add(unmet, amount);
    }
    false
}

/// Spends the lease at a place; true if it covers the packet, or if the limit is not leased or does not apply.
#[inline(always)]
fn spend<T: Tables, const PLACE: usize>(
    tables: &T,
    set: &LimitSet,
    request: &PacketCharge,
    user: u32,
) -> bool {
    if !applies::<PLACE>(set, request) {
        return true;
    }
    let at = lease_place(user, PLACE as u32);
    let amount = request.amount(set.limits[PLACE].meter);
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
fn applies<const PLACE: usize>(set: &LimitSet, request: &PacketCharge) -> bool {
    set.is_leased(PLACE) && request.charges_q8[PLACE] != 0
}

#[inline(always)]
fn waive(set: &LimitSet, request: &mut PacketCharge) {
    for place in 0..MAX_LIMITS {
        if set.is_leased(place) {
            request.charges_q8[place] = 0;
        }
    }
}
