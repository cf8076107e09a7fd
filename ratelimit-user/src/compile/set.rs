//! Sets: limits that apply to one packet together, in the form that the kernel program reads.

use std::{cmp::Reverse, collections::BTreeSet};

use ratelimit_common::{
    abi::{
        Limit, LimitSet, MAX_LIMITS, Meter,
        limit::{COUNTS_BYTES, COUNTS_PACKETS, HAS_SOFT, HELD, NO_METER, SOFT, cpus, leased},
    },
    limit::{
        gcra,
        prefilter::CELL_SHARE,
        rate::{FULL_FRAME, Rate},
    },
};

use super::{
    succession::{self, SetTerms},
    window::Windows,
};
use crate::policy::{Reserve, is_leased};

/// A tolerance below this many times the room that CPUs need to charge by addition would lose too much of its burst.
const ROOM_SHARE: u64 = 64;

/// Compiles limits into a set. `before` is the set that it replaces: a limit that stays keeps its place, and with it what was spent.
pub(super) fn compile(
    rates: &[Rate],
    terms: SetTerms,
    before: Option<&LimitSet>,
    windows: &mut Windows<'_>,
) -> LimitSet {
    let set = of_rates(rates, terms, before, windows);
    match before {
        Some(before) if before.limit_count != 0 => succession::after(before, set, terms),
        _ => succession::afresh(set, terms),
    }
}

fn of_rates(
    rates: &[Rate],
    terms: SetTerms,
    before: Option<&LimitSet>,
    windows: &mut Windows<'_>,
) -> LimitSet {
    let mut slots = [Limit::UNUSED; MAX_LIMITS];
    let limits: Vec<Limit> =
        rates.iter().flat_map(|rate| buckets(rate, terms.headroom, terms.reserve)).collect();
    let places = places(&limits, before);
    for (place, limit) in places.iter().zip(&limits) {
        let bytes = if limit.meter == Meter::Bytes as u32 { COUNTS_BYTES } else { 0 };
        let (tolerance_q8, frac_bits) =
            (limit.tolerance_q8.saturating_sub(terms.lag_q8), limit.frac_bits | bytes);
        slots[*place] = Limit { tolerance_q8, frac_bits, ..*limit };
    }
    let longest_tolerance_q8 = slots.iter().map(|limit| limit.tolerance_q8).max().unwrap_or(0);
    let adds = make_room_to_add(&mut slots, terms.cpus);
    let soft = if slots.iter().any(Limit::is_soft) { HAS_SOFT } else { 0 };
    let every = |limit: &Limit| [Meter::Packets as u32, Meter::Bytes as u32].contains(&limit.meter);
    let counts_packets = if slots.iter().any(every) { COUNTS_PACKETS } else { 0 };
    LimitSet {
        limit_count: places.iter().max().map_or(0, |last| *last as u64 + 1),
        longest_tolerance_q8,
        prefilter_tolerance_q8: if terms.prefilter { prefilter_tolerance(&slots) } else { 0 },
        owed_since_q8: 0,
        owed_q8: 0,
        tracked_until_q8: 0,
        margins_from_q8: 0,
        windows: windows.of_set(rates, terms.headroom, before.map(|before| &before.windows)),
        adds: adds | soft | counts_packets | leased_places(rates, &places, terms) | cpus(terms.cpus.into()),
        limits: slots,
    }
}

/// A bit for each place whose limit is leased, so that it holds on all hosts together.
fn leased_places(rates: &[Rate], places: &[usize], terms: SetTerms) -> u64 {
    let mut bits = 0;
    let mut places = places.iter();
    for rate in rates {
        let mut own = places.by_ref().take(buckets(rate, terms.headroom, terms.reserve).len());
        if terms.reserve.is_some() && is_leased(rate) {
            bits |= own.next().map_or(0, |place| leased(*place));
        }
        own.for_each(drop);
    }
    bits
}

/// The place of each limit's bucket in a set that was compiled from these limits; windows have no bucket.
pub fn places_of(
    rates: &[Rate],
    set: &LimitSet,
    headroom: bool,
    reserve: Option<Reserve>,
) -> Vec<Option<usize>> {
    let of_rates: Vec<Vec<Limit>> = rates.iter().map(|rate| buckets(rate, headroom, reserve)).collect();
    let mut places = places(&of_rates.concat(), Some(set)).into_iter();
    // A margin has a bucket of its own, after that of its limit.
    of_rates
        .iter()
        .map(|limits| places.by_ref().take(limits.len()).collect::<Vec<_>>().first().copied())
        .collect()
}

