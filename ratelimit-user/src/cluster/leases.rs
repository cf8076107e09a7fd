//! The leases that this host holds of limits that count on all hosts together.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::Duration,
};

use ratelimit_common::abi::Spent;

use super::holding::{Holding, Pace, PacketLease};
use crate::{
    policy::terms::Terms,
    store::exchange::{Entry, Grant, Line, Others, Timing},
};

/// A limit that counts on all hosts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedLimit {
    /// The key of the limit in the store.
    pub key: String,
    /// The place of its lease in the kernel maps.
    pub place: u32,
    /// The amount, period and burst that the store leases out.
    pub terms: Terms,
}

/// The largest number of lines in a lease batch. More would take the store longer than a tick, and it does nothing else meanwhile; the rest goes with the next batch.
pub const LINES: usize = 1_000;

/// All holdings, by their keys in the store.
#[derive(Clone, Debug)]
pub struct Leases {
    timing: Timing,
    pace: Pace,
    slots: Vec<LeaseSlot>,
    by_key: HashMap<String, usize>,
    /// Keys of limits that are not held any more, and until when a store record may still have a lease of this host.
    dropped: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
struct LeaseSlot {
    limit: LeasedLimit,
    holding: Holding,
    /// The lease that the packet path was last given.
    in_maps: Option<PacketLease>,
    /// Whether other hosts agree on the limit, as the store last told; `heard_ns` is when.
    others: Others,
    heard_ns: u64,
}

/// How many nanoseconds a dispute counts after the store last told of it. In a dispute, other hosts have another amount for the limit.
const SAID_NS: u64 = 60_000_000_000;

/// Sums over all leases of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseTotals {
    /// Limits that count on all hosts together.
    pub limits: u64,
    /// Limits of which this host holds units.
    pub held: u64,
    /// Units held of all limits together.
    pub units: u64,
}

impl Leases {
    /// Makes the state of a host without leases.
    pub fn new(timing: Timing, tick_ns: u64) -> Self {
        let pace = Pace { tick_ns, trip_ns: 0 };
        Self { timing, pace, slots: Vec::new(), by_key: HashMap::new(), dropped: HashMap::new() }
    }

    /// Sets the measured round trip, which leases must outlast.
    pub fn set_round_trip(&mut self, trip: Duration) {
        self.pace.trip_ns = trip.as_nanos() as u64;
        self.timing = self.timing.heard_every(Duration::from_nanos(self.pace.tick_ns).max(trip));
    }

    /// Goes over to the limits of a policy: limits that stay keep their units, new ones start with none. Returns the places that have no lease any more.
    pub fn follow(
        &mut self,
        limits: Vec<LeasedLimit>,
        now_ns: u64,
        mut spent: impl FnMut(u32) -> Spent,
    ) -> Vec<u32> {
        let old: Vec<LeaseSlot> = std::mem::take(&mut self.slots);
        let mut before: HashMap<(String, u32), LeaseSlot> =
            old.into_iter().map(|slot| ((slot.limit.key.clone(), slot.limit.place), slot)).collect();
        let stays: HashSet<(String, u32)> =
            limits.iter().map(|limit| (limit.key.clone(), limit.place)).collect();
        // Dropped holdings do not report what they spent since the last batch, so the store must write off their leases before it hears of the
        // limit again. The time is doubled for lease batches that were given up and arrive late.
        let written_off_ns = now_ns + 2 * self.timing.longest_us() * 1_000;
        self.dropped.retain(|_, until_ns| *until_ns > now_ns);
        let dropped = before.keys().filter(|held| !stays.contains(held));
        self.dropped.extend(dropped.map(|(key, _)| (key.clone(), written_off_ns)));
        for limit in limits {
            let slot = match before.remove(&(limit.key.clone(), limit.place)) {
                Some(slot) if slot.limit.terms == limit.terms => LeaseSlot { limit, ..slot },
                Some(slot) => LeaseSlot { limit, others: Others::Agree, ..slot },
                None => {
                    let silent_until_ns = self.dropped.get(&limit.key).copied().unwrap_or(0);
                    let holding =
                        Holding::new(spent(limit.place), now_ns, &limit.terms).silent_until(silent_until_ns);
                    LeaseSlot { limit, holding, in_maps: None, others: Others::Agree, heard_ns: 0 }
                }
            };
            self.slots.push(slot);
        }
        self.by_key = self.slots.iter().enumerate().map(|(at, slot)| (slot.limit.key.clone(), at)).collect();
        let kept: HashSet<u32> = self.slots.iter().map(|slot| slot.limit.place).collect();
        // The leases of the remaining places end by time, and the store writes them off.
        before.into_keys().map(|(_, place)| place).filter(|place| !kept.contains(place)).collect()
    }

    /// Takes in the counters of spent units of every limit.
    pub fn observe(&mut self, now_ns: u64, mut spent: impl FnMut(u32) -> Spent) {
        for LeaseSlot { limit, holding, .. } in &mut self.slots {
            holding.observe(spent(limit.place), now_ns, &self.pace, &limit.terms);
            holding.shed(now_ns);
        }
    }

