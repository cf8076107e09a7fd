//! A refusal that a CPU has noted down: a flood from one source repeats one packet over and over.
//!
//! At each reading of the coarse clock, a CPU notes down the first packet that it refuses for its source or for a total. The clock stands still for a few
//! milliseconds; at one clock reading and under one policy, a refusal repeats. So the next packet of that source to
//! that port is not hashed, and neither its cell nor its negative entry is read.

use ratelimit_common::abi::{
    Policy, Reason,
    counter::{REASON_SLOTS, SERVICE_SLOTS},
};

use crate::{
    limit::{self, SpentFor},
    origin::Origin,
    packet::Family,
    parse::Brief,
    tables::{LaneWord, Tables},
};

/// The counter of the noted refusal, if a packet is like the refused one.
#[inline(always)]
pub(super) fn counter_of<T: Tables, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    now_ns: u64,
) -> Option<u32> {
    let (first, second) = packet.source.words();
    // The source is compared first: most packets of many sources end at this comparison.
    if !holds(tables, LaneWord::RefusedSource, first)
        || (S::FAMILY == Family::V6 && !holds(tables, LaneWord::RefusedSourceEnd, second))
        || !holds(tables, LaneWord::RefusedAt, now_ns)
        || !holds(tables, LaneWord::RefusedPacket, packet_name(policy, packet))
    {
        return None;
    }
    Some(tables.load(tables.lane_word(LaneWord::RefusedCounter)?) as u32)
}

/// Whether a refusal is noted down for this clock reading. One for each reading is enough: a flood is soon the first.
#[inline(always)]
pub(super) fn is_noted<T: Tables>(tables: &T, now_ns: u64) -> bool {
    holds(tables, LaneWord::RefusedAt, now_ns)
}

/// Notes down a refused packet and its counter, if every packet like it is refused until the clock moves.
#[inline(always)]
pub(super) fn note<T: Tables, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    counter: u32,
    now_ns: u64,
) {
    if !repeats(tables, policy, counter, now_ns) {
        return;
    }
    let (first, second) = packet.source.words();
    for (word, new) in [
        (LaneWord::RefusedSource, first),
        (LaneWord::RefusedSourceEnd, second),
        (LaneWord::RefusedAt, now_ns),
        (LaneWord::RefusedPacket, packet_name(policy, packet)),
        (LaneWord::RefusedCounter, counter as u64),
    ] {
        if let Some(word) = tables.lane_word(word) {
            tables.store(word, new);
        }
    }
}

/// Whether packets of this counter are refused again until the clock moves, whatever their length and whoever else sends meanwhile.
#[inline(always)]
fn repeats<T: Tables>(tables: &T, policy: &Policy, counter: u32, now_ns: u64) -> bool {
    let reason = Reason::from_code(counter % REASON_SLOTS);
    match reason {
        Reason::LimitPackets | Reason::LimitBytes | Reason::Blocked => true,
        // A short packet may find enough where a long one finds too little: totals in bytes are not noted down as used up.
        Reason::ServiceTotal | Reason::HostTotal => {
            let service = counter / SERVICE_SLOTS;
            limit::noted(tables, SpentFor::Tracked, policy, service, now_ns) == Some(reason)
        }
        _ => false,
    }
}

/// Whether a word of this CPU has a value.
#[inline(always)]
fn holds<T: Tables>(tables: &T, word: LaneWord, value: u64) -> bool {
    match tables.lane_word(word) {
        Some(word) => tables.load(word) == value,
        None => false,
    }
}

/// The name of a packet besides its source: the policy that judges it, its family, protocol and port. Never 0, because policies count
/// from 1. Only the lower half of a policy's number fits: for it to repeat within one clock reading would take 2^32 policies in a few milliseconds.
#[inline(always)]
fn packet_name<S: Origin>(policy: &Policy, packet: &Brief<S>) -> u64 {
    policy.generation << 32 | (S::FAMILY as u64) << 24 | (packet.protocol as u64) << 16 | packet.port as u64
}
