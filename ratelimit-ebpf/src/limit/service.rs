//! The limits of a service for each source.

use ratelimit_common::abi::{Policy, Reason};

use super::{leaves::Leaves, negative_cache, opening, request::PacketCharge, standing::Standing};

/// Whether the service's limits for each source would admit the packet.
#[inline(always)]
pub fn judge<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    let Some(set) = request.per_source(policy) else { return Reason::Conforming };
    request.as_service(policy, set, |request| {
        if set.prefilter_tolerance_q8 != 0
            && let Some(reason) = negative_cache::check(tables, policy, request.hash, request.now_q8)
        {
            return reason;
        }
        Standing::of(tables, policy, set, request).refusal().unwrap_or(Reason::Conforming)
    })
}

/// Charges the service's limits for each source; `None` if the source needs an entry for that.
#[inline(always)]
pub fn charge<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Option<Reason> {
    let Some(set) = request.per_source(policy) else { return Some(Reason::Conforming) };
    request.as_service(policy, set, |request| {
        Standing::of(tables, policy, set, request).charge_existing(tables, set, request)
    })
}

/// Makes the entry of a source for the service's limits, charged for the packet.
#[inline(always)]
pub fn open<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    let Some(set) = request.per_source(policy) else { return Reason::Conforming };
    request.as_service(policy, set, |request| opening::open(tables, policy, set, request))
}
