//! What this host has of one limit of one user. Pure: clock, counters and answers are arguments.
//!
//! The packet path is told a ceiling for everything ever spent, and raises what is spent up to it. So a lease grows by raising the ceiling.
//! To give something back the ceiling is lowered; but a packet that is being looked at may have seen the old one. What was between the two
//! counts as held until every such packet is long done, one tick later: only then does the host know what was not spent.

use ratelimit_common::abi::Spent;

use crate::{
    policy::terms::Terms,
    store::exchange::{Entry, Grant, Timing},
};

/// A packet takes far less time than this from reading the ceiling to spending, also on a machine that is stopped for a moment, and the clock
/// of the packet path lags by less.
const SETTLED_NS: u64 = 20_000_000;
/// What a host likes to hold, in exchanges' worth of its demand: one passes until there is an answer, and what is half gone is topped up.
const EXCHANGES_AHEAD: u64 = 2;
/// What a host likes to hold at least of a limit that is in use, as a part of its burst, while few hosts use the limit: few packets come at even
/// distances, and one that finds nothing is lost although there is plenty.
const PORTION: u64 = 32;
/// What all hosts like to hold at least, as a part of the burst, while many use the limit: nothing comes in while everything is held, and the first 32
/// of a thousand hosts would hold everything.
const HELD_BY_ALL: u64 = 2;
/// For how long a limit counts as in use after the last packet: users that send little find something of it too.
const LINGERS_NS: u64 = 10_000_000_000;
/// How much of an estimated demand is left after a tick without any, in eighths.
const DECAY_EIGHTHS: u64 = 6;
/// Bursts' worth of unmet demand that is worth counting.
const ENOUGH_BURSTS: u64 = 2;

/// What this host has, and what it and the store have said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// What may have been spent in all.
    ceiling: u64,
    /// The highest ceiling that a packet may still have in mind.
    highest: u64,
    /// When the ceiling was last lowered.
    lowered_ns: u64,
    /// Until when anything may be spent.
    expires_ns: u64,
    /// What the counters were when last read.
    seen: Spent,
    seen_ns: u64,
    /// Up to where unmet demand is counted.
    enough: u64,
    /// Units that one tick asks for, estimated, and what is needed until there are more.
    demand: u64,
    ahead: u64,
    /// What is held at least, and until when.
    portion: u64,
    in_use_until_ns: u64,
    /// Hosts that use the limit, as the store last said.
    hosts: u64,
    /// Units spent in a second, estimated while the store says what may be.
    pace: u64,
    /// Time from the last look to the one before.
    passed_ns: u64,
    /// Whether this host goes on without the store.
    alone: bool,
    /// Units spent that the store has heard of.
    reported: u64,
    /// What the store takes to be held here.
    booked: u64,
    /// When the store last answered.
    answered_ns: u64,
    /// The number of the last entry.
    sequence: u64,
    /// The entry that has no answer yet.
    unanswered: Option<Entry>,
    /// Until when this host sends the store nothing about the limit: the store record may still have a lease of an earlier holding on this host.
    silent_until_ns: u64,
}

/// How often this host and the store talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time from one look at the counters to the next.
    pub tick_ns: u64,
    /// What an answer of the store takes.
    pub trip_ns: u64,
}

impl Pace {
    /// Time until what is asked for now is there: the next lease batch, and its answer.
    pub fn exchange_ns(&self) -> u64 {
        self.tick_ns + self.trip_ns
    }

    /// How old an answer gets before a lease is renewed: a fourth of its time, or less if the answer to that would come too late.
    fn renewal_us(&self, timing: &Timing) -> u64 {
        let lasts_us = timing.lifetime_us.saturating_sub(timing.margin_us);
        // An answer is as old as its way was long when it comes, and the next one takes as long again.
        let latest_us = lasts_us.saturating_sub((2 * self.trip_ns + 2 * self.tick_ns) / 1_000);
        (timing.lifetime_us / 4).min(latest_us)
    }
}

/// What the packet path is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketLease {
    /// What may have been spent in all.
    pub ceiling: u64,
    /// Until when; 0 is never.
    pub expires_ns: u64,
    /// Up to where unmet demand is counted.
    pub enough: u64,
}

