//! Whether the express lane is worth a look: see [`express`](crate::express).

use ratelimit_common::abi::Clock;

use crate::tables::Tables;

/// How long after its last refusal a CPU still looks: longer than any negative entry lives, so that who is over its limit keeps it looking.
const OPEN_NS: u64 = 200_000_000;

/// Whether this CPU has refused anything lately.
#[inline(always)]
pub fn is_open<T: Tables>(tables: &T) -> bool {
    match tables.lane_open_until() {
        Some(until) => tables.now_ns(Clock::Coarse) < tables.load(until),
        None => false,
    }
}

/// Has this CPU look: a refusal that is known has been met.
#[inline(always)]
pub(crate) fn open<T: Tables>(tables: &T, now_ns: u64) {
    // Without asking what is there: the word is this CPU's own, and a branch here would have the verifier look at all that follows twice.
    if let Some(until) = tables.lane_open_until() {
        tables.store(until, now_ns.wrapping_add(OPEN_NS));
    }
}
