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
//!
//! Hosts may have different limits in their policies, for a moment while they are changed, or by mistake. The smallest rate and the smallest
//! burst that any of them says are in force for all, until none of those that are heard of has said so for as long as a lease can last.
//!
//! A clock that goes back counts from there: what has come in meanwhile is lost, and no lease is on the books for longer than one that is given
//! now.

use std::collections::BTreeMap;

use crate::{
    policy::terms::Terms,
    store::exchange::{Entry, Grant, Others, Timing},
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
    /// The limit in force; none if nobody has said any.
    least: Option<Least>,
}

/// The smallest of the limits that hosts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Least {
    terms: Terms,
    /// When a host last said this rate, and this burst.
    rate_us: u64,
    burst_us: u64,
    /// When a host last said more.
    more_us: u64,
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
    /// How long leases last that anybody was given.
    pub longest_us: u64,
}

impl Ledger {
    /// The books of a limit that the store knows nothing of. Perhaps nobody has used it for long, perhaps it was forgotten: so nothing was left when
    /// the store began to know everything, and what has come in since then is there.
    pub fn new(moment: &Moment) -> Self {
        let since_us = moment.since_us;
        Self { level: 0, carry: 0, at_us: since_us, since_us, hosts: BTreeMap::new(), least: None }
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
        self.go_back(moment);
        let forgotten = self.forgotten(now_us);
        let others = self.compare(terms, moment, host);
        let terms = &self.least.map_or(*terms, |least| least.terms);
        self.write_off(terms, forgotten);
        self.refill(terms, now_us);
        let mut held = self.hosts.get(host).copied().unwrap_or_default();
        if entry.sequence <= held.sequence {
            // Said before: the same answer, or none to what has been answered and superseded.
            let units = if entry.sequence == held.sequence { held.granted } else { 0 };
            let lifetime_us = (held.until_us.saturating_sub(timing.margin_us)).saturating_sub(now_us);
            return Grant { units, lifetime_us, others };
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
        Grant { units: held.granted, lifetime_us: timing.lifetime_us, others }
    }

    /// Counts from now on if the clock was later before.
    fn go_back(&mut self, moment: &Moment) {
        let now_us = moment.now_us;
        if self.at_us <= now_us {
            return;
        }
        self.at_us = now_us;
        for held in self.hosts.values_mut() {
            // All of it was given before now.
            held.until_us = held.until_us.min(now_us + moment.longest_us);
            held.seen_us = held.seen_us.min(now_us);
        }
        if let Some(Least { rate_us, burst_us, more_us, .. }) = &mut self.least {
            for said_us in [rate_us, burst_us, more_us] {
                *said_us = now_us.min(*said_us);
            }
        }
    }

    /// Whose leases have run out without a word, and when, in that order.
    fn forgotten(&self, now_us: u64) -> Vec<(u64, HostId)> {
        let mut due: Vec<(u64, HostId)> = (self.hosts.iter())
            .filter(|(_, held)| held.until_us < now_us)
            .map(|(host, held)| (held.until_us, host.clone()))
            .collect();
        due.sort_unstable();
        due
    }

    /// Takes down which limit a host has, and compares it with what others say.
    fn compare(&mut self, said: &Terms, moment: &Moment, host: &str) -> Others {
        let Moment { now_us, longest_us, .. } = *moment;
        let is_heard = |(other, held): (&HostId, &Held)| other != host && held.until_us >= now_us;
        let is_alone = !self.hosts.iter().any(is_heard);
        let is_over = |said_us: u64| is_alone || said_us + longest_us < now_us;
        let Least { mut terms, mut rate_us, mut burst_us, mut more_us } =
            self.least.unwrap_or(Least { terms: *said, rate_us: 0, burst_us: 0, more_us: 0 });
        if said.is_no_faster_than(&terms) || is_over(rate_us) {
            (terms, rate_us) = (said.with_burst(terms.burst()), now_us);
        }
        if said.burst() <= terms.burst() || is_over(burst_us) {
            (terms, burst_us) = (terms.with_burst(said.burst()), now_us);
        }
        let others = match said.is_as_fast_as(&terms) && said.burst() == terms.burst() {
            false => {
                more_us = now_us;
                Others::SayLess
            }
            true if more_us > 0 && !is_over(more_us) => Others::SayMore,
            true => Others::Agree,
        };
        self.least = Some(Least { terms, rate_us, burst_us, more_us });
        others
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
    fn write_off(&mut self, terms: &Terms, due: Vec<(u64, HostId)>) {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratelimit_common::limit::text::parse_rate;

    use super::*;
    use crate::{cluster::embedded::Embedded, policy::Reserve, store::exchange::Line};

    const SECOND: u64 = 1_000_000;
    const DAY: u64 = 86_400 * SECOND;

    fn terms(text: &str) -> Terms {
        Terms::of(&parse_rate(text).unwrap(), Reserve::new(0, 1)).unwrap()
    }

    /// A host that spends at once whatever it is given, and says so with the next letter.
    struct Greedy {
        name: &'static str,
        terms: Terms,
        entry: Entry,
        got: u64,
    }

    impl Greedy {
        fn new(name: &'static str, limit: &str) -> Self {
            Self { name, terms: terms(limit), entry: Entry { wanted: 10_000, ..Entry::default() }, got: 0 }
        }

        fn ask(&mut self, store: &mut Embedded, now_us: u64) -> Others {
            let timing = Timing::new(Duration::from_secs(1), Duration::from_millis(50));
            self.entry.sequence += 1;
            let line = Line { key: "k".into(), terms: self.terms, entry: self.entry };
            let grant = store.exchange(self.name, &timing, now_us, &[line])[0];
            self.entry.used = grant.units;
            self.got += grant.units;
            grant.others
        }
    }

    /// One or two hosts that ask every 50 ms from one moment to another, and what they were last told.
    fn flood<const N: usize>(
        store: &mut Embedded,
        hosts: &mut [Greedy; N],
        from_us: u64,
        for_s: u64,
    ) -> [Others; N] {
        let mut told = [Others::Agree; N];
        for step in 0..for_s * 20 {
            for (nth, host) in hosts.iter_mut().enumerate() {
                // One after the other, 25 ms apart.
                told[nth] = host.ask(store, from_us + step * SECOND / 20 + nth as u64 * SECOND / 40);
            }
        }
        told
    }

    fn got(hosts: &[Greedy]) -> u64 {
        hosts.iter().map(|host| host.got).sum()
    }

    #[test]
    fn of_two_limits_the_smaller_is_in_force_and_both_hosts_hear_of_it() {
        for (one, other) in
            [("2000/s burst 500", "3000/s burst 500"), ("2000/s burst 2000", "2500/s burst 500")]
        {
            let mut store = Embedded::seasoned();
            let mut hosts = [Greedy::new("a", one), Greedy::new("b", other)];
            // Before the store has heard of both, the first may have the burst of its own policy.
            flood(&mut store, &mut hosts, DAY, 1);
            let before = got(&hosts);
            let told = flood(&mut store, &mut hosts, DAY + SECOND, 10);
            let gained = got(&hosts) - before;
            assert!((19_000..=20_500).contains(&gained), "{gained} with {one} and {other}");
            // The rate of the first is in force, and in the second case the burst of the other.
            let of_first = if one.ends_with("2000") { Others::SayLess } else { Others::SayMore };
            assert_eq!(told, [of_first, Others::SayLess], "{one} {other}");
        }
    }

    #[test]
    fn a_limit_that_everybody_has_raised_is_in_force_after_a_lease_and_alone_at_once() {
        let mut store = Embedded::seasoned();
        let mut hosts = [Greedy::new("a", "1000/s burst 1000"), Greedy::new("b", "1000/s burst 1000")];
        assert_eq!(flood(&mut store, &mut hosts, DAY, 5), [Others::Agree; 2]);
        hosts.iter_mut().for_each(|host| host.terms = terms("4000/s burst 1000"));
        let told = flood(&mut store, &mut hosts, DAY + 5 * SECOND, 3);
        let before = got(&hosts);
        assert_eq!(told, [Others::Agree; 2]);
        flood(&mut store, &mut hosts, DAY + 8 * SECOND, 5);
        let gained = got(&hosts) - before;
        assert!((19_000..=21_000).contains(&gained), "{gained}");
        let mut alone = [Greedy::new("c", "1000/s burst 1000")];
        let mut store = Embedded::seasoned();
        flood(&mut store, &mut alone, DAY, 2);
        alone[0].terms = terms("4000/s burst 1000");
        let before = got(&alone);
        flood(&mut store, &mut alone, DAY + 2 * SECOND, 5);
        assert!(got(&alone) - before >= 19_000, "{}", got(&alone) - before);
    }

    #[test]
    fn a_clock_that_goes_back_starves_nobody_for_longer_than_a_lease_and_its_margin() {
        // By less than the store has been there for, and by more.
        for back in [SECOND / 2, 60 * SECOND, 3_600 * SECOND, 2 * DAY] {
            let mut store = Embedded::default();
            let mut hosts = [Greedy::new("a", "1000/s burst 200"), Greedy::new("b", "1000/s burst 200")];
            let begin = 10 * DAY;
            hosts[0].ask(&mut store, begin - DAY);
            flood(&mut store, &mut hosts, begin, 3);
            // One of them is never heard of again: what it holds is written off, not kept for as long as the clock went back.
            let [mut alone, _goes] = hosts;
            let before = alone.got;
            let from = begin + 3 * SECOND - back;
            let mut when = None;
            for step in 0..200 {
                alone.ask(&mut store, from + step * SECOND / 20);
                if alone.got > before && when.is_none() {
                    when = Some(step * 50);
                }
            }
            let starved_ms = when.expect("it gets something in ten seconds");
            assert!(starved_ms <= 1_200, "{starved_ms} ms after {back} us back");
            let gained = alone.got - before;
            assert!((8_500..=10_200).contains(&gained), "{gained} of 10000 after {back} us back");
        }
    }
}
