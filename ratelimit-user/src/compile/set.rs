//! Limits that are asked together, as the kernel reads them.

use std::{cmp::Reverse, collections::BTreeSet};

use ratelimit_common::{
    abi::{
        Limit, LimitSet, MAX_LIMITS, Meter,
        limit::{COUNTS_BYTES, COUNTS_PACKETS, HAS_SOFT, HELD, NO_METER, SOFT, leased},
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

/// The largest frame that there can be: what receive offloads build.
pub(super) const LARGEST_FRAME: u64 = 65_536;
/// A tolerance below so many times the room that CPUs need to add would lose too much of its burst to it.
const ROOM_SHARE: u64 = 64;

/// The kernel's view of limits. `before` is the set that was there: a limit that stays keeps its place, and with it what was spent.
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
        adds: adds | soft | counts_packets | leased_places(rates, &places, terms),
        limits: slots,
    }
}

/// Which places have limits that hold on all hosts together.
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

/// Where the buckets of limits are in a set that was made of them; windows have none.
pub fn places_of(
    rates: &[Rate],
    set: &LimitSet,
    headroom: bool,
    reserve: Option<Reserve>,
) -> Vec<Option<usize>> {
    let of_rates: Vec<Vec<Limit>> = rates.iter().map(|rate| buckets(rate, headroom, reserve)).collect();
    let mut places = places(&of_rates.concat(), Some(set)).into_iter();
    // A margin has a bucket of its own, behind that of its limit.
    of_rates
        .iter()
        .map(|limits| places.by_ref().take(limits.len()).collect::<Vec<_>>().first().copied())
        .collect()
}

/// The buckets that a rate takes: its own, and one for its margin.
pub(super) fn buckets(rate: &Rate, headroom: bool, reserve: Option<Reserve>) -> Vec<Limit> {
    if rate.manner.algorithm.is_window() {
        return Vec::new();
    }
    let limit = enforced(rate);
    // Both buckets are there, and charged, also while there is no headroom: a margin that comes back is what it would be had it never gone.
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

/// Rates of a policy have been checked when it was made.
pub(super) fn enforced(rate: &Rate) -> Limit {
    rate.limit().unwrap_or(Limit::UNUSED)
}

/// What a full frame costs under a limit.
pub(super) fn full_frame_charge(limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, FULL_FRAME) } else { limit.cost_fp }
}

/// Whether every limit of a set is charged by addition.
pub(super) fn all_add(set: &LimitSet) -> bool {
    let used = |(index, limit): (usize, &Limit)| limit.meter == NO_METER || set.adds & (1 << index) != 0;
    set.limits.iter().enumerate().all(used)
}

/// Takes one charge per CPU out of every tolerance that is large enough, and says which are. Twice that, because a source, and more so a
/// prefix, may run ahead both in its cell and in its entry.
fn make_room_to_add(limits: &mut [Limit; MAX_LIMITS], cpus: u32) -> u64 {
    let mut adds = 0;
    for (index, limit) in limits.iter_mut().enumerate().filter(|(_, limit)| limit.meter != NO_METER) {
        let largest = if limit.meter == Meter::Bytes as u32 {
            gcra::charge_q8(limit, LARGEST_FRAME)
        } else {
            limit.cost_fp
        };
        let room = largest.saturating_mul(u64::from(cpus) * 2);
        if limit.tolerance_q8 / ROOM_SHARE >= room {
            limit.tolerance_q8 -= room;
            adds |= 1 << index;
        }
    }
    adds
}

/// The place of each limit: where the same one was before, or else one of its meter, or else any that is free. The order in which limits
/// are given does not matter.
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

/// A cell gives out an eighth of the smallest burst, in whole packets. Where that is less than one packet, there is no
/// prefilter: every source has an entry at once.
fn prefilter_tolerance(limits: &[Limit; MAX_LIMITS]) -> u64 {
    let limits: Vec<&Limit> = limits.iter().filter(|limit| limit.meter != NO_METER).collect();
    let dearest = limits.iter().map(|limit| full_frame_charge(limit)).max().unwrap_or(0);
    let smallest = limits.iter().map(|limit| limit.tolerance_q8).min().unwrap_or(0);
    // An entry has seven eighths, which is several packets where an eighth is one.
    let share = smallest / CELL_SHARE;
    share - share % dearest.max(1)
}
