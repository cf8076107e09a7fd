//! Rejections: a reset for TCP, an ICMP error for other packets.
//!
//! Source addresses may be forged, so a rejection must be useless to senders of forged packets: a reply goes to one
//! host and never to a group, a reply is never answered, and each CPU has a budget beyond which refused packets are just
//! dropped.

mod icmp;
mod rst;

use ratelimit_common::{
    abi::{Clock, Verdict, counter::Fate},
    limit::gcra,
};

use crate::{
    budget,
    frame::Frame,
    notes::{parse_again, take},
    packet::Transport,
    reply::{ICMP, ReplyFrame, Wire, is_of_group},
    segment::Segment,
    tables::{CpuBudget, Tables},
    verdict::count,
};

/// Rejects a packet that a limit refused, or drops it, and counts it.
#[inline(always)]
pub fn reject<T: Tables, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Verdict {
    let context = take(wire);
    let (fate, verdict) = match answer(frame, tables, wire) {
        Some(()) => (Fate::Rejected, Verdict::Reply),
        None => (Fate::Decided, Verdict::Drop),
    };
    count(tables, context.service, context.otherwise, fate, frame.len());
    verdict
}

/// Sends the frame back as a rejection, if the packet may be answered.
#[inline(always)]
fn answer<T: Tables, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Option<()> {
    if !wire.answers() {
        return None;
    }
    let packet = parse_again(frame, wire).ok()?;
    let frame = &wire.reread(frame);
    let destination = packet.destination(frame)?;
    if is_of_group(frame)? || packet.fragment || !packet.source.is_one_host() || !destination.is_one_host() {
        return None;
    }
    // Taken before anything is written: most packets of a flood end here.
    permitted(tables)?;
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

/// Takes one from this CPU's budget of rejections.
#[inline(always)]
fn permitted<T: Tables>(tables: &T) -> Option<()> {
    let now_q8 = gcra::time_q8(tables.now_ns(Clock::Coarse));
    budget::take(tables, tables.policy()?, CpuBudget::Rejections, now_q8).then_some(())
}

#[inline(always)]
fn send<W: Wire>(wire: &W, frame: &Frame<'_>, reply: &ReplyFrame) -> Option<()> {
    wire.send(frame.len(), reply).then_some(())
}

#[cfg(test)]
mod tests;
