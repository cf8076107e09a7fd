//! Whether a packet should try the express lane: see [`express`](crate::express).

use ratelimit_common::abi::{Reason, counter::REASON_SLOTS};

use crate::tables::{LaneWord, Tables};

/// How long a CPU tries the lane after its last refusal, in nanoseconds: longer than any negative entry lives, so that a source over its limit keeps the CPU trying.
const OPEN_NS: u64 = 600_000_000;

/// Whether this CPU has refused a packet lately. `now_ns` is the coarse clock's time.
#[inline(always)]
pub fn is_open<T: Tables>(tables: &T, now_ns: u64) -> bool {
    match tables.lane_word(LaneWord::OpenUntil) {
        Some(until) => now_ns < tables.load(until),
        None => false,
    }
}

/// Whether this CPU has lately met a prefix that was used up or squeezed its sources.
#[inline(always)]
pub(crate) fn is_crowded<T: Tables>(tables: &T, now_ns: u64) -> bool {
    match tables.lane_word(LaneWord::CrowdedUntil) {
        Some(until) => now_ns < tables.load(until),
        None => false,
    }
}

/// Notes down that this CPU has met a crowded prefix.
#[inline(always)]
pub(crate) fn crowd<T: Tables>(tables: &T, now_ns: u64) {
    if let Some(until) = tables.lane_word(LaneWord::CrowdedUntil) {
        tables.store(until, now_ns.wrapping_add(OPEN_NS));
    }
}

/// Makes this CPU try the lane, after a known refusal.
#[inline(always)]
pub(crate) fn open<T: Tables>(tables: &T, now_ns: u64) {
    // Stored without reading the old value: the word is this CPU's own, and a branch here would make the verifier check everything that follows twice.
    if let Some(until) = tables.lane_word(LaneWord::OpenUntil) {
        tables.store(until, now_ns.wrapping_add(OPEN_NS));
    }
}

/// Makes this CPU forget its note of a packet that a total refused, because a source was charged: the source's own limits may refuse it next. Notes of refusals
/// for own limits and for blocks stay valid until the clock moves. See `express::noted_refusal`.
#[inline(always)]
pub(crate) fn forget_noted_total<T: Tables>(tables: &T) {
    let [counter, packet] =
        [LaneWord::RefusedCounter, LaneWord::RefusedPacket].map(|word| tables.lane_word(word));
    let (Some(counter), Some(packet)) = (counter, packet) else { return };
    let reason = tables.load(counter) as u32 % REASON_SLOTS;
    if reason == Reason::ServiceTotal as u32 || reason == Reason::HostTotal as u32 {
        // The time stays: another note for this clock reading would cost the next packet more than it saves.
        tables.store(packet, 0);
    }
}
