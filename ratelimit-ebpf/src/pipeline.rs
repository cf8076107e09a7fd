//! The packet flow, in one function.

use ratelimit_common::abi::{
    Clock, Mode, OnLimit, Policy, Reason, Verdict,
    counter::slot,
    service::{MAX_SERVICES, NO_SERVICE},
};

use crate::{
    classify::classify,
    frame::Frame,
    limit::{self, Sender, Stages, service_number},
    packet::Packet,
    parse::parse,
    tables::{Relay, Tables},
};

/// Decides about one frame and counts it.
#[inline(always)]
pub fn process<T: Stages, R: Relay>(frame: &Frame<'_>, tables: &T, relay: &R) -> Verdict {
    let policy = tables.policy();
    let packet = match parse(frame) {
        Ok(packet) => packet.forgotten(frame.len()),
        Err(reason) => return conclude(tables, policy, NO_SERVICE, reason, frame.len()),
    };
    let service = policy.map_or(NO_SERVICE, |policy| service_number(policy, &packet));
    let packet = Packet { service: service as u16, ..packet };
    let reason = match policy {
        Some(policy) => judge(frame, tables, relay, policy, packet),
        None => Reason::Unlimited,
    };
    conclude(tables, policy, service, reason, frame.len())
}

#[inline(always)]
fn judge<T: Stages, R: Relay>(
    frame: &Frame<'_>,
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: Packet,
) -> Reason {
    // First, because it may have to come from far: everything up to where it is needed runs meanwhile.
    let sender = Sender::of(tables, policy, &packet);
    let now_ns = tables.now_ns(Clock::Coarse);
    let listing = classify(tables, packet.source, now_ns);
    if let Some(reason) = listing.settled {
        return reason;
    }
    if policy.source.set.limit_count == 0 {
        return Reason::Unlimited;
    }
    let packet = Packet { user: listing.user, ..packet };
    limit::limit(tables, relay, policy, &packet, sender, frame.len(), now_ns)
}

/// Counts a frame that ends for a reason, and says what becomes of it.
#[inline(always)]
pub fn conclude<T: Tables>(
    tables: &T,
    policy: Option<&Policy>,
    service: u32,
    reason: Reason,
    len: u64,
) -> Verdict {
    let waived =
        reason.verdict() == Verdict::Drop && policy.is_some_and(|policy| waives(policy, service, reason));
    tables.count(slot(service.min(MAX_SERVICES as u32), reason, waived), len);
    if waived { Verdict::Pass } else { reason.verdict() }
}

/// Whether a drop is only counted. A policy on trial drops nothing at all; a service on trial drops nothing for its limits.
#[inline(always)]
fn waives(policy: &Policy, service: u32, reason: Reason) -> bool {
    if policy.lenient == 0 {
        return false;
    }
    if policy.mode == Mode::Monitor as u32 {
        return true;
    }
    let on_trial = limit::service(policy, service)
        .is_some_and(|(_, service)| service.on_limit == OnLimit::Monitor as u32);
    on_trial && reason.is_limit()
}
