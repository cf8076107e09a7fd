//! Rejections: a reset for TCP, an ICMP error for other packets, a truncated response for queries of DNS, a number for those of game servers.
//!
//! Source addresses may be forged, so a rejection must be useless to senders of forged packets: a reply goes to one
//! host and never to a group, a reply is never answered, and each CPU has a budget beyond which refused packets are just
//! dropped.

mod a2s;
mod dns;
mod icmp;
mod rst;

use ratelimit_common::{
    abi::{Clock, OnLimit, Verdict, counter::Fate, service::Challenge},
    limit::{gcra, prefilter},
};

use crate::{
    budget,
    frame::Frame,
    limit::{Leaves, Sender},
    notes::{parse_again, take},
    packet::Transport,
    reply::{ICMP, ReplyFrame, Wire, is_of_group},
    segment::Segment,
    tables::{CpuBudget, TailCallContext},
    verdict::count,
};

/// Rejects a packet that a limit refused, or drops it, and counts it.
#[inline(always)]
pub fn reject<T: Leaves, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Verdict {
    let context = take(wire);
    let (fate, verdict) = match answer(frame, tables, wire, context) {
        Some(()) => (Fate::Rejected, Verdict::Reply),
        None => (Fate::Decided, Verdict::Drop),
    };
    count(tables, context.service, context.otherwise, fate, frame.len());
    verdict
}

/// Sends the frame back as a rejection, if the packet may be answered.
#[inline(always)]
fn answer<T: Leaves, W: Wire>(
    frame: &Frame<'_>,
    tables: &T,
    wire: &W,
    context: TailCallContext,
) -> Option<()> {
    if !wire.answers() {
        return None;
    }
    let policy = tables.policy()?;
    let (_, service) = policy.service(context.service)?;
    let packet = parse_again(frame, wire).ok()?;
    let frame = &wire.reread(frame);
    let destination = packet.destination(frame)?;
    if is_of_group(frame)? || packet.fragment || !packet.source.is_one_host() || !destination.is_one_host() {
        return None;
    }
    let now_q8 = gcra::time_q8(tables.now_ns(Clock::Coarse));
    if service.challenges(context.otherwise) && packet.transport == Transport::UDP {
        let reply = if service.challenge == Challenge::Dns as u16 {
            dns::build(wire, &wire.reread(frame), &packet, destination)?
        } else {
            let query = a2s::read(&wire.reread(frame), &packet)?;
            let numbers =
                a2s::numbers(packet.source, policy.prefilter.secret, now_q8 >> gcra::TIME_FRAC_BITS);
            if query.number.is_some_and(|number| number == numbers[0] || number == numbers[1]) {
                let key = Sender::key_of(policy, packet.source);
                let hash = prefilter::hash(key, policy.prefilter.secret);
                tables.introduce(policy, context.service, hash, now_q8);
            }
            a2s::build(wire, &query, &packet, destination, numbers[0])
        };
        let is_permitted = budget::take_challenge(tables, policy, &packet.source, now_q8);
        return is_permitted.then(|| send(wire, frame, &reply)).flatten();
    }
    // Taken before anything is written: most packets of a flood end here.
    if service.on_limit != OnLimit::Reject as u32
        || !budget::take(tables, policy, CpuBudget::Rejections, now_q8)
    {
        return None;
    }
    let reply = match packet.transport {
        Transport::TCP | Transport::TCP_SYN => {
            rst::build(wire, &Segment::read(&wire.reread(frame), &packet)?, &packet)?
        }
        // All other packets except ICMP: errors about errors would never end.
        Transport::UDP | Transport::OTHER if u32::from(packet.protocol) != ICMP => {
            icmp::build(wire, &wire.reread(frame), &packet, destination)?
        }
        _ => return None,
    };
    send(wire, frame, &reply)
}

#[inline(always)]
fn send<W: Wire>(wire: &W, frame: &Frame<'_>, reply: &ReplyFrame) -> Option<()> {
    wire.send(frame.len(), reply).then_some(())
}

#[cfg(test)]
mod tests;
