//! A CPU's notes about totals that it found used up, so that the next packet need not evaluate them again.

use ratelimit_common::{
    abi::{Policy, Reason},
    limit::gcra,
};

use super::total::TotalView;
use crate::tables::{LaneWord, Tables};

/// The sources that the total was found used up for. Each kind has words of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpentFor {
    /// Sources without an entry.
    Untracked,
    /// Sources with an entry.
    Tracked,
}

impl SpentFor {
    /// The words of the note: the name of policy and service, until when it holds, and the reason, which tells which total it is.
    const fn words(self) -> [LaneWord; 3] {
        match self {
            Self::Untracked => [LaneWord::SpentName, LaneWord::SpentUntil, LaneWord::SpentReason],
            Self::Tracked => {
                [LaneWord::TrackedSpentName, LaneWord::TrackedSpentUntil, LaneWord::TrackedSpentReason]
            }
        }
    }
}

/// The reason to refuse a packet for a service, by this CPU's note.
///
/// Until the note ends, no other answer is possible. What a CPU holds grows only when the shared bucket gives it some, which it has refused until then, and
/// refuses to sources with an entry last; and the daemon takes back what CPUs hold only under another policy.
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

/// Notes down that a total is used up until a time, unless that depends on the length of a packet.
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
        // Time words wrap after two years, the clock's nanoseconds do not.
        let ahead_q8 = gcra::ahead_q8(until_q8, gcra::time_q8(now_ns));
        tables.store(until, now_ns.wrapping_add(ahead_q8 >> gcra::TIME_FRAC_BITS));
        tables.store(reason, why as u64);
    }
}

/// The name of policy and service. A service's number has 16 bits, and policies would have to change for millions of years before a name repeats.
#[inline(always)]
pub(super) fn name_of(policy: &Policy, service: u32) -> u64 {
    policy.generation << 16 | service as u64
}