impl Holding {
    /// Nothing held, of a limit whose counters are at `spent`.
    pub fn new(spent: Spent, now_ns: u64, terms: &Terms) -> Self {
        Self {
            ceiling: spent.used,
            highest: spent.used,
            lowered_ns: now_ns,
            expires_ns: 0,
            seen: spent,
            seen_ns: now_ns,
            enough: spent.unmet + enough(terms),
            demand: 0,
            ahead: 0,
            portion: portion(terms, 1),
            in_use_until_ns: 0,
            hosts: 1,
            pace: 0,
            passed_ns: 0,
            alone: false,
            reported: spent.used,
            booked: 0,
            answered_ns: now_ns,
            sequence: 0,
            unanswered: None,
            silent_until_ns: 0,
        }
    }

    /// The holding, silent towards the store until a moment.
    pub fn silent_until(self, silent_until_ns: u64) -> Self {
        Self { silent_until_ns, ..self }
    }

    /// The lease as the packet path has it.
    pub fn packet_lease(&self) -> PacketLease {
        PacketLease { ceiling: self.ceiling, expires_ns: self.expires_ns, enough: self.enough }
    }

    /// Units that the packet path can still spend.
    pub fn held(&self, now_ns: u64) -> u64 {
        if now_ns < self.expires_ns { self.ceiling.saturating_sub(self.seen.used) } else { 0 }
    }

    /// Units that are spent in a second, as it was over the last ticks.
    pub fn pace(&self) -> u64 {
        self.pace
    }

    /// Takes in what packets have spent and asked for since.
    pub fn observe(&mut self, spent: Spent, now_ns: u64, pace: &Pace, terms: &Terms) {
        let tick_ns = pace.tick_ns;
        let passed = now_ns.saturating_sub(self.seen_ns).max(1);
        let used = spent.used.saturating_sub(self.seen.used);
        let asked = used + spent.unmet.saturating_sub(self.seen.unmet);
        let per_tick = scaled(asked, tick_ns, passed.max(tick_ns));
        self.demand = per_tick.max(self.demand * DECAY_EIGHTHS / 8).min(terms.burst());
        self.ahead = scaled(self.demand, EXCHANGES_AHEAD * pace.exchange_ns(), tick_ns);
        self.portion = portion(terms, self.hosts);
        if asked > 0 {
            self.in_use_until_ns = now_ns + LINGERS_NS;
        }
        // Not while an answer is missing: what is spent then is not what could be.
        if !self.alone && self.unanswered.is_none() {
            let second = scaled(used, 1_000_000_000, passed.max(tick_ns));
            self.pace = (self.pace * 7 + second) / 8;
        }
        self.passed_ns = passed;
        self.seen = spent;
        self.seen_ns = now_ns;
        if spent.unmet + enough(terms) / 2 > self.enough {
            self.enough = spent.unmet + enough(terms);
        }
        if now_ns >= self.lowered_ns + SETTLED_NS {
            self.highest = self.ceiling.max(spent.used);
        }
        // Some packet may have gone beyond a ceiling that was just lowered, or spent what the daemon before this one had.
        self.ceiling = self.ceiling.max(spent.used);
        self.highest = self.highest.max(spent.used);
        if self.expires_ns != 0 && now_ns >= self.expires_ns {
            self.lower(spent.used, now_ns);
            self.expires_ns = 0;
        }
    }

    /// Lowers the ceiling to what is needed, if much more is held.
    pub fn shed(&mut self, now_ns: u64) {
        let target = self.target(now_ns);
        if self.held(now_ns) > 2 * target {
            self.lower(self.seen.used + target, now_ns);
        }
    }

    /// Lowers the ceiling to what has been spent.
    pub fn give_up(&mut self, now_ns: u64) {
        self.demand = 0;
        self.ahead = 0;
        self.in_use_until_ns = 0;
        self.lower(self.seen.used, now_ns);
    }

    /// Spends nothing more of what is held, whatever its end: the store may have written it off.
    pub fn lapse(&mut self, now_ns: u64) {
        self.lower(self.seen.used, now_ns);
        self.expires_ns = 0;
    }

    fn lower(&mut self, ceiling: u64, now_ns: u64) {
        if ceiling < self.ceiling {
            self.ceiling = ceiling;
            self.lowered_ns = now_ns;
        }
    }

    fn target(&self, now_ns: u64) -> u64 {
        let at_least = if now_ns < self.in_use_until_ns { self.portion } else { 0 };
        self.ahead.max(at_least)
    }

