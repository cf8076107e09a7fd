//! One source under one set of limits: what holds its state, and what is left.

use ratelimit_common::{
    abi::{
        Limit, LimitSet, MAX_LIMITS, Meter, Reason,
        cell::NEGATIVE_ENTRIES,
        limit::{COUNTS_BYTES, HELD, NO_METER, SOFT},
        service::Party,
    },
    limit::{
        fair,
        gcra::{self, SHARED_ROOM_Q8, SMALLEST_FRAME, Start},
        level::Level,
        prefilter::{self, NegativeCause},
        rate::Rate,
    },
};

use super::{
    remembered::RowWords,
    report::{CellState, LimitState, NegativeEntry, SourceState},
    scratch::ScratchWord,
};
use crate::policy::{Reserve, is_leased};

/// How long a limit refuses packets for the service of a number, by the limit's meter and words. The packet path answers, or nothing if it is not
/// asked.
pub(super) type Wait<'a> = dyn Fn(u32, Meter, Vec<ScratchWord>) -> Option<u64> + 'a;

/// The words that the kernel has for a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct RememberedSource {
    pub(super) entry: Option<RowWords>,
    pub(super) cell: RowWords,
    /// Until when the cell of the source is tracked.
    pub(super) tracked_until_q8: u64,
    /// The source's tag in negative entries of its cell.
    pub(super) name: u64,
}

/// The state of a source that has an entry.
pub(super) const ENTRY: &str = "entry";
/// The state of a source that shares a cell.
pub(super) const CELL: &str = "cell";
/// The state of a source without an entry, when there is no prefilter.
const NONE: &str = "none";

impl SourceState {
    /// The state of a source under limits whose places in the entry are known.
    pub(super) fn of_pairs(
        known: &RememberedSource,
        set: &LimitSet,
        pairs: &[(Rate, usize)],
        now_q8: u64,
    ) -> Self {
        let share_q8 = set.prefilter_tolerance_q8;
        let prefiltered = share_q8 != 0;
        let is_tracked = prefilter::is_tracked_in(set, known.tracked_until_q8, now_q8);
        let owed_q8 = gcra::owed_q8(set, set.longest_tolerance_q8, now_q8);
        let cell_q8 = gcra::settled_q8(known.cell[0], share_q8 + SHARED_ROOM_Q8, share_q8, now_q8);
        let cell = Level::of(cell_q8, share_q8, now_q8, Start { restart_q8: 0, owed_q8 });
        // Without a prefilter an entry always counts; with a prefilter it counts only if the cell is tracked.
        let entry = known.entry.filter(|_| is_tracked || !prefiltered);
        let level = |place: usize, limit: &Limit| match entry {
            Some(bucket) => {
                let start = Start::of(set, limit, now_q8);
                let most_q8 = limit.tolerance_q8 + gcra::room_q8(set, place);
                let word_q8 = gcra::settled_q8(bucket[place], most_q8, limit.tolerance_q8, now_q8);
                Level::of(word_q8, limit.tolerance_q8, now_q8, start)
            }
            None if prefiltered && owed_q8 == 0 => Level::behind(cell, limit.tolerance_q8),
            None => Level::of(now_q8, limit.tolerance_q8, now_q8, Start::of(set, limit, now_q8)),
        };
        let limits: Vec<LimitState> = pairs
            .iter()
            .map(|(rate, place)| limit_state(rate, &set.limits[*place], level(*place, &set.limits[*place])))
            .collect();
        let sample_q8 = sample_q8(set);
        Self {
            state: if entry.is_some() {
                ENTRY
            } else if prefiltered {
                CELL
            } else {
                NONE
            }
            .to_owned(),
            cell: prefiltered.then(|| CellState {
                is_tracked,
                tracked_for_ms: ms(gcra::ahead_q8(known.tracked_until_q8, now_q8) >> gcra::TIME_FRAC_BITS),
                left: cell.room_q8() / sample_q8.max(1),
                capacity: share_q8 / sample_q8.max(1),
            }),
            denied: negative_entry(known, now_q8).filter(|_| prefiltered),
            no_room_for_ms: None,
            proven_for_ms: entry.and_then(|bucket| proven_for_ms(&bucket, now_q8)),
            limits,
        }
    }

