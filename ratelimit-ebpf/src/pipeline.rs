//! The packet flow, in one function.

use ratelimit_common::abi::{
    Clock, Policy, Reason, Verdict, destination::BY_DESTINATION, service::NO_SERVICE,
};

use crate::{
    classify::classify,
    frame::Frame,
    lane,
    limit::{self, Sender, Stages},
    packet::Packet,
    parse::parse,
    service,
    tables::Relay,
    verdict::conclude,
};

/// Judges one frame and counts it.
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
    // Forgotten before the service is looked up and after it: otherwise the verifier would follow each path through the headers, then each kind of packet.
    let packet = packet.forgotten(frame.len());
    let service = match service::number(policy, packet.port_slot(), packet.protocol_slot()) {
        class if class & BY_DESTINATION != 0 => relay.service_at(frame, policy.tables, class),
        number => number,
    };
    let packet = Packet { service: service as u16, ..packet }.forgotten(frame.len());
    let reason = judge(tables, relay, policy, packet, frame.len());
    conclude(tables, relay, Some(policy), packet.service as u32, reason, frame.len())
}

/// Judges a packet whose service is known, and charges its limits. The frame of the packet has `len` bytes.
#[inline(always)]
pub fn judge<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: Packet,
    len: u64,
) -> Reason {
    // First, because its words may have to be fetched from memory: everything up to their use runs meanwhile.
    let sender = Sender::of(tables, policy, &packet);
    let now_ns = tables.now_ns(Clock::Coarse);
    let listing = classify(tables, packet.source, now_ns);
    if let Some(reason) = listing.settled {
        if reason == Reason::Blocked {
            limit::report_unasked(tables, policy, (&packet, sender.key), len, now_ns, reason);
            lane::open(tables, now_ns);
        }
        return reason;
    }
    if policy.source.set.limit_count == 0 && policy.window_count == 0 && policy.host_total_count == 0 {
        return Reason::Unlimited;
    }
    let packet = Packet { user: listing.user, ..packet };
    limit::limit(tables, relay, policy, &packet, sender, len, now_ns)
}

#[cfg(test)]
mod tests;
