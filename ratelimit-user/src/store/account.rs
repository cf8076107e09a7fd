//! What the store knows of one key of requests. Pure: `scripts/take.lua` does the same, number for number.
//!
//! The key's limits are counted by the same algorithms as on one host ([`crate::meter`]). Hosts may hold units beforehand, as leases. Those
//! are not charged yet, but nobody else gets them:
//!
//! ```text
//! free  = min over all limits of what is left  -  what hosts hold
//! spend: charged now, if it is free       grant: held from now on       used: held -> charged now       given back: held -> free
//! ```
//!
//! Why that keeps every algorithm's own bound: take any interval, and the last moment `g` at which units were granted or spent that were
//! used in it. At `g`, everything used in the interval was either charged at or after its use, and not before the interval, or still held. So at
//! `g` it was all counted, and together it fitted. Units count from when they are reported on instead of from when they were used, which is
//! later: the error is on one side. A lease that nobody reports is charged when its time and a margin are over.
//!
//! A store that forgets everything begins anew: each loss of its memory lets at most one more limit through.

use std::collections::BTreeMap;

use super::exchange::{Entry, margin_us};
use crate::meter::{Meter, bit};

/// The books of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The words of each limit.
    words: Vec<Vec<u64>>,
    hosts: BTreeMap<String, Held>,
}

/// What one host holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    sequence: u64,
    out: u64,
    until_us: u64,
    wanted: u64,
    granted: u64,
    seen_us: u64,
}

/// What a host asks about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// About its lease: what it has used and holds, and would like to have. Nothing if the sequence is 0.
    pub lease: Entry,
    /// How long that lease lasts.
    pub life_us: u64,
    /// Units that are to be charged now, or not at all.
    pub spend: u64,
    /// Units that must be left after that, and are not held beforehand.
    pub reserved: u64,
    /// How long whoever spends would wait for units that are not there yet.
    pub patience_us: u64,
    /// Units that were charged and not used.
    pub refund: u64,
    /// How long ago that was; 0 is any time.
    pub age_us: u64,
    /// Whether nothing is to be charged: somebody wants to know.
    pub peek: bool,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the units were charged, or would have been; of a refund: whether anything came back.
    pub spent: bool,
    /// How long until they are there, or would be; [`crate::meter::NEVER_US`] if never.
    pub wait_us: u64,
    /// Units that may be spent beside those that are held.
    pub granted: u64,
    /// What is free after all that of the limit that is named next, and below its margin.
    pub free: u64,
    /// Which limit makes whoever asks wait longest, or has least left.
    pub nearest: usize,
    /// How long until there is more of that limit; 0 if there is everything.
    pub more_us: u64,
    /// A bit for each limit that refuses.
    pub violated: u64,
    /// Whether what was charged is above a limit, in its margin.
    pub above: bool,
    /// What the host holds by these books, and has not reported as used,
    pub holds: u64,
    /// since it was last heard, with this number.
    pub heard: u64,
}

/// One limit as the store counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The algorithm.
    pub meter: Meter,
    /// Whether requests wait in it for their turn.
    pub queue: bool,
    /// Units of a window that are above the limit itself.
    pub margin: u64,
    /// Units of a window that nobody gets at the moment.
    pub held_back: u64,
}

impl Counted {
    /// A limit without a margin, in which nobody waits.
    pub fn plain(meter: Meter) -> Self {
        Self { meter, queue: false, margin: 0, held_back: 0 }
    }

    /// What is left below the margin.
    fn below(&self, words: &[u64], now_us: u64) -> u64 {
        match &self.meter {
            Meter::Soft(soft) => soft.below(words, now_us),
            meter => meter.left(words, now_us).saturating_sub(self.margin + self.held_back),
        }
    }

    fn is_above(&self, words: &[u64], now_us: u64, units: u64) -> bool {
        let may_be = matches!(self.meter, Meter::Soft(_)) || self.margin > 0;
        may_be && self.below(words, now_us) < units
    }
}

/// What became of units that were to be charged.
struct Spent {
    spent: bool,
    wait_us: u64,
    slowest: usize,
    violated: u64,
    above: bool,
}

/// Below this part of what a key may have nothing is held beforehand: near its end every request is decided by the store.
const NEAR: u64 = 4;