/// The buckets of a rate: one for the limit, and one for its margin if it has one.
pub(super) fn buckets(rate: &Rate, headroom: bool, reserve: Option<Reserve>) -> Vec<Limit> {
    if rate.manner.algorithm.is_window() {
        return Vec::new();
    }
    let limit = enforced(rate);
    // The margin's bucket exists and is charged even without headroom, so that it has the right level when headroom comes back.
    match rate.manner.margin(true) {
        0 if is_leased(rate) => {
            vec![reserve.map_or(limit, |reserve| reserve.of(&limit))]
        }
        0 => vec![limit],
        margin => {
            let held = if rate.manner.margin(headroom) == 0 { HELD } else { 0 };
            let own = Limit { frac_bits: limit.frac_bits | SOFT | held, ..limit };
            vec![own, Rate::widened(&limit, margin)]
        }
    }
}

/// The limit that the kernel enforces. Rates of a policy are checked already, so the fallback is never used.
pub(super) fn enforced(rate: &Rate) -> Limit {
    rate.limit().unwrap_or(Limit::UNUSED)
}

/// The charge of a full frame under a limit.
pub(super) fn full_frame_charge(limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, FULL_FRAME) } else { limit.cost_fp }
}

/// Whether every limit of a set is charged by addition instead of compare-and-exchange.
pub(super) fn all_add(set: &LimitSet) -> bool {
    let used = |(index, limit): (usize, &Limit)| limit.meter == NO_METER || set.adds & (1 << index) != 0;
    set.limits.iter().enumerate().all(used)
}

/// Takes two largest charges per CPU out of every tolerance that is large enough, and returns a bit for each such limit. Two, because a source, and more so a
/// prefix, may run ahead both in its cell and in its entry.
fn make_room_to_add(limits: &mut [Limit; MAX_LIMITS], cpus: u32) -> u64 {
    let mut adds = 0;
    for (index, limit) in limits.iter_mut().enumerate().filter(|(_, limit)| limit.meter != NO_METER) {
        let room = gcra::largest_charge_q8(limit).saturating_mul(u64::from(cpus) * 2);
        if limit.tolerance_q8 / ROOM_SHARE >= room {
            limit.tolerance_q8 -= room;
            adds |= 1 << index;
        }
    }
    adds
}

/// The place of each limit: where the same limit was before, or else a place of its meter, or else any free one. The order of
/// the limits does not matter.
fn places(limits: &[Limit], before: Option<&LimitSet>) -> Vec<usize> {
    let old = before.map_or(&[][..], |before| &before.limits[..before.limit_count as usize]);
    let price = |limit: &Limit| (limit.meter, limit.cost_fp, limit.frac_bits & !(COUNTS_BYTES | SOFT | HELD));
    let mut order: Vec<usize> = (0..limits.len()).collect();
    order.sort_by_key(|at| {
        let Limit { cost_fp, tolerance_q8, frac_bits, meter } = limits[*at];
        (meter, Reverse(cost_fp), tolerance_q8, frac_bits)
    });
    let mut places: Vec<Option<usize>> = vec![None; limits.len()];
    let mut free: BTreeSet<usize> = (0..MAX_LIMITS).collect();
    let mut settle = |like: &dyn Fn(&Limit, Option<&Limit>) -> bool| {
        for at in &order {
            let fits = |place: &&usize| places[*at].is_none() && like(&limits[*at], old.get(**place));
            if let Some(place) = free.iter().find(fits).copied() {
                places[*at] = free.take(&place);
            }
        }
    };
    settle(&|limit, old| old.is_some_and(|old| price(old) == price(limit)));
    settle(&|limit, old| old.is_some_and(|old| old.meter == limit.meter));
    settle(&|_, _| true);
    places.into_iter().flatten().collect()
}

/// The tolerance of a prefilter cell: an eighth of the smallest burst, in whole packets. If that is less than one packet, there is no
/// prefilter: every source gets an entry at once.
fn prefilter_tolerance(limits: &[Limit; MAX_LIMITS]) -> u64 {
    let limits: Vec<&Limit> = limits.iter().filter(|limit| limit.meter != NO_METER).collect();
    let dearest = limits.iter().map(|limit| full_frame_charge(limit)).max().unwrap_or(0);
    let smallest = limits.iter().map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    // An entry has the other seven eighths, which are several packets if one eighth is at least one.
    let share = smallest / CELL_SHARE;
    share - share % dearest.max(1)
}
