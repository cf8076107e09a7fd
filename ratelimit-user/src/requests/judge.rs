//! One decision: all limits of a request are looked at, and then all of them are charged or none.

use super::{
    allowance::AllowanceLimit,
    cells::Cells,
    counter_keys::{CounterKey, CounterKeys},
    decision::{Decision, Nearest, Outcome, Violated},
    key::MAX_COUNTER_KEYS,
    request::Request,
    table::Locked,
};
use crate::{
    meter::{Meter, NEVER_US, bit},
    policy::OnRefusal,
};

/// The words of a new key, enough for every algorithm. An empty log reads only the first.
static FRESH: [u64; 64] = [0; 64];

/// The time of a decision, and the state of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Microseconds since 1970.
    pub now_us: u64,
    /// Whether the host has headroom for what is above elastic limits.
    pub headroom: bool,
}

/// Whether a decision charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeMode {
    /// The request is charged if it is served.
    Take,
    /// The caller only wants to know what is left.
    Peek,
}

/// What all limits of a request come to.
#[derive(Default)]
struct Finding {
    /// Units that the request takes if it is served.
    taken: u64,
    /// The longest wait of a limit that refuses, in microseconds.
    retry_us: Option<u64>,
    /// The longest wait of a limit that delays, in microseconds.
    wait_us: u64,
    margin: bool,
    deprioritised: bool,
    /// The limit that refuses longest, or has least left: index of its counter key, index among the limits, units left.
    nearest: Option<(usize, usize, u64)>,
    /// For each counter key, a bit for each limit that refuses.
    violated: [u64; MAX_COUNTER_KEYS],
}

/// Decides about a request whose keys are locked.
pub(super) fn judge<'r>(
    counters: &CounterKeys<'r>,
    locked: &mut Locked<'_>,
    request: &Request<'_>,
    moment: Moment,
    mode: JudgeMode,
) -> Decision<'r> {
    // A peek is told what is left now, not what would be left after the request.
    let taken = if mode == JudgeMode::Take { request.cost } else { 0 };
    let mut finding = Finding { taken, ..Finding::default() };
    let mut places = [None; MAX_COUNTER_KEYS];
    for (at, counter) in counters.iter().enumerate() {
        let cells = locked.of(counter);
        places[at] = cells.find(counter.hash.fingerprint);
        look(counter, at, cells, places[at], request, moment, &mut finding);
    }
    let outcome = finding.outcome();
    if mode == JudgeMode::Take && outcome.is_served() {
        charge(counters, locked, &mut places, request.cost, moment, outcome);
    }
    let limit = finding.nearest.and_then(|(at, nth, remaining)| {
        let counter = counters.iter().nth(at)?;
        let limit = counter.allowance.limits.get(nth)?;
        let cells = locked.of(counter);
        let place = cells.find_again(places[at], counter.hash.fingerprint);
        let (in_force, words) = (limit.in_force(moment.headroom), words(cells, place, limit));
        let reset_us = in_force.meter.reset(words, moment.now_us);
        // A refused request may be served from the margin, too, so any next unit counts. A served request is told of `remaining`, which has no units of the margin.
        let more_us = match outcome.is_served() {
            true => in_force.more_below(words, moment.now_us),
            false => in_force.more(words, moment.now_us),
        };
        Some(Nearest { allowance: counter.allowance, limit, remaining, reset_us, more_us })
    });
    let mut violated = Violated::default();
    if !outcome.is_served() {
        counters
            .iter()
            .zip(finding.violated)
            .for_each(|(counter, bits)| violated.add(counter.allowance, bits));
    }
    Decision { outcome, limit, violated }
}

/// Looks at every limit of one key.
fn look(
    counter: &CounterKey<'_>,
    at: usize,
    cells: &Cells,
    place: Option<usize>,
    request: &Request<'_>,
    moment: Moment,
    finding: &mut Finding,
) {
    let (allowance, now_us) = (counter.allowance, moment.now_us);
    let taken = finding.taken;
    for (nth, limit) in allowance.limits.iter().enumerate() {
        let words = words(cells, place, limit);
        let in_force = limit.in_force(moment.headroom);
        let left = in_force.left(words, now_us);
        let below = in_force.below(words, now_us, left);
        let capacity = in_force.meter.capacity() - in_force.held_back;
        let needed = request.cost.saturating_add(allowance.reserved(request.priority, capacity));
        let fits = left >= needed;
        match allowance.on_limit {
            OnRefusal::Delay(longest) => {
                // A request that finds room in a queue waits for its turn; a request that finds none may come again when there is room.
                let turn_us = match in_force.meter.bucket() {
                    Some(bucket) if limit.queue && fits => Some(bucket.turn(words, now_us)),
                    _ => None,
                };
                let wait_us = turn_us.unwrap_or_else(|| in_force.wait(words, now_us, needed));
                let is_full = limit.queue && turn_us.is_none();
                if !is_full && wait_us <= longest.as_micros() as u64 {
                    finding.delays(at, nth, below.saturating_sub(taken), wait_us);
                } else {
                    finding.refuses(at, nth, below, wait_us.max(1));
                }
            }
            OnRefusal::Deprioritise if !fits => {
                finding.defers(at, nth, below);
            }
            OnRefusal::Refuse if !fits => {
                finding.refuses(at, nth, below, in_force.wait(words, now_us, needed));
            }
            OnRefusal::Refuse | OnRefusal::Deprioritise => {
                let is_above = in_force.is_wide && below < request.cost;
                finding.margin |= is_above;
                // In a bucket, a request above the limit takes nothing below the margin. In a window, it takes from all units.
                let remaining = match in_force.meter {
                    Meter::Soft(_) if is_above => below.min(left - taken),
                    _ => below.saturating_sub(taken),
                };
                finding.leaves(at, nth, remaining);
            }
        }
    }
}

