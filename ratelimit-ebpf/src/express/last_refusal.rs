//! What a CPU knows of the last packet that it refused for its source alone: a flood from one source is the same packet over and over.
//!
//! It holds for as long as the coarse clock stands still, a few milliseconds: by the same clock and under the same policy, what was refused is refused
//! again. So the next packet of that source to the same port is not hashed, and neither its cell nor its negative entry is looked at.

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

/// The counter of the last refusal, if a packet is like the one that was refused.
#[inline(always)]
pub(super) fn counter_of<T: Tables, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    now_ns: u64,
) -> Option<u32> {
    let (first, second) = packet.source.words();
    // The source first: where many sources send, all the others pay for this comparison and no more.
    if !is(tables, LaneWord::RefusedSource, first)
        || (S::FAMILY == Family::V6 && !is(tables, LaneWord::RefusedSourceEnd, second))
        || !is(tables, LaneWord::RefusedAt, now_ns)
        || !is(tables, LaneWord::RefusedPacket, kind(policy, packet))
    {
        return None;
    }
    Some(tables.load(tables.lane_word(LaneWord::RefusedCounter)?) as u32)
}

/// Whether a refusal of this moment is noted down. One in a moment is enough: whoever floods is soon the one.
#[inline(always)]
pub(super) fn is_noted<T: Tables>(tables: &T, now_ns: u64) -> bool {
    is(tables, LaneWord::RefusedAt, now_ns)
}

/// Whether what was counted there is refused again until the clock moves, whatever its length and whoever else sends meanwhile.
#[inline(always)]
fn repeats<T: Tables>(tables: &T, policy: &Policy, counter: u32, now_ns: u64) -> bool {
    let reason = Reason::from_code(counter % REASON_SLOTS);
    match reason {
        Reason::LimitPackets | Reason::LimitBytes | Reason::Blocked => true,
        // Where a long packet finds too little, a short one may find enough: such totals are not noted down.
        Reason::ServiceTotal | Reason::HostTotal => {
            let service = counter / SERVICE_SLOTS;
            limit::noted(tables, SpentFor::Tracked, policy, service, now_ns) == Some(reason)
        }
        _ => false,
    }
}

/// Notes down a packet that was refused, and where it was counted, if every packet like it is refused until the clock moves.
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
        (LaneWord::RefusedPacket, kind(policy, packet)),
        (LaneWord::RefusedCounter, counter as u64),
    ] {
        if let Some(word) = tables.lane_word(word) {
            tables.store(word, new);
        }
    }
}

/// Whether a word of this CPU is what it is to be.
#[inline(always)]
fn is<T: Tables>(tables: &T, word: LaneWord, expected: u64) -> bool {
    match tables.lane_word(word) {
        Some(word) => tables.load(word) == expected,
        None => false,
    }
}

/// The policy that a packet is judged by, and what decides about it besides its source: family, protocol and port.
#[inline(always)]
fn kind<S: Origin>(policy: &Policy, packet: &Brief<S>) -> u64 {
    policy.generation << 32 | (S::FAMILY as u64) << 24 | (packet.protocol as u64) << 16 | packet.port as u64
}
