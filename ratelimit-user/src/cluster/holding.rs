//! What this host has of one limit of one user. Pure: clock, counters and answers are arguments.
//!
//! The packet path is told a ceiling for everything ever spent, and raises what is spent up to it. So a lease grows by raising the ceiling.
//! To give something back the ceiling is lowered; but a packet that is being looked at may have seen the old one. What was between the two
//! counts as held until every such packet is long done, one tick later: only then does the host know what was not spent.

use ratelimit_common::abi::Spent;

use super::{
    exchange::{Entry, Grant, Timing},
    terms::Terms,
};

/// A packet takes far less time than this from reading the ceiling to spending, also on a machine that is stopped for a moment, and the clock
/// of the packet path lags by less.
const SETTLED_NS: u64 = 20_000_000;
/// What a host likes to hold, in ticks of its demand: one passes until the next exchange, one is for an answer that takes its time.
const TICKS_AHEAD: u64 = 2;
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
    /// Units that one tick asks for, estimated.
    demand: u64,
    /// Units spent in a second, estimated.
    pace: u64,
    /// Units spent that the store has heard of.
    reported: u64,
    /// What the store takes to be held here.
    booked: u64,
    /// When the store last answered.
    answered_ns: u64,
    /// The last entry.
    sequence: u64,
    /// The entry that has no answer yet.
    unanswered: Option<Entry>,
}

/// What the packet path is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
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
            pace: 0,
            reported: spent.used,
            booked: 0,
            answered_ns: now_ns,
            sequence: 0,
            unanswered: None,
        }
    }

    /// What the packet path must know.
    pub fn told(&self) -> Told {
        Told { ceiling: self.ceiling, expires_ns: self.expires_ns, enough: self.enough }
    }

    /// Units that the packet path can still spend.
    pub fn held(&self, now_ns: u64) -> u64 {
        if now_ns < self.expires_ns { self.ceiling.saturating_sub(self.seen.used) } else { 0 }
    }

    /// Takes in what packets have spent and asked for since.
    pub fn observe(&mut self, spent: Spent, now_ns: u64, tick_ns: u64, terms: &Terms) {
        let passed = now_ns.saturating_sub(self.seen_ns).max(1);
        let used = spent.used.saturating_sub(self.seen.used);
        let asked = used + spent.unmet.saturating_sub(self.seen.unmet);
        let per_tick = scaled(asked, tick_ns, passed.max(tick_ns));
        self.demand = per_tick.max(self.demand * DECAY_EIGHTHS / 8).min(terms.burst());
        let second = scaled(used, 1_000_000_000, passed.max(tick_ns));
        self.pace = (self.pace * 7 + second) / 8;
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
        let target = self.target();
        if self.held(now_ns) > 2 * target {
            self.lower(self.seen.used + target, now_ns);
        }
    }

    /// Lowers the ceiling to what has been spent.
    pub fn give_up(&mut self, now_ns: u64) {
        self.demand = 0;
        self.lower(self.seen.used, now_ns);
    }

    fn lower(&mut self, ceiling: u64, now_ns: u64) {
        if ceiling < self.ceiling {
            self.ceiling = ceiling;
            self.lowered_ns = now_ns;
        }
    }

    fn target(&self) -> u64 {
        self.demand * TICKS_AHEAD
    }

    /// What is to be said to the store now, if anything. What has no answer yet is said again as it was.
    pub fn entry(&mut self, now_ns: u64, timing: &Timing, terms: &Terms) -> Option<Entry> {
        if let Some(entry) = self.unanswered {
            return Some(entry);
        }
        let used = self.seen.used - self.reported;
        let held = self.highest - self.seen.used;
        let wanted = (self.target().min(terms.burst())).saturating_sub(self.held(now_ns));
        let given_back = self.booked.saturating_sub(used + held);
        let age_us = now_ns.saturating_sub(self.answered_ns) / 1_000;
        // A lease that is in use is renewed in time; what was spent is told soon enough not to keep the bucket from filling.
        let renews = (held > 0 || used > 0) && age_us >= timing.lifetime_us / 4;
        if wanted == 0 && given_back == 0 && used < terms.burst() / 16 + 1 && !renews {
            return None;
        }
        if used == 0 && held == 0 && wanted == 0 && given_back == 0 {
            return None;
        }
        self.sequence += 1;
        let entry = Entry { sequence: self.sequence, used, held, wanted };
        self.unanswered = Some(entry);
        Some(entry)
    }

    /// Takes in the answer to the entry, which was sent at `sent_ns`.
    pub fn answer(&mut self, grant: &Grant, sent_ns: u64, now_ns: u64, timing: &Timing) {
        let Some(entry) = self.unanswered.take() else { return };
        self.reported += entry.used;
        self.booked = entry.held + grant.units;
        self.answered_ns = now_ns;
        let lasts_us = grant.lifetime_us.saturating_sub(timing.margin_us);
        let expires_ns = sent_ns + lasts_us * 1_000;
        // One that comes too late is not spent; the next entry gives it back.
        if expires_ns <= now_ns {
            return;
        }
        // What ran out while the answer was under way stays lost here: `observe` has lowered the ceiling by it.
        self.ceiling += grant.units;
        self.highest = self.highest.max(self.ceiling);
        self.expires_ns = self.expires_ns.max(expires_ns);
    }

    /// Units per second that packets spent lately.
    pub fn pace(&self) -> u64 {
        self.pace
    }

    /// Goes on at a pace of its own without the store, until a moment. Nothing of it is on anybody's books.
    pub fn go_on(&mut self, pace: u64, tick_ns: u64, until_ns: u64) {
        let units = scaled(pace, tick_ns, 1_000_000_000).max(1);
        self.ceiling = self.ceiling.max(self.seen.used + units);
        self.highest = self.highest.max(self.ceiling);
        self.expires_ns = self.expires_ns.max(until_ns);
    }
}

fn enough(terms: &Terms) -> u64 {
    ENOUGH_BURSTS * terms.burst().max(1)
}

fn scaled(units: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(units) * u128::from(numerator)).div_ceil(u128::from(denominator.max(1))) as u64
}
