//! What the store knows of one limit of one user. Pure: `scripts/lease.lua` does the same, number for number.
//!
//! ```text
//! refill:  level += rate x time, but only while level + out <= burst
//! grant:   level -> out        used:  out -> gone        given back:  out -> level
//! ```
//! All hosts together can still spend level + out, which is never above the burst, and nothing comes in faster than the rate: so every
//! interval W admits at most burst + rate x W, whatever happens to hosts, messages and leases. A lease that nobody reports is written off as
//! spent when its time and a margin are over.
//!
//! A store that may have forgotten something is *cold*: it has just been made, emptied, restarted, or has taken over from another one. For as
//! long as leases can last that it knows nothing of, it gives out nothing new; hosts say what they hold. And what it remembers as left it
//! takes for spent.

use std::collections::BTreeMap;

use super::{
    exchange::{Entry, Grant, Timing},
    terms::Terms,
};

/// One start of one host: a host that starts anew has other leases.
pub type HostId = String;

/// The books of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Units that can be given out; below zero if hosts hold more than the books had for them.
    level: i64,
    /// What has come in beyond whole units, in units times the period.
    carry: u64,
    /// Until when refills have been counted.
    at_us: u64,
    /// Since when the store that keeps these books has known everything.
    since_us: u64,
    hosts: BTreeMap<HostId, Held>,
}

/// What one host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Its last entry.
    sequence: u64,
    /// Units that it may still spend.
    out: u64,
    /// When they are written off.
    until_us: u64,
    /// What it wanted.
    wanted: u64,
    /// What it was given for that.
    granted: u64,
    /// When it was last heard of.
    seen_us: u64,
}

/// When, and whether the store may have forgotten something.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The store's clock.
    pub now_us: u64,
    /// Since when it has known everything.
    pub since_us: u64,
    /// Whether there may be leases that it does not know.
    pub cold: bool,
}

impl Ledger {
    /// The books of a limit that the store knows nothing of. Perhaps nobody has used it for long, perhaps it was forgotten: so nothing was left when
    /// the store began to know everything, and what has come in since then is there.
    pub fn new(moment: &Moment) -> Self {
        Self { level: 0, carry: 0, at_us: moment.since_us, since_us: moment.since_us, hosts: BTreeMap::new() }
    }

    /// Takes down what a host says and answers it.
    pub fn exchange(
        &mut self,
        terms: &Terms,
        timing: &Timing,
        moment: &Moment,
        host: &str,
        entry: &Entry,
    ) -> Grant {
        let now_us = moment.now_us;
        if self.since_us != moment.since_us {
            *self = Self::new(moment);
        }
        self.write_off(terms, now_us);
        self.refill(terms, now_us);
        let mut held = self.hosts.get(host).copied().unwrap_or_default();
        if entry.sequence <= held.sequence {
            // Said before: the same answer, or none to what has been answered and superseded.
            let units = if entry.sequence == held.sequence { held.granted } else { 0 };
            let lifetime_us = (held.until_us.saturating_sub(timing.margin_us)).saturating_sub(now_us);
            return Grant { units, lifetime_us };
        }
        // What was spent of something that has been written off is gone already.
        let left = held.out - entry.used.min(held.out);
        // More is held than was on the books: something was lost, and is owed until it has come in again. It may also be an old letter
        // that comes late; then the next one gives back what never was, and nothing is left of it.
        self.level += left as i64 - entry.held as i64;
        held.out = entry.held;
        held.granted = if moment.cold { 0 } else { self.grant(now_us, timing, host, entry.wanted) };
        self.level -= held.granted as i64;
        held.out += held.granted;
        held.sequence = entry.sequence;
        held.wanted = entry.wanted;
        held.seen_us = now_us;
        held.until_us = now_us + timing.longest_us();
        self.hosts.insert(host.to_owned(), held);
        Grant { units: held.granted, lifetime_us: timing.lifetime_us }
    }

    /// Units that all hosts together can still spend.
    pub fn outstanding(&self) -> u64 {
        self.hosts.values().map(|held| held.out).sum()
    }

    /// Units that can be given out.
    pub fn level(&self) -> u64 {
        self.level.max(0) as u64
    }

    /// Takes for spent what nobody has reported in time. One after the other: until then it left less room for what came in.
    fn write_off(&mut self, terms: &Terms, now_us: u64) {
        let mut due: Vec<(u64, HostId)> = (self.hosts.iter())
            .filter(|(_, held)| held.until_us < now_us)
            .map(|(host, held)| (held.until_us, host.clone()))
            .collect();
        due.sort_unstable();
        for (until_us, host) in due {
            self.refill(terms, until_us);
            self.hosts.remove(&host);
        }
    }

    fn refill(&mut self, terms: &Terms, now_us: u64) {
        let burst = terms.burst() as i64;
        let room = (burst - self.level - self.outstanding() as i64).clamp(0, burst) as u64;
        self.level = self.level.min(burst);
        // Not more than fills the room: scripts count in doubles.
        let longest = (room + 1) * terms.period_us() / terms.amount() + 1;
        let time = now_us.saturating_sub(self.at_us).min(longest);
        self.at_us = self.at_us.max(now_us);
        // Another policy may have had another period.
        let total = time * terms.amount() + self.carry.min(terms.period_us() - 1);
        let units = total / terms.period_us();
        if units >= room {
            // What does not fit is not owed later.
            self.level += room as i64;
            self.carry = 0;
        } else {
            self.level += units as i64;
            self.carry = total % terms.period_us();
        }
    }

    /// A part of what there is, by what the host wants against what all want; or what is left when all others have theirs.
    fn grant(&self, now_us: u64, timing: &Timing, host: &str, wanted: u64) -> u64 {
        if wanted == 0 || self.level <= 0 {
            return 0;
        }
        let recent = |held: &&Held| held.seen_us + timing.recent_us >= now_us;
        let others: u64 = self
            .hosts
            .iter()
            .filter(|(other, _)| *other != host)
            .map(|(_, held)| held)
            .filter(recent)
            .map(|held| held.wanted)
            .sum();
        let level = self.level();
        let share = (level as f64 * (wanted as f64 / (wanted + others) as f64)) as u64;
        wanted.min(share.max(level.saturating_sub(others)).max(1)).min(level)
    }
}
