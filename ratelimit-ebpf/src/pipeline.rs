//! The packet flow, in one function.

use ratelimit_common::abi::{
    Clock, Mode, OnLimit, Policy, Reason, Verdict,
    counter::{Fate, slot},
    destination::BY_DESTINATION,
    service::{MAX_SERVICES, NO_SERVICE},
    user::NO_USER,
};

use crate::{
    classify::classify,
    frame::Frame,
    limit::{self, Sender, Stages, service_number},
    packet::Packet,
    parse::parse,
    tables::{Baton, Relay, Successor, Tables},
};

/// Decides about one frame and counts it.
#[inline(always)]
pub fn process<T: Stages, R: Relay>(frame: &Frame<'_>, tables: &T, relay: &R) -> Verdict {
    let Some(policy) = tables.policy() else {
        let reason = parse(frame).err().unwrap_or(Reason::Unlimited);
        return conclude(tables, relay, None, NO_SERVICE, reason, frame.len());
    };
    let packet = match parse(frame) {
        Ok(packet) => packet,
        Err(reason) => {
            let reason = if reason.verdict() == Verdict::Pass {
                relay.judge_link(frame, policy, reason)
            } else {
                reason
            };
            return conclude(tables, relay, Some(policy), NO_SERVICE, reason, frame.len());
        }
    };
    // Before the service is looked up and after it: the verifier would go on along each way through the headers, then along each kind of packet.
    let packet = packet.forgotten(frame.len());
    let service = match service_number(policy, &packet) {
        class if class & BY_DESTINATION != 0 => relay.service_at(frame, policy.tables, class),
        number => number,
    };
    let packet = Packet { service: service as u16, ..packet }.forgotten(frame.len());
    let reason = judge(frame, tables, relay, policy, packet);
    conclude(tables, relay, Some(policy), packet.service as u32, reason, frame.len())
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
        if reason == Reason::Blocked {
            limit::report_unasked(tables, policy, (&packet, sender.key), frame.len(), now_ns, reason);
        }
        return reason;
    }
    if policy.source.set.limit_count == 0 && policy.window_count == 0 && policy.host_total_count == 0 {
        return Reason::Unlimited;
    }
    let packet = Packet { user: listing.user, ..packet };
    limit::limit(tables, relay, policy, &packet, sender, frame.len(), now_ns)
}

/// Counts a frame that ends for a reason, and says what becomes of it.
#[inline(always)]
pub fn conclude<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: Option<&Policy>,
    service: u32,
    reason: Reason,
    len: u64,
) -> Verdict {
    let (reason, fate) = match policy {
        Some(policy) if policy.lenient != 0 && reason.verdict() == Verdict::Drop => {
            within_host(tables, policy, reason, fate(policy, service, reason), len)
        }
        _ => (reason, Fate::Decided),
    };
    let fate = match fate {
        Fate::Decided | Fate::Waived => fate,
        Fate::Marked | Fate::Rejected => {
            let to = if fate == Fate::Marked { Successor::Mark } else { Successor::Reject };
            relay.hand_over(to, Baton { otherwise: reason, service, user: NO_USER });
            // Still here: there is no such program.
            Fate::Decided
        }
    };
    count(tables, service, reason, fate, len);
    if fate == Fate::Waived { Verdict::Pass } else { reason.verdict() }
}

/// What a service lets pass although a limit refuses it costs the host what every packet does: no service opens the host. A policy on trial
/// drops nothing for that either.
#[inline(always)]
fn within_host<T: Stages>(
    tables: &T,
    policy: &Policy,
    reason: Reason,
    fate: Fate,
    len: u64,
) -> (Reason, Fate) {
    let passes = matches!(fate, Fate::Waived | Fate::Marked);
    if !passes || policy.host_total_count == 0 || policy.mode == Mode::Monitor as u32 {
        return (reason, fate);
    }
    if limit::charge_host(tables, policy, len) { (reason, fate) } else { (Reason::HostTotal, Fate::Decided) }
}

/// Counts a frame of a service that met its fate for a reason.
#[inline(always)]
pub(crate) fn count<T: Tables>(tables: &T, service: u32, reason: Reason, fate: Fate, len: u64) {
    tables.count(slot(service.min(MAX_SERVICES as u32), reason, fate), len);
}

/// What is to become of a refused packet. A policy on trial drops nothing at all; for the limits of a service, it is the service that says.
#[inline(always)]
pub(crate) fn fate(policy: &Policy, service: u32, reason: Reason) -> Fate {
    if policy.mode == Mode::Monitor as u32 {
        return Fate::Waived;
    }
    match limit::service(policy, service) {
        Some((_, service)) if reason.is_for_service() => match service.on_limit {
            MONITOR => Fate::Waived,
            MARK => Fate::Marked,
            REJECT => Fate::Rejected,
            _ => Fate::Decided,
        },
        _ => Fate::Decided,
    }
}

const MONITOR: u32 = OnLimit::Monitor as u32;
const MARK: u32 = OnLimit::Mark as u32;
const REJECT: u32 = OnLimit::Reject as u32;