impl Account {
    /// Takes down what a host says and answers it. What a host wanted is remembered for so long, when others want something.
    pub fn exchange(
        &mut self,
        limits: &[Counted],
        recent_us: u64,
        now_us: u64,
        host: &str,
        ask: &Ask,
    ) -> Told {
        self.words.resize(limits.len(), Vec::new());
        for (words, limit) in self.words.iter_mut().zip(limits) {
            words.resize(limit.meter.words(), 0);
        }
        self.write_off(limits, now_us);
        let repeated = self.report(limits, now_us, host, &ask.lease, ask.life_us);
        let mut refunded = false;
        if ask.refund > 0 {
            for (words, limit) in self.words.iter_mut().zip(limits) {
                refunded |= limit.meter.refund(words, now_us, ask.age_us, ask.refund);
            }
        }
        let Spent { spent, wait_us, slowest, violated, above } = self.spend(limits, now_us, ask);
        let granted = match repeated {
            Some(granted) => granted,
            None => self.grant(limits, recent_us, now_us, host, ask),
        };
        let below = self.words.iter().zip(limits).map(|(words, limit)| limit.below(words, now_us));
        let (_, scarcest) = below.zip(0..).min().unwrap_or_default();
        let nearest = if wait_us > 0 { slowest } else { scarcest };
        let (free, more_us) = self.words.iter().zip(limits).nth(nearest).map_or((0, 0), |(words, limit)| {
            let free = limit.below(words, now_us).saturating_sub(self.out());
            (free, limit.meter.more(words, now_us, limit.held_back))
        });
        let spent = spent || refunded;
        let Held { out: holds, sequence: heard, .. } = self.hosts.get(host).copied().unwrap_or_default();
        Told { spent, wait_us, granted, free, nearest, more_us, violated, above, holds, heard }
    }

    /// Charges leases that nobody has reported on in time, as they ran out.
    fn write_off(&mut self, limits: &[Counted], now_us: u64) {
        let mut due: Vec<(u64, u64)> = Vec::new();
        self.hosts.retain(|_, held| {
            let over = held.until_us < now_us;
            if over {
                due.push((held.until_us, held.out));
            }
            !over
        });
        due.sort_unstable();
        for (until_us, out) in due {
            self.charge(limits, until_us, out);
        }
    }

    /// Takes in what a host has used. What it was given before, if it says the same again.
    fn report(
        &mut self,
        limits: &[Counted],
        now_us: u64,
        host: &str,
        lease: &Entry,
        life_us: u64,
    ) -> Option<u64> {
        let held = self.hosts.get(host).copied().unwrap_or_default();
        if lease.sequence <= held.sequence {
            return Some(if lease.sequence == held.sequence { held.granted } else { 0 });
        }
        // What was used of something that has been written off is charged already.
        let used = lease.used.min(held.out);
        let held = Held {
            sequence: lease.sequence,
            out: lease.held,
            until_us: now_us + life_us + margin_us(life_us),
            wanted: lease.wanted,
            granted: 0,
            seen_us: now_us,
        };
        self.hosts.insert(host.to_owned(), held);
        self.charge(limits, now_us, used);
        None
    }

    fn spend(&mut self, limits: &[Counted], now_us: u64, ask: &Ask) -> Spent {
        // Only buckets hold a place for whoever waits: a window has none.
        let holds = limits.iter().all(|limit| limit.meter.bucket().is_some());
        let patience_us = if holds { ask.patience_us } else { 0 };
        let (mut wait_us, mut slowest, mut violated, mut above) = (0, 0, 0, false);
        for (nth, (words, limit)) in self.words.iter().zip(limits).enumerate() {
            let asked = ask.spend.saturating_add(ask.reserved).saturating_add(limit.held_back);
            let needed = asked.saturating_add(self.out());
            let turn_us = match limit.meter.bucket() {
                Some(bucket) if limit.queue && limit.meter.left(words, now_us) >= needed => {
                    Some(bucket.turn(words, now_us))
                }
                _ => None,
            };
            let wait = match turn_us {
                Some(turn_us) => turn_us,
                // It fits once hosts no longer hold what they hold now.
                None if needed > limit.meter.capacity() => {
                    self.wait_for_leases(words, &limit.meter, now_us, asked)
                }
                None => limit.meter.wait(words, now_us, needed),
            };
            let is_full = limit.queue && turn_us.is_none();
            if is_full || wait > patience_us {
                violated |= bit(nth);
            }
            above |= limit.is_above(words, now_us, ask.spend.saturating_add(self.out()));
            if wait > wait_us {
                (wait_us, slowest) = (wait, nth);
            }
        }
        let spent = ask.spend > 0 && violated == 0;
        if spent && !ask.peek {
            self.charge(limits, now_us, ask.spend);
        }
        Spent { spent, wait_us, slowest, violated, above: above && spent }
    }

