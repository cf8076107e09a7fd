//! Limits that a packet shares with others: those of the prefixes around its source, and the totals of its service.

use ratelimit_common::abi::{Policy, Reason, service::Party};

use super::{aggregation, fair, request::PacketCharge, total::TotalView};
use crate::{forget::forget, tables::Tables};

/// Charges all shared limits, or returns the reason of the refusal.
#[inline(always)]
pub fn charge<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, party: Party) -> Reason {
    let (len, now_q8) = (request.len as u64, request.now_q8);
    let view = TotalView::of(tables, policy, request.service as u32);
    let draws = request.draws_at_service(party);
    // Most packets of a spoofed flood end here, at this CPU's own words.
    if let Some(view) = &view
        && view.is_spent(tables, len, now_q8, draws)
    {
        return Reason::ServiceTotal;
    }
    // What the verifier learned about these numbers above is of no use below.
    let (len, view) = (forget(len, now_q8), view.map(|view| view.forgotten(now_q8)));
    let Some(pressure) = aggregation::judge(tables, policy, request, party) else {
        return Reason::LimitPrefix;
    };
    if pressure != 0 && !fair::admits(tables, policy, request, pressure) {
        return Reason::LimitPrefix;
    }
    if let Some(view) = &view {
        if !view.stock(tables, len, now_q8, draws) {
            return Reason::ServiceTotal;
        }
        view.spend(tables, len, draws);
    }
    if !aggregation::charge(tables, policy, request, party) {
        return Reason::LimitPrefix;
    }
    if pressure == 0 || fair::charge(tables, policy, request, pressure) {
        Reason::Conforming
    } else {
        Reason::LimitPrefix
    }
}
