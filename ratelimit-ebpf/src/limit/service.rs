//! What one source may have of the service that its packet is for.

use ratelimit_common::abi::{Policy, Reason};

use super::{leaves::Leaves, negative_cache, opening, request::PacketCharge, standing::Standing};

/// Whether what one source may have of the service would admit the packet.
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

/// Charges what one source may have of the service; `None` if it needs an entry for that.
#[inline(always)]
pub fn charge<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Option<Reason> {
    let Some(set) = request.per_source(policy) else { return Some(Reason::Conforming) };
    request.as_service(policy, set, |request| {
        Standing::of(tables, policy, set, request).charge_existing(tables, set, request)
    })
}

/// Makes an entry for what one source may have of the service, charged for the packet.
#[inline(always)]
pub fn open<T: Leaves>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    let Some(set) = request.per_source(policy) else { return Reason::Conforming };
    request.as_service(policy, set, |request| opening::open(tables, policy, set, request))
}
