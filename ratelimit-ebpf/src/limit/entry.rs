//! The entry of one source: its exact buckets.

use ratelimit_common::{
    abi::{Limit, LimitSet, MAX_LIMITS, Meter, Policy, Reason},
    limit::{
        fair::PROVEN_Q8,
        gcra::{self, GcraOutcome, SMALLEST_FRAME, Start},
        prefilter,
    },
};

use super::{
    negative_cache,
    request::PacketCharge,
    word::{self, Charging, Unmoved, refusal},
};
use crate::tables::Tables;

/// Whether all limits would admit the packet. Writes nothing but a negative entry, or to settle a bucket that was charged under an earlier limit.
#[inline(always)]
pub fn judge<T: Tables>(
    tables: &T,
    policy: &Policy,
    set: &LimitSet,
    request: &PacketCharge,
    bucket: T::Bucket,
) -> Reason {
    for index in 0..MAX_LIMITS {
        let Some((limit, charge)) = request.charge(set, index) else { continue };
        let word = tables.bucket_word(bucket, index);
        let seen = tables.load(word);
        let start = Start::of(set, limit, request.now_q8);
        match gcra::take_restarting(seen, limit, request.now_q8, charge, start) {
            GcraOutcome::Conforms { .. } => {}
            GcraOutcome::Refused => {
                let most_q8 = limit.tolerance_q8 + gcra::room_q8(set, index);
                let settled = word::settle(tables, word, seen, request.now_q8, (most_q8, limit.tolerance_q8));
                if gcra::has_margin(set, limit, request.now_q8) {
                    continue;
                }
                if !settled && let Some(until) = refused_until(seen, limit) {
                    negative_cache::remember(tables, policy, set, request, until, refusal(limit));
                }
                return refusal(limit);
            }
        }
    }
    Reason::Conforming
}

/// Charges all limits except soft ones.
#[inline(always)]
pub fn charge<T: Tables>(tables: &T, set: &LimitSet, request: &PacketCharge, bucket: T::Bucket) -> Reason {
    for index in 0..MAX_LIMITS {
        let Some((limit, charge)) = request.charge(set, index) else { continue };
        if limit.is_soft() {
            continue;
        }
        let word = tables.bucket_word(bucket, index);
        let charging = Charging::by(set.adds, 1 << index);
        let start = Start::of(set, limit, request.now_q8);
        match word::charge(tables, word, limit, request.now_q8, charge, start, charging) {
            Ok(()) => {}
            Err(Unmoved::Refused) => return refusal(limit),
            Err(Unmoved::Contended) => return Reason::Contended,
        }
    }
    keep_tracked(tables, set, request);
    Reason::Conforming
}

/// Charges a soft limit for a packet that all other limits admitted, and returns whether the packet is above it: in its margin, or refused if the margin is
/// closed. One limit at a time: together they would need more stack than there is.
#[inline(always)]
pub fn charge_soft<T: Tables>(
    tables: &T,
    set: &LimitSet,
    request: &PacketCharge,
    bucket: T::Bucket,
    index: u32,
) -> Reason {
    let index = index as usize;
    let limit = &set.limits[index & (MAX_LIMITS - 1)];
    let charge = request.charges_q8[index & (MAX_LIMITS - 1)];
    if charge == 0 || !limit.is_soft() {
        return Reason::Conforming;
    }
    let word = tables.bucket_word(bucket, index & (MAX_LIMITS - 1));
    let start = Start::of(set, limit, request.now_q8);
    // By exchange even if other limits add: a lost race counts as above the limit, and nothing is refused for it if there is a margin.
    match word::charge(tables, word, limit, request.now_q8, charge, start, Charging::Exchange) {
        Ok(()) => Reason::Conforming,
        Err(_) if gcra::has_margin(set, limit, request.now_q8) => Reason::SoftMargin,
        Err(_) => refusal(limit),
    }
}

/// Charges all soft limits, one after the other, by calling `charge`.
#[inline(always)]
pub(super) fn charge_margins(set: &LimitSet, charge: impl Fn(u32) -> Reason) -> Reason {
    let mut admitted = Reason::Conforming;
    for index in 0..MAX_LIMITS as u32 {
        if !set.limits[index as usize].is_soft() {
            continue;
        }
        let reason = charge(index);
        if !reason.admits() {
            return reason;
        }
        admitted = admitted.and(reason);
    }
    admitted
}

/// Whether a source without an entry would be admitted if it got one now.
#[inline(always)]
pub(super) fn judge_first(set: &LimitSet, request: &PacketCharge) -> Reason {
    for index in 0..MAX_LIMITS {
        let Some((limit, charge)) = request.charge(set, index) else { continue };
        if set.prefilter_tolerance_q8 + charge > limit.tolerance_q8 && !limit.is_soft() {
            return refusal(limit);
        }
    }
    Reason::Conforming
}

/// Keeps the cell tracked until every entry behind it is full again.
#[inline(always)]
pub(super) fn keep_tracked<T: Tables>(tables: &T, set: &LimitSet, request: &PacketCharge) {
    if set.prefilter_tolerance_q8 == 0 {
        return;
    }
    let cell = prefilter::cell_index(request.hash);
    // A proven source stays tracked through pauses that are longer than any bucket takes to fill.
    let proven = request.proven != 0 && PROVEN_Q8 > set.longest_tolerance_q8;
    let at_least = if proven { PROVEN_Q8 } else { set.longest_tolerance_q8 };
    if let Some(until) = prefilter::track(tables.tracked_until(cell), request.now_q8, at_least) {
        tables.track_until(cell, until);
    }
}

/// When a bucket that refused will first admit the smallest frame, as a time word, and for how long it fills from then on; `None` if that depends on the packet.
#[inline(always)]
fn refused_until(tat_q8: u64, limit: &Limit) -> Option<(u64, u64)> {
    if limit.meter == Meter::Syns as u32 || limit.meter == Meter::Fragments as u32 {
        return None;
    }
    let smallest = if limit.meter == Meter::Bytes as u32 {
        gcra::charge_q8(limit, SMALLEST_FRAME)
    } else {
        limit.cost_fp
    };
    let until_q8 = tat_q8.wrapping_add(smallest).wrapping_sub(limit.tolerance_q8);
    Some((until_q8, limit.tolerance_q8.saturating_sub(smallest)))
}