    /// How long until so many units are there of a limit if nobody reports on what is held: all of it is charged when it runs out.
    fn wait_for_leases(&self, words: &[u64], meter: &Meter, now_us: u64, units: u64) -> u64 {
        let mut due: Vec<(u64, u64)> = self.hosts.values().map(|held| (held.until_us, held.out)).collect();
        due.sort_unstable();
        let (mut words, mut from_us) = (words.to_vec(), now_us);
        for (until_us, out) in due.into_iter().filter(|(_, out)| *out > 0) {
            meter.charge(&mut words, until_us, out);
            from_us = from_us.max(until_us + 1);
        }
        (from_us - now_us).saturating_add(meter.wait(&words, from_us, units))
    }

    /// A part of what is free, by what the host wants against what all want, while there is plenty.
    fn grant(&mut self, limits: &[Counted], recent_us: u64, now_us: u64, host: &str, ask: &Ask) -> u64 {
        let lease = &ask.lease;
        let free = self.free(limits, now_us).saturating_sub(ask.reserved);
        let plenty = limits.iter().all(|limit| free >= limit.meter.capacity() / NEAR);
        let others: u64 = (self.hosts.iter())
            .filter(|(other, held)| *other != host && held.seen_us + recent_us >= now_us)
            .map(|(_, held)| held.wanted)
            .sum();
        let Some(held) = self.hosts.get_mut(host) else { return 0 };
        if lease.wanted == 0 || free == 0 || !plenty {
            return 0;
        }
        let share = (free as f64 * (lease.wanted as f64 / (lease.wanted + others) as f64)) as u64;
        held.granted = lease.wanted.min(share.max(free.saturating_sub(others)).max(1)).min(free);
        held.out += held.granted;
        held.granted
    }

    fn charge(&mut self, limits: &[Counted], now_us: u64, units: u64) {
        if units > 0 {
            for (words, limit) in self.words.iter_mut().zip(limits) {
                limit.meter.charge(words, now_us, units);
            }
        }
    }

    /// Units that all hosts hold.
    pub fn out(&self) -> u64 {
        self.hosts.values().map(|held| held.out).sum()
    }

    fn free(&self, limits: &[Counted], now_us: u64) -> u64 {
        let left = |(words, limit): (&Vec<u64>, &Counted)| {
            limit.meter.left(words, now_us).saturating_sub(limit.held_back)
        };
        let least = self.words.iter().zip(limits).map(left).min();
        least.unwrap_or(0).saturating_sub(self.out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Fixed;

    const SECOND: u64 = 1_000_000;

    fn hundred() -> [Counted; 1] {
        [Counted::plain(Meter::Fixed(Fixed::new(100, 3_600 * SECOND)))]
    }

    fn wants(sequence: u64, wanted: u64, life_us: u64) -> Ask {
        Ask { lease: Entry { sequence, used: 0, held: 0, wanted }, life_us, ..Ask::default() }
    }

    #[test]
    fn what_must_be_left_is_not_lent() {
        let mut account = Account::default();
        let ask = Ask { reserved: 60, ..wants(1, 50, SECOND) };
        let told = account.exchange(&hundred(), SECOND, 0, "a", &ask);
        assert_eq!((told.granted, told.free), (40, 60));
        let told = account.exchange(&hundred(), SECOND, 0, "b", &ask);
        assert_eq!((told.granted, told.free), (0, 60));
    }

    #[test]
    fn each_lease_is_written_off_an_eighth_after_its_own_life() {
        let mut account = Account::default();
        let limits = hundred();
        account.exchange(&limits, SECOND, 0, "short", &wants(1, 20, 8 * SECOND));
        account.exchange(&limits, SECOND, 0, "long", &wants(1, 30, 80 * SECOND));
        let mut out_at = |now_us| {
            account.exchange(&limits, SECOND, now_us, "onlooker", &Ask::default());
            account.out()
        };
        assert_eq!([9, 10, 90, 91].map(|second| out_at(second * SECOND)), [50, 30, 30, 0]);
        let told = account.exchange(&limits, SECOND, 91 * SECOND, "onlooker", &Ask::default());
        assert_eq!(told.free, 50, "what nobody reported counts as used");
    }
}
