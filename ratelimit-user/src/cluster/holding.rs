//! A holding: this host's lease of one limit of one user. Pure: clock, counters and answers are arguments.
//!
//! The packet path counts the units ever spent, and spends only up to a ceiling. So a lease grows by raising the ceiling. To give units
//! back the ceiling is lowered; but a packet under way may have read the old one. The units between both ceilings count as held until
//! every such packet is long done, one tick later: only then does the host know how many were not spent.

use ratelimit_common::abi::Spent;

use crate::{
    policy::terms::Terms,
    store::exchange::{Entry, Grant, Timing},
};

/// Longer than a packet takes from reading the ceiling to spending, even on a machine that is stopped for a moment, and longer than the lag
/// of the packet path's clock.
const SETTLED_NS: u64 = 20_000_000;
/// How many exchanges' worth of its demand a host asks to hold: one exchange passes until the answer, and a half-spent holding is topped up.
const EXCHANGES_AHEAD: u64 = 2;
/// The part of its burst, 1/32, that a host holds at least of a limit in use, while few hosts use the limit: packets do not come at even
/// distances, and a packet that finds no units left here is lost although the store has plenty.
const PORTION: u64 = 32;
/// The part of the burst, 1/2, that all hosts together hold at least while many use the limit: otherwise the first 32 of a thousand hosts would hold the whole
/// burst, and the bucket cannot fill while it is held.
const HELD_BY_ALL: u64 = 2;
/// How long a limit counts as in use after the last packet, so that users that send rarely find units too.
const LINGERS_NS: u64 = 10_000_000_000;
/// How much of the estimated demand is left after a tick without demand, in eighths.
const DECAY_EIGHTHS: u64 = 6;
/// The most unmet demand that the packet path counts between two looks, in bursts.
const ENOUGH_BURSTS: u64 = 2;

/// This host's holding of one limit, and the state of its conversation with the store about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The count of spent units up to which packets may spend.
    ceiling: u64,
    /// The highest ceiling that a packet under way may still have read.
    highest: u64,
    /// When the ceiling was last lowered.
    lowered_ns: u64,
    /// When the lease ends; 0 if there is none.
    expires_ns: u64,
    /// The counters when they were last read.
    seen: Spent,
    seen_ns: u64,
    /// The count of unmet demand at which the packet path stops counting.
    enough: u64,
    /// Units asked for in one tick, estimated; `ahead` is the demand until the next grant arrives.
    demand: u64,
    ahead: u64,
    /// Units to hold at least, until `in_use_until_ns`.
    portion: u64,
    in_use_until_ns: u64,
    /// The number of hosts that use the limit, as the store last told.
    hosts: u64,
    /// Units spent in a second, estimated while the store answers.
    pace: u64,
    /// Nanoseconds between the last two looks at the counters.
    passed_ns: u64,
    /// Whether this host goes on without the store.
    alone: bool,
    /// Units spent that have been reported to the store.
    reported: u64,
    /// Units that this host holds according to the store.
    booked: u64,
    /// When the store last answered.
    answered_ns: u64,
    /// The number of the last entry in a lease batch.
    sequence: u64,
    /// The entry that the store has not answered yet.
    unanswered: Option<Entry>,
    /// Until this time the host sends the store nothing about the limit: the store record may still have a lease of an earlier holding on this host.
    silent_until_ns: u64,
}

/// The times of the exchange between this host and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time from one look at the counters to the next.
    pub tick_ns: u64,
    /// Round trip of a lease batch.
    pub trip_ns: u64,
}

impl Pace {
    /// Returns the time until units asked for now arrive: until the next lease batch, and its round trip.
    pub fn exchange_ns(&self) -> u64 {
        self.tick_ns + self.trip_ns
    }

    /// Returns the age of the last answer at which a lease is renewed: a fourth of the lifetime, or less if the renewal would come too late.
    fn renewal_us(&self, timing: &Timing) -> u64 {
        let lasts_us = timing.lifetime_us.saturating_sub(timing.margin_us);
        // An answer is one round trip old when it arrives, and the next one takes another round trip.
        let latest_us = lasts_us.saturating_sub((2 * self.trip_ns + 2 * self.tick_ns) / 1_000);
        (timing.lifetime_us / 4).min(latest_us)
    }
}

/// The lease of one limit as the packet path gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketLease {
    /// The count of spent units up to which packets may spend.
    pub ceiling: u64,
    /// When the lease ends; 0 if nothing may be spent.
    pub expires_ns: u64,
    /// The count of unmet demand at which the packet path stops counting.
    pub enough: u64,
}

impl Holding {
    /// Makes an empty holding of a limit whose counters are at `spent`.
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

