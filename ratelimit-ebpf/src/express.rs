//! The express lane: what the limiter has refused a moment ago is refused again at a fraction of the price.
//!
//! ```text
//!   frame ---> has this CPU refused anything lately? ---> short parse ---> known refusal? ---> drop, count
//!                  |  no                                      |  unusual        |  no
//!                  +------------------------------------------+-----------------+---> the limiter
//! ```
//!
//! It decides nothing by itself. It goes by the words that the limiter has written, and by a copy of the policy that lies at an address
//! known in advance. So a packet ends here as it would have ended there, and is counted in the counter that the limiter would have counted it in.
//!
//! While nothing is refused, a packet pays for one load and one comparison.

use ratelimit_common::{
    abi::{
        Clock, Policy, Reason, Verdict,
        counter::Fate,
        destination::BY_DESTINATION,
        service::{NO_SERVICE, PORT_SLOTS, PROTOCOL_SLOTS, Protocol, port_slot, protocol_slot},
    },
    limit::gcra,
};

use crate::{
    budget,
    classify::classify,
    frame::{Frame, forget},
    lane,
    limit::{self, Known, Sender},
    parse::{Brief, brief},
    report,
    tables::{CpuBudget, Lane, Tables},
    verdict::count,
};

/// Drops and counts a frame for a refusal that is known. `None`: the limiter is to look at it.
#[inline(always)]
pub fn drop_known<T: Tables>(frame: &Frame<'_>, tables: &T) -> Option<Verdict> {
    if lane::is_open(tables) && drop_again(frame, tables) { Some(Verdict::Drop) } else { None }
}

/// Whether a frame was dropped and counted for a refusal that is known. A function of its own in the kernel: the verifier would
/// otherwise look at the limiter once for every way that leads there.
#[inline(always)]
pub fn drop_again<T: Tables>(frame: &Frame<'_>, tables: &T) -> bool {
    let Some((service, reason)) = refusal(frame, tables) else { return false };
    count(tables, service, reason, Fate::Decided, frame.len());
    true
}

/// The service and the reason of a frame whose refusal is known.
#[inline(always)]
fn refusal<T: Tables>(frame: &Frame<'_>, tables: &T) -> Option<(u32, Reason)> {
    let now_ns = tables.now_ns(Clock::Coarse);
    let packet = brief(frame)?;
    let lane = tables.express(packet.source.family, now_ns)?;
    let policy = lane.policy;
    let service = service(policy, &packet);
    if service & BY_DESTINATION != 0 {
        return None;
    }
    let sender = Sender::at(tables, policy, packet.source);
    let reason = known_reason(tables, &lane, &packet, &sender, service, (frame.len(), now_ns))?;
    lane::open(tables, now_ns);
    Some((service, reason))
}

/// The reason to refuse a packet of a service, if it is known.
#[inline(always)]
fn known_reason<T: Tables>(
    tables: &T,
    lane: &Lane<'_>,
    packet: &Brief,
    sender: &Sender,
    service: u32,
    (len, now_ns): (u64, u64),
) -> Option<Reason> {
    let now_q8 = gcra::time_q8(now_ns);
    let policy = lane.policy;
    let tracked = sender.is_tracked(policy, now_q8);
    // The packets of a spoofed flood do not touch the cells.
    let quiet = lane.listed && report::is_quiet(tables, sender.hash(), now_q8);
    if tracked || quiet {
        match limit::known(tables, policy, sender, now_q8) {
            Some(Known::Limited(reason)) if tracked => return Some(reason),
            Some(Known::Blocked) if quiet => return Some(Reason::Blocked),
            Some(Known::Totalled) if tracked && lane.totals && !packet.is_tcp() => {
                return limit::spent_for_all(tables, policy, service, (len, now_q8));
            }
            _ => {}
        }
    }
    if tracked || packet.is_tcp() {
        return None;
    }
    if lane.listed {
        let listing = classify(tables, packet.source, now_ns);
        if listing.settled == Some(Reason::Blocked) {
            // Of one that the daemon was told of a moment ago: who sends much is soon among those, and a flood from all of a blocked prefix
            // does not touch the cells.
            if quiet {
                limit::remember_block(tables, policy, sender, now_ns, listing.blocked_until_ns);
            } else if budget::has(tables, policy, CpuBudget::Reports, now_q8) {
                return None;
            }
        }
        if listing.settled.is_some() {
            return listing.settled.filter(|reason| *reason == Reason::Blocked);
        }
    }
    limit::spent_total(tables, policy, service, (len, now_q8))
}

/// The number that the policy's ports, or else its protocols, have for a packet.
#[inline(always)]
fn service(policy: &Policy, packet: &Brief) -> u32 {
    if policy.service_count == 0 {
        return NO_SERVICE;
    }
    // Masks for the verifier: see `service::number`.
    if packet.has_port() {
        let protocol = if packet.is_tcp() { Protocol::Tcp } else { Protocol::Udp };
        let slot = forget(port_slot(protocol, packet.port) as u64, policy.generation) as usize;
        policy.ports[slot & (PORT_SLOTS - 1)] as u32
    } else {
        let slot = forget(protocol_slot(packet.protocol, false) as u64, policy.generation) as usize;
        policy.protocols[slot & (PROTOCOL_SLOTS - 1)] as u32
    }
}
