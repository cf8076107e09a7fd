//! The limits for TCP to a service whose SYNs are answered with cookies.
//!
//! Limits of the source come first, as always: who is over one is dropped, not answered. What changes is what becomes of
//! sources that nothing is known of. Their SYNs are answered, at no cost to the service's total, because the service never sees
//! them; whatever else they send must belong to a connection or carry a cookie, and then the source is known.

use ratelimit_common::{
    abi::{Clock, Policy, Reason, service::Party},
    limit::gcra,
};

use super::{denial, request::Request, standing::Standing, syns, total};
use crate::{
    cookie::{self, Proof, Reply, Wire},
    frame::Frame,
    packet::{Packet, Transport},
    tables::Tables,
};

/// Charges a packet to its source and its service, and answers it if it is a SYN.
#[inline(always)]
pub fn limit_with_cookies<T: Tables, W: Wire>(
    tables: &T,
    wire: &W,
    frame: &Frame<'_>,
    policy: &Policy,
    packet: &Packet,
    now_ns: u64,
) -> Reason {
    let mut request = Request::new(policy, packet, frame.len(), now_ns);
    if denial::holds(tables, &request) {
        return denial::reason(&request);
    }
    if policy.clock() == Clock::Precise {
        request.now_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    }
    let standing = Standing::of(tables, &request);
    if let Some(reason) = standing.refusal()
        && !standing.wants_state()
    {
        return reason;
    }
    if packet.transport == Transport::TcpSyn {
        syns::count(tables, &request);
        return match cookie::answer(wire, frame, policy, packet, now_ns) {
            Some(reply) => send(tables, wire, &request, &standing, &reply),
            None => admit(tables, &request, &standing, Party::Stranger, Reason::Conforming),
        };
    }
    let reason = match cookie::prove(wire, frame, packet) {
        Proof::Connection => Reason::Conforming,
        Proof::Cookie => Reason::CookieValid,
        Proof::Nothing => return Reason::CookieInvalid,
    };
    let standing = if standing.wants_state() { Standing::vouched(tables, &request) } else { standing };
    admit(tables, &request, &standing, Party::Known, reason)
}

/// Charges the source, then sends. A source that there is no account of has nothing to charge.
#[inline(always)]
fn send<T: Tables, W: Wire>(
    tables: &T,
    wire: &W,
    request: &Request<'_>,
    standing: &Standing<T>,
    reply: &Reply,
) -> Reason {
    let reason = if standing.wants_state() { Reason::Conforming } else { standing.charge(tables, request) };
    if reason != Reason::Conforming {
        return reason;
    }
    // A frame that cannot grow by a word goes to the kernel, which answers with a cookie of its own.
    if wire.send(request.len, reply) { Reason::CookieSent } else { Reason::Conforming }
}

/// The ordinary way: the service's total, then the source.
#[inline(always)]
fn admit<T: Tables>(
    tables: &T,
    request: &Request<'_>,
    standing: &Standing<T>,
    party: Party,
    admitted: Reason,
) -> Reason {
    if let Some(reason) = standing.refusal() {
        return reason;
    }
    if let Err(reason) = total::charge(tables, request, party) {
        return reason;
    }
    match standing.charge(tables, request) {
        Reason::Conforming => admitted,
        reason => reason,
    }
}
