//! Whether the express lane is worth a look: see [`express`](crate::express).

use ratelimit_common::abi::{Reason, counter::REASON_SLOTS};

use crate::tables::{LaneWord, Tables};

/// How long after its last refusal a CPU still looks: longer than any negative entry lives, so that who is over its limit keeps it looking.
const OPEN_NS: u64 = 600_000_000;

/// Whether this CPU has refused anything lately. `now_ns` is the coarse clock's.
#[inline(always)]
pub fn is_open<T: Tables>(tables: &T, now_ns: u64) -> bool {
    match tables.lane_word(LaneWord::OpenUntil) {
        Some(until) => now_ns < tables.load(until),
        None => false,
    }
}

/// Whether this CPU has met a prefix lately that was used up or squeezed its sources.
#[inline(always)]
pub(crate) fn is_crowded<T: Tables>(tables: &T, now_ns: u64) -> bool {
    match tables.lane_word(LaneWord::CrowdedUntil) {
        Some(until) => now_ns < tables.load(until),
        None => false,
    }
}

/// Notes down that it has met one.
#[inline(always)]
pub(crate) fn crowd<T: Tables>(tables: &T, now_ns: u64) {
    if let Some(until) = tables.lane_word(LaneWord::CrowdedUntil) {
        tables.store(until, now_ns.wrapping_add(OPEN_NS));
    }
}

/// Has this CPU look: a refusal that is known has been met.
#[inline(always)]
pub(crate) fn open<T: Tables>(tables: &T, now_ns: u64) {
    // Without asking what is there: the word is this CPU's own, and a branch here would have the verifier look at all that follows twice.
    if let Some(until) = tables.lane_word(LaneWord::OpenUntil) {
        tables.store(until, now_ns.wrapping_add(OPEN_NS));
    }
}

/// Has this CPU forget the packet that it noted down as refused by a total, because a source was charged: its own limits may be what refuses it next. Refusals
/// for own limits and for blocks stay what they are until the clock moves. See `express::noted_refusal`.
#[inline(always)]
pub(crate) fn forget_noted_total<T: Tables>(tables: &T) {
    let [counter, packet] =
        [LaneWord::RefusedCounter, LaneWord::RefusedPacket].map(|word| tables.lane_word(word));
    let (Some(counter), Some(packet)) = (counter, packet) else { return };
    let reason = tables.load(counter) as u32 % REASON_SLOTS;
    if reason == Reason::ServiceTotal as u32 || reason == Reason::HostTotal as u32 {
        // The time stays: another note for this reading of the clock would cost the next packet more than it saves.
        tables.store(packet, 0);
    }
}
