//! The negative cache: sources that are known to be over a limit, and until when. Most packets of a flood end here.

use ratelimit_common::{
    abi::{Clock, LimitSet, Policy, Reason, cell::NEGATIVE_ENTRIES},
    limit::{
        fair, gcra,
        prefilter::{
            self, LONGEST_LAG_Q8, LONGEST_NEGATIVE_ENTRY_Q8, NEGATIVE_PLACES, NegativeCause, REMEMBERED_BIT,
        },
    },
};

use super::{asked_first, clients, request::PacketCharge};
use crate::{forget::masked, lane, tables::Tables};

/// The cause of a source's refusal by the negative cache.
#[inline(always)]
pub fn known<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<NegativeCause> {
    live(tables, policy, hash, now_q8).map(prefilter::denied_by)
}

/// The cause of a source's refusal, by the negative entry at its first place, which is nearly always its own.
#[inline(always)]
pub fn first_known<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<NegativeCause> {
    let word = tables.load(tables.negative_entry(prefilter::negative_place(hash))?);
    prefilter::cause_now(word, prefilter::tag_under(hash, policy.generation), tables.next_step(now_q8))
}

/// The reason to refuse a packet if the cause is a limit of its source's own.
#[inline(always)]
pub const fn own_reason(cause: NegativeCause) -> Option<Reason> {
    if cause as u64 > NegativeCause::Bytes as u64 {
        return None;
    }
    Some(if matches!(cause, NegativeCause::Bytes) { Reason::LimitBytes } else { Reason::LimitPackets })
}

/// The reason to refuse the packet because its source is over a limit of its own. The callers check lists and totals themselves.
#[inline(always)]
pub(super) fn check<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<Reason> {
    own_reason(known(tables, policy, hash, now_q8)?)
}

/// The negative entry of a source, if it has a live one. It is nearly always at the first place.
#[inline(always)]
fn live<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<u64> {
    let name = prefilter::negative_name(hash, policy.generation);
    for steps in 0..NEGATIVE_ENTRIES {
        let negative_entry = tables.load(place(tables, hash, steps)?);
        if prefilter::denies(negative_entry, name, now_q8) {
            return Some(negative_entry);
        }
    }
    None
}

/// Clears the bit of this hash's cell for the first look, if nothing is remembered of the cell's sources any more.
#[inline(always)]
pub fn tidy<T: Tables>(tables: &T, hash: u64, now_q8: u64) {
    let cell = prefilter::cell_index(hash);
    if tables.cell_bits(cell) & REMEMBERED_BIT == 0 || is_remembered(tables, hash, now_q8) {
        return;
    }
    tables.nothing_remembered(cell);
    // Another CPU may have written a negative entry since.
    if is_remembered(tables, hash, now_q8) {
        tables.something_remembered(cell);
    }
}

/// Whether some source of this hash's cell has a negative entry or may be proven.
#[inline(always)]
fn is_remembered<T: Tables>(tables: &T, hash: u64, now_q8: u64) -> bool {
    if fair::may_be_proven(tables.proven_mark(prefilter::cell_index(hash)), now_q8) {
        return true;
    }
    for steps in 0..NEGATIVE_ENTRIES {
        let Some(at) = place(tables, hash, steps) else { return true };
        if prefilter::is_live(tables.load(at), now_q8) {
            return true;
        }
    }
    false
}

/// The negative entries that a source may have, in the order in which they are looked at.
#[inline(always)]
fn place<T: Tables>(tables: &T, hash: u64, steps: usize) -> Option<T::Word> {
    let place = prefilter::negative_place_behind(prefilter::negative_place(hash), steps as u32);
    // Kernel 6.1 does not follow how a place is put together from two halves.
    tables.negative_entry(masked::<{ NEGATIVE_PLACES - 1 }>(place as usize) as u32)
}

/// Keeps a negative entry of a source at its first place that is its own or has run out, or else at the very first.
#[inline(always)]
fn keep<T: Tables>(
    tables: &T,
    policy: &Policy,
    hash: u64,
    (now_q8, until_q8): (u64, u64),
    cause: NegativeCause,
) {
    let name = prefilter::negative_name(hash, policy.generation);
    let negative_entry = prefilter::negative_entry(name, now_q8, until_q8, cause);
    // An entry that ends at once is not kept: the word would be written for every packet.
    if !prefilter::denies(negative_entry, name, now_q8) {
        return;
    }
    let Some(mut kept_at) = place(tables, hash, 0) else { return };
    for steps in (0..NEGATIVE_ENTRIES).rev() {
        let Some(at) = place(tables, hash, steps) else { return };
        if !prefilter::denies_other(tables.load(at), name, now_q8) {
            kept_at = at;
        }
    }
    tables.store(kept_at, negative_entry);
    let cell = prefilter::cell_index(hash);
    // If the bit is being cleared it may be missing for a while: then the source is found among the negative entries by the rest of the lane.
    if tables.cell_bits(cell) & REMEMBERED_BIT == 0 {
        tables.something_remembered(cell);
    }
}

