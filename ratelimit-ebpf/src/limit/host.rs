//! The total of the host, over all services.
//!
//! Two steps around all other shared limits: first this CPU makes sure that it holds enough, which charges nothing, and it spends
//! that when nothing else has refused. One step would need more of the stack than there is.

use ratelimit_common::{
    abi::{Clock, Policy, Reason, service::Party},
    limit::gcra,
};

use super::{leaves::Leaves, request::PacketCharge};

/// Charges the host's total and all other shared limits, or returns the reason of the refusal.
#[inline(always)]
pub(super) fn charge_all<T: Leaves>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    party: Party,
) -> Reason {
    let capped = policy.host_total_count != 0;
    if capped && !tables.stock_host(policy, request.len as u64, request.now_q8, party) {
        return Reason::HostTotal;
    }
    let reason = tables.charge_crowd(policy, request, party);
    if capped && reason == Reason::Conforming {
        tables.spend_host(policy, request.len as u64, party);
    }
    reason
}

/// Charges only the host's total, for a packet that a service lets pass although a limit refuses it; false if nothing is left. The packet counts
/// as one of an untracked source.
#[inline(always)]
pub(crate) fn charge<T: Leaves>(tables: &T, policy: &Policy, len: u64) -> bool {
    let now_q8 = gcra::time_q8(tables.now_ns(Clock::Coarse));
    let enough = tables.stock_host(policy, len, now_q8, Party::Untracked);
    if enough {
        tables.spend_host(policy, len, Party::Untracked);
    }
    enough
}