    /// Returns the lines of the next lease batch.
    pub fn batch(&mut self, now_ns: u64) -> Vec<Line> {
        let Self { timing, pace, slots, .. } = self;
        let is_due = |slot: &&mut LeaseSlot| slot.holding.is_due(now_ns, timing, pace, &slot.limit.terms);
        let mut due: Vec<&mut LeaseSlot> = slots.iter_mut().filter(is_due).collect();
        if due.len() > LINES {
            due.select_nth_unstable_by_key(LINES, |slot| std::cmp::Reverse(slot.holding.urgency(now_ns)));
            due.truncate(LINES);
        }
        let line = |LeaseSlot { limit, holding, .. }: &mut LeaseSlot| {
            let entry = holding.entry(now_ns, timing, pace, &limit.terms)?;
            Some(Line { key: limit.key.clone(), terms: limit.terms, entry })
        };
        due.into_iter().filter_map(line).collect()
    }

    /// Returns lines that ask for nothing and only show that this host is there: one line for each group of keys.
    pub fn greeting<G: Eq + Hash>(&self, group: impl Fn(&str) -> G) -> Vec<Line> {
        let mut greeted = HashSet::new();
        let nothing = Entry { sequence: 0, used: 0, held: 0, wanted: 0 };
        let line =
            |slot: &LeaseSlot| Line { key: slot.limit.key.clone(), terms: slot.limit.terms, entry: nothing };
        self.slots.iter().filter(|slot| greeted.insert(group(&slot.limit.key))).map(line).collect()
    }

    /// Takes in the answer to one line of a lease batch that was sent at `sent_ns`.
    pub fn answer(&mut self, key: &str, grant: &Grant, sent_ns: u64, now_ns: u64) {
        if let Some(at) = self.by_key.get(key) {
            let slot = &mut self.slots[*at];
            slot.holding.answer(grant, sent_ns, now_ns, &self.timing);
            (slot.others, slot.heard_ns) = (grant.others, now_ns);
        }
    }

    /// Returns the keys of limits on which other hosts do not agree, and what they have instead.
    pub fn disputed(&self, now_ns: u64) -> impl Iterator<Item = (&str, Others)> {
        let is_fresh = move |slot: &&LeaseSlot| now_ns < slot.heard_ns.saturating_add(SAID_NS);
        let disputed = self.slots.iter().filter(|slot| slot.others != Others::Agree).filter(is_fresh);
        disputed.map(|slot| (slot.limit.key.as_str(), slot.others))
    }

    /// Ends all leases, because this host stood still for longer than its clock says and the store may have written them off.
    pub fn lapse(&mut self, now_ns: u64) {
        self.slots.iter_mut().for_each(|slot| slot.holding.lapse(now_ns));
    }

    /// Returns the leases that the packet path does not have yet, with their places, and marks them as given.
    pub fn news(&mut self) -> Vec<(u32, PacketLease)> {
        let mut news = Vec::new();
        for LeaseSlot { limit, holding, in_maps, .. } in &mut self.slots {
            let lease = holding.packet_lease();
            if *in_maps != Some(lease) {
                *in_maps = Some(lease);
                news.push((limit.place, lease));
            }
        }
        news
    }

    /// Gives every holding one tick's worth of units at its last pace, to spend without the store within three ticks.
    pub fn go_on(&mut self, now_ns: u64) {
        for LeaseSlot { holding, .. } in &mut self.slots {
            holding.go_on(now_ns + 3 * self.pace.tick_ns);
        }
    }

    /// Gives up all units: the next lease batch gives them back.
    pub fn give_up(&mut self, now_ns: u64) {
        self.slots.iter_mut().for_each(|slot| slot.holding.give_up(now_ns));
    }

    /// Sums over all leases that this host holds.
    pub fn totals(&self, now_ns: u64) -> LeaseTotals {
        let held = self.slots.iter().map(|slot| slot.holding.held(now_ns));
        held.fold(LeaseTotals::default(), |sum, units| LeaseTotals {
            limits: sum.limits + 1,
            held: sum.held + u64::from(units > 0),
            units: sum.units + units,
        })
    }

    /// Returns the units held of the limit whose lease is at a place.
    pub fn held_at(&self, place: u32, now_ns: u64) -> Option<u64> {
        self.slots.iter().find(|slot| slot.limit.place == place).map(|slot| slot.holding.held(now_ns))
    }

    /// Returns the part of a limit, of what the store leases out, that was lately spent on this host, in percent.
    pub fn share_at(&self, place: u32) -> Option<u64> {
        let slot = self.slots.iter().find(|slot| slot.limit.place == place)?;
        let terms = &slot.limit.terms;
        let spent = u128::from(slot.holding.pace()) * u128::from(terms.period_us());
        let given = u128::from(terms.amount()) * 1_000_000;
        Some((100 * spent / given.max(1)).min(100) as u64)
    }

    /// Returns the places of all leases in the kernel maps.
    pub fn places(&self) -> Vec<u32> {
        self.slots.iter().map(|slot| slot.limit.place).collect()
    }

    /// Returns the times that leases keep to.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }
}

#[cfg(test)]
mod tests;