    /// How much it matters that the store hears of it now: what has been said and not been answered comes first, then who has nothing left, then
    /// leases that run out.
    pub fn urgency(&self, now_ns: u64) -> u64 {
        let left_ns = self.expires_ns.saturating_sub(now_ns);
        match (self.unanswered.is_some(), self.demand > 0 && self.held(now_ns) == 0) {
            (true, _) => u64::MAX,
            (false, true) => u64::MAX - 1,
            (false, false) => u64::MAX - 2 - left_ns,
        }
    }

    /// Whether there is anything to be said to the store now.
    pub fn is_due(&self, now_ns: u64, timing: &Timing, pace: &Pace, terms: &Terms) -> bool {
        self.unanswered.is_some() || self.next(now_ns, timing, pace, terms).is_some()
    }

    /// What is to be said to the store now, if anything. What has no answer yet is said again as it was.
    pub fn entry(&mut self, now_ns: u64, timing: &Timing, pace: &Pace, terms: &Terms) -> Option<Entry> {
        if self.unanswered.is_none() {
            self.unanswered = self.next(now_ns, timing, pace, terms);
            self.sequence += u64::from(self.unanswered.is_some());
        }
        self.unanswered
    }

    fn next(&self, now_ns: u64, timing: &Timing, pace: &Pace, terms: &Terms) -> Option<Entry> {
        if now_ns < self.silent_until_ns {
            return None;
        }
        let used = self.seen.used - self.reported;
        let held = self.highest - self.seen.used;
        let target = self.target(now_ns).min(terms.burst());
        // Topped up when half is gone, not for every packet.
        let wanted = match self.held(now_ns) {
            held if held * 2 <= target => target - held,
            _ => 0,
        };
        let given_back = self.booked.saturating_sub(used + held);
        let age_us = now_ns.saturating_sub(self.answered_ns) / 1_000;
        // A lease that is in use is renewed in time; what was spent is told soon enough not to keep the bucket from filling.
        let renews = (held > 0 || used > 0) && age_us >= pace.renewal_us(timing);
        let says = wanted > 0 || given_back > 0 || used > terms.burst() / 16 || renews;
        says.then_some(Entry { sequence: self.sequence + 1, used, held, wanted })
    }

    /// Takes in the answer to the entry, which was sent at `sent_ns`.
    pub fn answer(&mut self, grant: &Grant, sent_ns: u64, now_ns: u64, timing: &Timing) {
        let Some(entry) = self.unanswered.take() else { return };
        self.alone = false;
        self.reported += entry.used;
        // A store never gives more than was asked for, nor for longer. One that does is not ours.
        let units = grant.units.min(entry.wanted);
        self.booked = entry.held + units;
        self.answered_ns = now_ns;
        self.hosts = grant.hosts;
        let lasts_us = grant.lifetime_us.min(timing.lifetime_us).saturating_sub(timing.margin_us);
        let expires_ns = sent_ns + lasts_us * 1_000;
        // One that comes too late is not spent; the next entry gives it back.
        if expires_ns <= now_ns {
            return;
        }
        // What ran out while the answer was under way stays lost here: `observe` has lowered the ceiling by it.
        self.ceiling += units;
        self.highest = self.highest.max(self.ceiling);
        self.expires_ns = self.expires_ns.max(expires_ns);
    }

    /// Goes on spending without the store at the last pace, until a moment. No store record has what is spent so.
    pub fn go_on(&mut self, until_ns: u64) {
        if self.pace == 0 {
            return;
        }
        self.alone = true;
        let units = scaled(self.pace, self.passed_ns, 1_000_000_000).max(1);
        self.ceiling = self.ceiling.max(self.seen.used + units);
        self.highest = self.highest.max(self.ceiling);
        self.expires_ns = self.expires_ns.max(until_ns);
    }
}

fn portion(terms: &Terms, hosts: u64) -> u64 {
    (terms.burst() / hosts.saturating_mul(HELD_BY_ALL).max(PORTION)).max(1)
}

fn enough(terms: &Terms) -> u64 {
    ENOUGH_BURSTS * terms.burst().max(1)
}

fn scaled(units: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(units) * u128::from(numerator)).div_ceil(u128::from(denominator.max(1))) as u64
}

#[cfg(test)]
mod tests;