    /// Returns the holding with a time until which nothing is sent to the store.
    pub fn silent_until(self, silent_until_ns: u64) -> Self {
        Self { silent_until_ns, ..self }
    }

    /// Returns the lease for the packet path.
    pub fn packet_lease(&self) -> PacketLease {
        PacketLease { ceiling: self.ceiling, expires_ns: self.expires_ns, enough: self.enough }
    }

    /// Returns the units that the packet path can still spend.
    pub fn held(&self, now_ns: u64) -> u64 {
        if now_ns < self.expires_ns { self.ceiling.saturating_sub(self.seen.used) } else { 0 }
    }

    /// Returns the units spent in a second, averaged over the last ticks.
    pub fn pace(&self) -> u64 {
        self.pace
    }

    /// Takes in the counters of spent units and unmet demand.
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
        // The pace is not updated while an answer is missing: packets may spend less then than the store would grant.
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
        // A packet may have spent beyond a ceiling that was just lowered, or from a lease of the daemon before.
        self.ceiling = self.ceiling.max(spent.used);
        self.highest = self.highest.max(spent.used);
        if self.expires_ns != 0 && now_ns >= self.expires_ns {
            self.lower(spent.used, now_ns);
            self.expires_ns = 0;
        }
    }

    /// Lowers the ceiling to the units that are needed, if more than twice as many are held.
    pub fn shed(&mut self, now_ns: u64) {
        let target = self.target(now_ns);
        if self.held(now_ns) > 2 * target {
            self.lower(self.seen.used + target, now_ns);
        }
    }

    /// Lowers the ceiling to the units that have been spent, and forgets the demand.
    pub fn give_up(&mut self, now_ns: u64) {
        self.demand = 0;
        self.ahead = 0;
        self.in_use_until_ns = 0;
        self.lower(self.seen.used, now_ns);
    }

    /// Ends the lease at once: the store may have written it off.
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

    /// Returns how urgent an entry about this holding is: unanswered entries come first, then holdings with demand and no units left, then
    /// leases by how soon they end.
    pub fn urgency(&self, now_ns: u64) -> u64 {
        let left_ns = self.expires_ns.saturating_sub(now_ns);
        match (self.unanswered.is_some(), self.demand > 0 && self.held(now_ns) == 0) {
            (true, _) => u64::MAX,
            (false, true) => u64::MAX - 1,
            (false, false) => u64::MAX - 2 - left_ns,
        }
    }

    /// Whether an entry about this holding is due in the next lease batch.
    pub fn is_due(&self, now_ns: u64, timing: &Timing, pace: &Pace, terms: &Terms) -> bool {
        self.unanswered.is_some() || self.next(now_ns, timing, pace, terms).is_some()
    }

    /// Returns the entry for the next lease batch, if one is due. An unanswered entry is repeated unchanged.
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
        // The holding is topped up when half of the target is gone, not after every packet.
        let wanted = match self.held(now_ns) {
            held if held * 2 <= target => target - held,
            _ => 0,
        };
        let given_back = self.booked.saturating_sub(used + held);
        let age_us = now_ns.saturating_sub(self.answered_ns) / 1_000;
        // A lease in use is renewed before it ends, and spent units are reported soon enough for the bucket at the store to fill.
        let renews = (held > 0 || used > 0) && age_us >= pace.renewal_us(timing);
        let says = wanted > 0 || given_back > 0 || used > terms.burst() / 16 || renews;
        says.then_some(Entry { sequence: self.sequence + 1, used, held, wanted })
    }

    /// Takes in the answer to the entry, which was sent at `sent_ns`.
    pub fn answer(&mut self, grant: &Grant, sent_ns: u64, now_ns: u64, timing: &Timing) {
        let Some(entry) = self.unanswered.take() else { return };
        self.alone = false;
        self.reported += entry.used;
        // Our script never grants more units or time than was asked for; other answers are cut to that.
        let units = grant.units.min(entry.wanted);
        self.booked = entry.held + units;
        self.answered_ns = now_ns;
        self.hosts = grant.hosts;
        let lasts_us = grant.lifetime_us.min(timing.lifetime_us).saturating_sub(timing.margin_us);
        let expires_ns = sent_ns + lasts_us * 1_000;
        // Units of a grant that comes too late are not spent; the next entry gives them back.
        if expires_ns <= now_ns {
            return;
        }
        // Units that ran out while the answer was under way stay lost: `observe` has lowered the ceiling by them.
        self.ceiling += units;
        self.highest = self.highest.max(self.ceiling);
        self.expires_ns = self.expires_ns.max(expires_ns);
    }

    /// Lets packets spend without the store at the last pace, until a moment. No store record counts these units when they are spent.
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