/// Remembers that every packet of this source is refused until a time word, or for as long as a negative entry lives. See [`remembered_until`] for the slack.
#[inline(always)]
pub(super) fn remember<T: Tables>(
    tables: &T,
    policy: &Policy,
    set: &LimitSet,
    request: &PacketCharge,
    (until_q8, slack_q8): (u64, u64),
    reason: Reason,
) {
    if set.prefilter_tolerance_q8 == 0 {
        return;
    }
    let cause =
        if matches!(reason, Reason::LimitBytes) { NegativeCause::Bytes } else { NegativeCause::Packets };
    let until_q8 = remembered_until(policy.clock(), request.now_q8, until_q8, slack_q8);
    keep(tables, policy, request.hash, (request.now_q8, until_q8), cause);
}

/// Until when to remember a refusal that holds until `until_q8` by the clock that decides. What is remembered is read by the coarse clock.
///
/// If the coarse clock decides, it stands still for many steps of a negative entry, and limits are often in step with it: at 1000 packets/s the next
/// packet is due at a tick or a moment after it, tick after tick.
#[inline(always)]
pub(super) fn remembered_until(clock: Clock, now_q8: u64, until_q8: u64, slack_q8: u64) -> u64 {
    match clock {
        Clock::Coarse => prefilter::through_this_step(now_q8, until_q8),
        Clock::Precise => ended_early(until_q8, slack_q8),
    }
}

/// The end of a note that the coarse clock reads, of a refusal by the precise clock: the note is believed for up to a lag longer than it says. From the end of the
/// refusal on, the bucket fills for `slack_q8` before anything is lost. If that is shorter than the lag, the note ends early by the lag.
#[inline(always)]
pub(super) const fn ended_early(until_q8: u64, slack_q8: u64) -> u64 {
    if slack_q8 >= LONGEST_LAG_Q8 { until_q8 } else { until_q8.wrapping_sub(LONGEST_LAG_Q8) }
}

/// Remembers that a shared limit refused a source with an entry while it keeps to its own limits, for as long as a negative
/// entry lives. Not where prefixes decide before the source is looked up, and not of a known client, which has a claim again in a moment.
#[inline(always)]
pub fn remember_shared<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) {
    if policy.source.set.prefilter_tolerance_q8 == 0 || asked_first::answers_first(tables, policy, request) {
        return;
    }
    let now_ns = request.now_q8 >> gcra::TIME_FRAC_BITS;
    if clients::is_to_be_found(tables, policy, request.service as u32, request.hash, now_ns) {
        return;
    }
    let until_q8 = request.now_q8.wrapping_add(LONGEST_NEGATIVE_ENTRY_Q8);
    keep(tables, policy, request.hash, (request.now_q8, until_q8), NegativeCause::Shared);
}

/// Forgets that a source was refused for a shared limit.
#[inline(always)]
pub fn forget_shared<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) {
    lane::forget_noted_total(tables);
    if policy.source.set.prefilter_tolerance_q8 == 0 {
        return;
    }
    let name = prefilter::negative_name(request.hash, policy.generation);
    for steps in 0..NEGATIVE_ENTRIES {
        let Some(at) = place(tables, request.hash, steps) else { return };
        let negative_entry = tables.load(at);
        if prefilter::denies(negative_entry, name, request.now_q8)
            && prefilter::denied_by(negative_entry) == NegativeCause::Shared
        {
            tables.store(at, 0);
        }
    }
}

/// Remembers that a source is on the block list until a time, or for as long as a negative entry lives.
#[inline(always)]
pub fn remember_block<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_ns: u64, until_ns: u64) {
    let now_q8 = gcra::time_q8(now_ns);
    // Bounded, because a time word would wrap.
    let left_ns = until_ns.saturating_sub(now_ns).min(LONGEST_NEGATIVE_ENTRY_Q8 >> gcra::TIME_FRAC_BITS);
    let until_q8 = now_q8.wrapping_add(gcra::time_q8(left_ns));
    keep(tables, policy, hash, (now_q8, until_q8), NegativeCause::Blocked);
}
