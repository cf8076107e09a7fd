//! Holding a packet to every limit that applies to it: those of its source, and the total of the service it is for.
//!
//! Everything is evaluated before anything is charged, so a packet that one limit refuses costs the others nothing. Charging
//! can still fail half way, when another CPU takes the last tokens in between: then nothing is refunded and the packet is
//! refused, which keeps the error on the safe side.

mod denial;
mod entry;
mod request;
mod standing;
mod syns;
mod total;
mod word;

use ratelimit_common::{
    abi::{Clock, Policy, Reason, service::Party},
    limit::gcra,
};

use crate::{
    packet::Packet,
    tables::{Successor, Tables},
};
pub use syns::defended;

use request::Request;
use standing::Standing;

/// Charges a packet to its source and its service. `now_ns` is the coarse clock's. A SYN that is answered with a cookie
/// does not reach the service and costs it nothing; its source pays.
#[inline(always)]
pub fn limit<T: Tables>(tables: &T, policy: &Policy, packet: &Packet, len: u64, now_ns: u64) -> Reason {
    let mut request = Request::new(policy, packet, len, now_ns);
    // A denial holds for the lag of the coarse clock longer than it must, which only refuses more.
    if let Some(reason) = denial::check(tables, &request) {
        return reason;
    }
    if policy.clock() == Clock::Precise {
        request.now_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    }
    let standing = Standing::of(tables, &request);
    // Who is over a limit is refused; that there is no room to keep an account of a source is no reason not to answer it.
    let answered = (standing.refusal().is_none() || standing.wants_state()) && syns::count(tables, &request);
    if let Some(reason) = standing.refusal() {
        if answered {
            tables.hand_over(Successor::Answer);
        }
        return reason;
    }
    if !answered && let Err(reason) = total::charge(tables, &request, standing.party()) {
        return reason;
    }
    let reason = standing.charge(tables, &request);
    if answered && reason == Reason::Conforming {
        tables.hand_over(Successor::Answer);
    }
    reason
}

/// The same for a segment that belongs to a connection or makes one, which nobody can forge: its source gets state whatever the
/// budget, and the share of the service that is kept for those who are known. `admitted` is the reason if nothing refuses it.
#[inline(always)]
pub fn limit_proven<T: Tables>(
    tables: &T,
    policy: &Policy,
    packet: &Packet,
    len: u64,
    now_ns: u64,
    admitted: Reason,
) -> Reason {
    let mut request = Request::new(policy, packet, len, now_ns);
    if let Some(reason) = denial::check(tables, &request) {
        return reason;
    }
    if policy.clock() == Clock::Precise {
        request.now_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    }
    let standing = Standing::of(tables, &request);
    let standing = if standing.wants_state() { Standing::vouched(tables, &request) } else { standing };
    if let Some(reason) = standing.refusal() {
        return reason;
    }
    if let Err(reason) = total::charge(tables, &request, Party::Known) {
        return reason;
    }
    match standing.charge(tables, &request) {
        Reason::Conforming => admitted,
        reason => reason,
    }
}

/// Charges the service alone, for a SYN that could not be answered after its source had been charged.
#[inline(always)]
pub fn limit_total<T: Tables>(tables: &T, policy: &Policy, packet: &Packet, len: u64, now_ns: u64) -> Reason {
    let request = Request::new(policy, packet, len, now_ns);
    match total::charge(tables, &request, Party::Stranger) {
        Ok(()) => Reason::Conforming,
        Err(reason) => reason,
    }
}