    /// The party of the source: untracked sources are refused first when a total runs out.
    pub(super) fn party(&self) -> Party {
        match self.proven_for_ms {
            Some(_) => Party::Proven,
            None if self.state == ENTRY => Party::Tracked,
            None => Party::Untracked,
        }
    }
}

/// Milliseconds for which the source of a bucket still counts as proven; `None` if it does not.
fn proven_for_ms(bucket: &RowWords, now_q8: u64) -> Option<u64> {
    let left_q8 = bucket[MAX_LIMITS].wrapping_sub(now_q8);
    let proven = fair::party(bucket[MAX_LIMITS], now_q8) == Party::Proven;
    proven.then(|| ms(left_q8 >> gcra::TIME_FRAC_BITS))
}

/// One limit and its level. How long the limit refuses packets is filled in by the packet path.
pub(super) fn limit_state(rate: &Rate, limit: &Limit, level: Level) -> LimitState {
    LimitState {
        rate: rate.to_string(),
        meter: rate.meter.name().to_owned(),
        burst: rate.burst,
        capacity: level.capacity(limit),
        left: level.left(limit),
        full_in_ms: ms(level.full_in_ns()),
        refused_for_ms: None,
        leased: None,
    }
}

/// The charge of the smallest unit that a limit counts: a frame of the smallest size, or one packet.
pub(super) fn unit_q8(limit: &Limit) -> u64 {
    if limit.meter == Meter::Bytes as u32 { gcra::charge_q8(limit, SMALLEST_FRAME) } else { limit.cost_fp }
}

/// The charge of the smallest packet under the limit where it costs most: a plain packet, neither SYN nor fragment, if there are limits for
/// such packets.
pub(super) fn sample_q8(set: &LimitSet) -> u64 {
    dearest(set).map_or(0, |limit| unit_q8(&limit))
}

/// The meter of the limit behind [`sample_q8`].
pub(super) fn sample_meter(set: &LimitSet) -> Meter {
    let of = |limit: Limit| Meter::ALL.into_iter().find(|meter| *meter as u32 == limit.meter);
    dearest(set).and_then(of).unwrap_or(Meter::Packets)
}

/// The limit under which the packet of [`sample_q8`] costs most.
fn dearest(set: &LimitSet) -> Option<Limit> {
    let of = |plain: bool| {
        let applies = |limit: &&Limit| !plain || counts_every_packet(limit.meter);
        set.limits.iter().filter(applies).max_by_key(|limit| unit_q8(limit)).copied()
    };
    of(true).filter(|limit| unit_q8(limit) > 0).or_else(|| of(false))
}

/// Whether a meter counts every packet, not only SYNs or fragments.
pub(super) fn counts_every_packet(meter: u32) -> bool {
    [Meter::Packets as u32, Meter::Bytes as u32].contains(&meter)
}

/// Milliseconds, rounded up.
pub(super) fn ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

fn negative_entry(known: &RememberedSource, now_q8: u64) -> Option<NegativeEntry> {
    let of_cell = known.cell[1..].iter().take(NEGATIVE_ENTRIES);
    let word = *of_cell.into_iter().find(|word| prefilter::denies(**word, known.name, now_q8))?;
    let reason = match prefilter::denied_by(word) {
        NegativeCause::Bytes => Reason::LimitBytes,
        NegativeCause::Packets => Reason::LimitPackets,
        // The list and the totals themselves are explained in more detail elsewhere.
        NegativeCause::Blocked | NegativeCause::Shared => return None,
    };
    let left_ns = prefilter::denied_for_q8(word, now_q8) >> gcra::TIME_FRAC_BITS;
    Some(NegativeEntry { reason: reason.name().to_owned(), for_ms: ms(left_ns) })
}