impl Finding {
    fn refuses(&mut self, at: usize, nth: usize, left: u64, wait_us: u64) {
        self.violated[at] |= bit(nth);
        if self.retry_us.is_none_or(|longest| wait_us > longest) {
            self.retry_us = Some(wait_us);
            self.nearest = Some((at, nth, left));
        }
    }

    fn delays(&mut self, at: usize, nth: usize, remaining: u64, wait_us: u64) {
        self.wait_us = self.wait_us.max(wait_us);
        self.leaves(at, nth, remaining);
    }

    fn defers(&mut self, at: usize, nth: usize, left: u64) {
        if self.retry_us.is_none() && !self.deprioritised {
            self.nearest = Some((at, nth, left));
        }
        self.deprioritised = true;
    }

    fn leaves(&mut self, at: usize, nth: usize, remaining: u64) {
        let nearer = self.nearest.is_none_or(|(_, _, least)| remaining < least);
        if self.retry_us.is_none() && !self.deprioritised && nearer {
            self.nearest = Some((at, nth, remaining));
        }
    }

    fn outcome(&self) -> Outcome {
        match (self.retry_us, self.wait_us) {
            (Some(retry_us), _) => {
                Outcome::Refused { retry_us: Some(retry_us).filter(|retry_us| *retry_us != NEVER_US) }
            }
            (None, wait_us) if wait_us > 0 => Outcome::Delayed { wait_us },
            (None, _) if self.deprioritised => Outcome::Deprioritised,
            (None, _) if self.margin => Outcome::InMargin,
            (None, _) => Outcome::Allowed,
        }
    }
}

/// Charges every key, and records its place in the table.
fn charge(
    counters: &CounterKeys<'_>,
    locked: &mut Locked<'_>,
    places: &mut [Option<usize>; MAX_COUNTER_KEYS],
    cost: u64,
    moment: Moment,
    outcome: Outcome,
) {
    for (counter, place) in counters.iter().zip(places) {
        // A request that passes above its limit is not counted there, or the key would never come below its limit again.
        let exempt =
            outcome == Outcome::Deprioritised && counter.allowance.on_limit == OnRefusal::Deprioritise;
        if exempt {
            continue;
        }
        let (cells, fingerprint) = (locked.of(counter), counter.hash.fingerprint);
        let at = cells.find_again(*place, fingerprint).unwrap_or_else(|| cells.insert(fingerprint));
        *place = Some(at);
        if counter.allowance.shape.logs > 0 {
            charge_with_logs(counter, locked, at, cost, moment);
            continue;
        }
        let words = cells.words_mut(at);
        for limit in &counter.allowance.limits {
            limit.in_force(moment.headroom).meter.charge(&mut words[limit.at..], moment.now_us, cost);
        }
    }
}

/// Charges a key with logs. Its rings may grow, and keys with other logs may then have to make way.
fn charge_with_logs(
    counter: &CounterKey<'_>,
    locked: &mut Locked<'_>,
    place: usize,
    cost: u64,
    Moment { now_us, headroom }: Moment,
) {
    let cells = locked.of(counter);
    for limit in &counter.allowance.limits {
        let meter = limit.in_force(headroom).meter;
        if let Meter::Log(log) = meter {
            cells.refit(place, limit.at, log, now_us, cost);
        }
        meter.charge(cells.part_mut(place, limit.at), now_us, cost);
    }
    locked.bound_logs(counter);
}

/// The words of one limit of a key, if it has a place.
fn words<'c>(cells: &'c Cells, place: Option<usize>, limit: &AllowanceLimit) -> &'c [u64] {
    place.map_or(&FRESH[..], |place| cells.part(place, limit.at))
}
