//! What a CPU notes down of a total that it found used up, so that the next packet need not ask again.

use ratelimit_common::{
    abi::{Policy, Reason},
    limit::gcra,
};

use super::total::TotalView;
use crate::tables::{LaneWord, Tables};

/// For whom the total was found used up. Each has words of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpentFor {
    /// Sources without an entry.
    Untracked,
    /// Sources with one.
    Tracked,
}

impl SpentFor {
    /// Under which policy and for packets of which service, until when, and the reason that says which total it is.
    const fn words(self) -> [LaneWord; 3] {
        match self {
            Self::Untracked => [LaneWord::SpentName, LaneWord::SpentUntil, LaneWord::SpentReason],
            Self::Tracked => {
                [LaneWord::TrackedSpentName, LaneWord::TrackedSpentUntil, LaneWord::TrackedSpentReason]
            }
        }
    }
}

/// The reason to refuse a packet for a service, by what this CPU noted down.
///
/// Until then no other answer is possible. What a CPU holds grows only when the shared bucket gives it some, which it has refused until then, and
/// to those with an entry last; and what the daemon takes back it takes back under another policy.
#[inline(always)]
pub fn noted<T: Tables>(
    tables: &T,
    spent_for: SpentFor,
    policy: &Policy,
    service: u32,
    now_ns: u64,
) -> Option<Reason> {
    let [name, until, reason] = spent_for.words();
    let (Some(name), Some(until), Some(reason)) =
        (tables.lane_word(name), tables.lane_word(until), tables.lane_word(reason))
    else {
        return None;
    };
    if tables.load(name) == name_of(policy, service) && now_ns < tables.load(until) {
        Some(Reason::from_code(tables.load(reason) as u32))
    } else {
        None
    }
}

/// Notes down that a total is used up until a moment, unless that depends on the length of a packet.
#[inline(always)]
pub(super) fn note_down<T: Tables>(
    tables: &T,
    spent_for: SpentFor,
    policy: &Policy,
    service: u32,
    (view, until_q8, why): (&TotalView<'_, T>, u64, Reason),
    now_ns: u64,
) {
    let [name, until, reason] = spent_for.words();
    let (Some(name), Some(until), Some(reason)) =
        (tables.lane_word(name), tables.lane_word(until), tables.lane_word(reason))
    else {
        return;
    };
    if view.weighs_alike() {
        tables.store(name, name_of(policy, service));
        // Time words wrap around after two years, the clock does not.
        let ahead_q8 = gcra::ahead_q8(until_q8, gcra::time_q8(now_ns));
        tables.store(until, now_ns.wrapping_add(ahead_q8 >> gcra::TIME_FRAC_BITS));
        tables.store(reason, why as u64);
    }
}

/// Services have 16 bits, and a policy is the next one's millions of years before this goes round.
#[inline(always)]
pub(super) fn name_of(policy: &Policy, service: u32) -> u64 {
    policy.generation << 16 | service as u64
}