/// Each rate with its place in the set. Places are kept from one policy to the next, so their order means nothing; a rate is found by its price. Of two places
/// with one price, the one with the nearer burst is right, because little of a burst is ever kept back.
pub(super) fn pairs(set: &LimitSet, rates: &[Rate], reserve: Option<Reserve>) -> Vec<(Rate, usize)> {
    let mut pairs: Vec<(Rate, usize)> = Vec::new();
    for rate in rates {
        let Ok(limit) = rate.limit() else { continue };
        let limit = match reserve {
            Some(reserve) if is_leased(rate) => reserve.of(&limit),
            _ => limit,
        };
        let free = set.limits.iter().enumerate().filter(|(place, slot)| {
            slot.meter != NO_METER && is_priced(slot, &limit) && pairs.iter().all(|(_, taken)| taken != place)
        });
        let nearest = free.min_by_key(|(_, slot)| slot.tolerance_q8.abs_diff(limit.tolerance_q8));
        pairs.extend(nearest.map(|(place, _)| (*rate, place)));
    }
    pairs
}

fn is_priced(slot: &Limit, limit: &Limit) -> bool {
    (slot.meter, slot.cost_fp, slot.frac_bits & !(COUNTS_BYTES | SOFT | HELD))
        == (limit.meter, limit.cost_fp, limit.frac_bits)
}

/// The places of all buckets of a rate: its own, and that of its margin, which refuses packets above a soft limit.
pub(super) fn places(set: &LimitSet, rate: &Rate, own: usize) -> Vec<usize> {
    let margin = match (rate.manner.margin(true), rate.limit()) {
        (percent @ 1.., Ok(limit)) => Some(Rate::widened(&limit, percent)),
        _ => None,
    };
    let is_margin = |slot: &Limit| !slot.is_soft() && margin.is_some_and(|margin| is_priced(slot, &margin));
    let all = set.limits.iter().enumerate();
    all.filter(|(place, slot)| *place == own || is_margin(slot)).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    /// A set with these rates at these places, with a little of each burst kept back.
    fn set(rates: &[(&str, usize)]) -> LimitSet {
        let mut set = LimitSet::NONE;
        for (rate, place) in rates {
            let limit = parse_rate(rate).unwrap().limit().unwrap();
            let bytes = if limit.meter == Meter::Bytes as u32 { COUNTS_BYTES } else { 0 };
            let tolerance_q8 = limit.tolerance_q8 - limit.tolerance_q8 / 100;
            set.limits[*place] = Limit { tolerance_q8, frac_bits: limit.frac_bits | bytes, ..limit };
        }
        set
    }

    #[test]
    fn a_rate_finds_its_place_by_price_and_of_two_with_one_price_by_burst() {
        for rates in [
            // The limits differ only in price: each burst lasts one second.
            [("100 packets/s burst 100", 2), ("10 packets/s burst 10", 0), ("1 MB/s burst 1 MB", 1)],
            // The limits differ only in burst.
            [("40 packets/s burst 64", 3), ("40 packets/s burst 100", 1), ("40 packets/s burst 80", 0)],
        ] {
            let wanted: Vec<(Rate, usize)> =
                rates.iter().map(|(rate, place)| (parse_rate(rate).unwrap(), *place)).collect();
            let named: Vec<Rate> = wanted.iter().map(|(rate, _)| *rate).collect();
            assert_eq!(pairs(&set(&rates), &named, None), wanted);
        }
    }

    #[test]
    fn the_sample_is_the_smallest_packet_that_is_counted_at_all() {
        let cost = |text: &str| parse_rate(text).unwrap().limit().unwrap().cost_fp;
        let all = set(&[("100 packets/s", 0), ("1 syns/s", 1), ("1000 fragments/s", 2)]);
        assert_eq!(sample_q8(&all), cost("100 packets/s"), "a SYN would cost more");
        assert_eq!(sample_q8(&set(&[("1 syns/s", 1), ("1000 fragments/s", 2)])), cost("1 syns/s"));
        assert_eq!(sample_q8(&set(&[("1 MB/s", 3)])), 34_000 << 8, "34 bytes");
    }
}
