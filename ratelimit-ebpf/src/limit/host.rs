//! The total of the host, over all services.
//!
//! Two steps around all other shared limits: first this CPU makes sure that it holds enough, which charges nothing, and it spends
//! that when nothing else has refused. One step would need more of the stack than there is.

use ratelimit_common::{
    abi::{Clock, Policy, Reason, service::Party},
    limit::{clients::ReservePressure, gcra},
};

use super::{clients::is_scarce, leaves::Leaves, precedence::Precedence, request::PacketCharge};

/// Charges the host's total and all other shared limits, or returns the reason of the refusal. A packet that finds the ordinary part of a total spent may have one
/// of the reserve. Where it was spent a moment ago, packets of known clients ask for the reserve only: the ordinary part is for newcomers.
#[inline(always)]
pub(super) fn charge_all<T: Leaves>(
    tables: &T,
    policy: &Policy,
    request: &mut PacketCharge,
    party: Party,
) -> Reason {
    let is_proven = party == Party::Proven;
    let mut reason = Reason::Conforming;
    if !is_proven && is_scarce(tables, request.now_q8) {
        reason = tables.spent_lately(policy, request);
    }
    let leaves_ordinary = reason != Reason::Conforming;
    if !leaves_ordinary {
        reason = charge_once(tables, policy, request, party);
        if is_proven || !matches!(reason, Reason::ServiceTotal | Reason::HostTotal) {
            return reason;
        }
    }
    if !tables.press(policy, request, party) {
        return reason;
    }
    let precedence = tables.take_precedence(policy, request, party);
    if precedence != Precedence::NONE {
        tables.charge_reserve(policy, request, precedence);
    }
    request.pressure = if precedence.is_admitted() {
        // A total whose ordinary part has something left does not give of its reserve.
        let is_of_host = reason == Reason::HostTotal;
        if is_of_host { ReservePressure::PRECEDES } else { ReservePressure::PRECEDES_AT_SERVICE }
    } else if leaves_ordinary && !precedence.is_known() {
        // The filter has other clients with these bits.
        ReservePressure::NONE
    } else {
        return reason;
    };
    charge_once(tables, policy, request, party)
}

/// Charges the host's total and all other shared limits once.
#[inline(always)]
fn charge_once<T: Leaves>(tables: &T, policy: &Policy, request: &PacketCharge, party: Party) -> Reason {
    let capped = policy.host_total_count != 0;
    let draws = request.draws_at_host(party);
    if capped && !tables.stock_host(policy, request.len as u64, request.now_q8, draws) {
        return Reason::HostTotal;
    }
    let reason = tables.charge_crowd(policy, request, party);
    if capped && reason == Reason::Conforming {
        tables.spend_host(policy, request.len as u64, draws);
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
