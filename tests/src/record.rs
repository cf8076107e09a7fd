//! What the store knows of one key, in memory: `store/scripts/record.lua` counts alike, number for number. Pure: time is an argument.
//!
//! The key's limits are counted by the algorithms of one host (`meter`). Hosts may hold units beforehand, as leases. Those are not charged yet,
//! but nobody else gets them:
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
//! A record of requests that the store has forgotten begins anew: each loss of its memory lets at most one more limit through.
//!
//! Of packets, what the store may have forgotten counts as spent. A store that has just been made, emptied, restarted, or has taken over from another
//! one is *cold*: for as long as leases can last that it knows nothing of, it gives out nothing new, and hosts say what they hold. And what it
//! remembers as left it takes for spent.
//!
//! Hosts may have different limits of packets in their policies, for a moment while they are changed, or by mistake. The smallest rate and the
//! smallest burst that any of them says are in force for all, until none of those that are heard of has said so for as long as a lease can last.
//!
//! The time of a record never goes back: if the store's clock does, the record goes on from its latest moment at the speed of the clock. After a small
//! step its time stands still instead until the clock is there again.

use std::collections::{BTreeMap, HashMap};

use ratelimit_user::{
    meter::{Counting as _, Meter, RequestBucket},
    policy::terms::Terms,
    store::{
        ask::{Ask, CountedLimit, Told},
        exchange::{Entry, Grant, Line, Others, Timing, margin_us},
    },
};

/// Below this part of what a key of requests may have nothing is held beforehand: near its end every request is decided by the store.
const NEAR: u64 = 4;
/// Rows that one call looks at because they are due. The others count as held until the next call.
const DUE: usize = 100;
/// By how many microseconds a clock goes back for which the time of a record stands still.
const STANDS: u64 = 100_000;
/// For so long the smaller limit that a host has told counts for all hosts.
const TOLD_US: u64 = 2_000_000;
/// More debt than this is not counted.
const MOST: u64 = (1 << 53) - 1;

/// The record of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRecord {
    /// The words of each limit.
    words: Vec<Vec<u64>>,
    /// What hosts have told of each limit.
    told: Vec<ToldLimit>,
    is_stored: bool,
    rows: BTreeMap<String, Row>,
    /// No lease ends later.
    latest_us: u64,
    time: RecordTime,
}

/// What time it is for a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RecordTime {
    /// The latest moment at which the record was written.
    seen_us: u64,
    /// By how much that was ahead of the store's clock.
    ahead_us: u64,
}

impl RecordTime {
    /// The time of the record when the store's clock shows this.
    fn at(self, clock_us: u64) -> Self {
        let now_us = clock_us + self.ahead_us;
        let behind_us = self.seen_us.saturating_sub(now_us);
        let further_us = if behind_us > STANDS { behind_us } else { 0 };
        Self { seen_us: now_us + behind_us, ahead_us: self.ahead_us + further_us }
    }
}

/// What counts of a limit that hosts have different amounts for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ToldLimit {
    amount: u64,
    /// The burst of a bucket; 0 for a window.
    burst: u64,
    /// When a host last told one of them, and which.
    told_us: u64,
    by: String,
    /// Debt beyond the burst, which counts again when the burst grows.
    beyond: u64,
}

/// What one host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    /// The number of what it last said.
    sequence: u64,
    /// Units that it may still spend.
    out: u64,
    /// When they are written off.
    until_us: u64,
    /// What it wants, as long as that counts.
    wanted: u64,
    /// What the store gave for that demand.
    granted: u64,
    /// When the row has to be looked at.
    due_us: u64,
}

/// What became of units that were to be charged.
struct Spending {
    spent: bool,
    wait_us: u64,
    slowest: usize,
    violated: u64,
    above: bool,
}

impl StoreRecord {
    /// Takes down what a host says of a key of requests and answers it. What the host wants counts for so long.
    pub fn exchange(
        &mut self,
        limits: &[CountedLimit],
        recent_us: u64,
        clock_us: u64,
        host: &str,
        ask: &Ask,
    ) -> Told {
        let time = self.time.at(clock_us);
        let now_us = time.seen_us;
        let before = (self.words.clone(), self.told.clone());
        let (limits, is_news) = &self.smallest(limits, now_us, host);
        self.words.resize(limits.len(), Vec::new());
        for (words, limit) in self.words.iter_mut().zip(limits) {
            words.resize(limit.meter.words(), 0);
        }
        let has_lapsed = self.rows.values().any(|row| row.due_us < now_us);
        for (until_us, out) in self.lapse(now_us) {
            self.charge(limits, until_us, out);
        }
        let repeated = self.repeated(host, &ask.lease);
        if repeated.is_none() {
            let used = self.report(recent_us, now_us, host, &ask.lease, ask.life_us);
            self.charge(limits, now_us, used);
        }
        let mut refunded = false;
        if ask.refund > 0 {
            for (words, limit) in self.words.iter_mut().zip(limits) {
                refunded |= limit.meter.refund(words, now_us, ask.age_us, ask.refund);
            }
        }
        let Spending { spent, wait_us, slowest, violated, above } = self.spend(limits, now_us, ask);
        let granted = match repeated {
            Some(granted) => granted,
            None => {
                let free = self.free(limits, now_us).saturating_sub(ask.reserved);
                let plenty = limits.iter().all(|limit| free >= limit.meter.capacity() / NEAR);
                self.grant(host, if plenty { free } else { 0 })
            }
        };
        let left = self.words.iter().zip(limits).map(|(words, limit)| below(limit, words, now_us));
        let (_, scarcest) = left.zip(0..).min().unwrap_or_default();
        let nearest = if wait_us > 0 { slowest } else { scarcest };
        let (free, more_us) = self.words.iter().zip(limits).nth(nearest).map_or((0, 0), |(words, limit)| {
            let free = below(limit, words, now_us).saturating_sub(self.out());
            (free, limit.meter.more(words, now_us, limit.held_back))
        });
        // A refused request leaves no trace but the limits of its host.
        let has_gone_back = time.ahead_us != self.time.ahead_us;
        let is_written = (spent && !ask.peek)
            || refunded
            || repeated.is_none()
            || has_lapsed
            || has_gone_back
            || (self.is_stored && *is_news && !ask.peek);
        self.is_stored |= is_written;
        if is_written {
            self.time = time;
        } else {
            (self.words, self.told) = before;
        }
        let spent = spent || refunded;
        let Row { out: holds, sequence: heard, .. } = self.rows.get(host).copied().unwrap_or_default();
        Told { spent, wait_us, granted, free, nearest, more_us, violated, above, holds, heard }
    }

    /// The limits that count, the smaller amount and burst for as long as another host has told them lately, and whether that is news.
    fn smallest(&mut self, limits: &[CountedLimit], now_us: u64, host: &str) -> (Vec<CountedLimit>, bool) {
        if self.told.len() != limits.len() {
            let tells = |limit: &CountedLimit| {
                let [amount, burst] = numbers(limit);
                ToldLimit { amount, burst, told_us: now_us, by: host.to_owned(), beyond: 0 }
            };
            self.told = limits.iter().map(tells).collect();
            return (limits.to_vec(), true);
        }
        let mut is_news = false;
        let mut all = limits.to_vec();
        for (nth, (limit, told)) in all.iter_mut().zip(&mut self.told).enumerate() {
            let [amount, burst] = numbers(limit);
            let is_told = [amount, burst] == [told.amount, told.burst];
            if is_told && now_us <= told.told_us + TOLD_US / 2 {
                continue;
            }
            is_news = true;
            let is_lately = told.by != host && now_us <= told.told_us + TOLD_US;
            let [a, c] = match is_lately {
                true => [amount.min(told.amount), burst.min(told.burst)],
                false => [amount, burst],
            };
            if a == amount || (burst > 0 && c == burst) {
                (told.told_us, told.by) = (now_us, host.to_owned());
            }
            if [a, c] != [told.amount, told.burst] {
                if let (Meter::Bucket(bucket), Some(words)) = (&limit.meter, self.words.get_mut(nth)) {
                    let paid = now_us.saturating_sub(words[0]).saturating_mul(told.amount);
                    let owed = words[1].saturating_sub(paid) + told.beyond;
                    *words = vec![words[0].max(now_us), owed.min(c * bucket.period_us())];
                    told.beyond = owed - words[1];
                }
                (told.amount, told.burst) = (a, c);
            }
            limit.meter = match &limit.meter {
                Meter::Bucket(bucket) => Meter::Bucket(RequestBucket::new(a, bucket.period_us(), c)),
                Meter::Fixed(fixed) => Meter::Fixed(fixed.scaled(1, 1, a)),
                Meter::Sliding(sliding) => Meter::Sliding(sliding.scaled(1, 1, a)),
                Meter::Weighted(weighted) => Meter::Weighted(weighted.scaled(1, 1, a)),
                // Conversations here have one amount for each of the others.
                other @ (Meter::Soft(_) | Meter::Log(_)) => other.clone(),
            };
        }
        (all, is_news)
    }

    /// Looks at rows that are due: what they want no longer counts, and leases that have ended are taken off. Those, in the order of their ends.
    fn lapse(&mut self, now_us: u64) -> Vec<(u64, u64)> {
        let mut due: Vec<(u64, String)> = (self.rows.iter())
            .filter(|(_, row)| row.due_us < now_us)
            .map(|(host, row)| (row.due_us, host.clone()))
            .collect();
        due.sort_unstable();
        let mut ended = Vec::new();
        for (_, host) in due.into_iter().take(DUE) {
            let Some(row) = self.rows.get_mut(&host) else { continue };
            (row.wanted, row.due_us) = (0, row.until_us);
            if row.until_us < now_us {
                ended.push((row.until_us, row.out));
                self.rows.remove(&host);
            }
        }
        if self.rows.is_empty() {
            self.latest_us = 0;
        }
        ended.sort_unstable();
        ended
    }

    /// What a host was given before, if it says the same again; nothing for what has been superseded.
    fn repeated(&self, host: &str, lease: &Entry) -> Option<u64> {
        let row = self.rows.get(host).copied().unwrap_or_default();
        (lease.sequence <= row.sequence).then_some(if lease.sequence == row.sequence {
            row.granted
        } else {
            0
        })
    }

    /// Takes down what a host has, and tells what it has used of what it had.
    fn report(&mut self, recent_us: u64, now_us: u64, host: &str, lease: &Entry, life_us: u64) -> u64 {
        let had = self.rows.get(host).map_or(0, |row| row.out);
        let until_us = now_us + life_us + margin_us(life_us);
        let row = Row {
            sequence: lease.sequence,
            out: lease.held,
            until_us,
            wanted: lease.wanted,
            granted: 0,
            due_us: if lease.wanted > 0 { until_us.min(now_us + recent_us) } else { until_us },
        };
        self.latest_us = self.latest_us.max(until_us);
        self.rows.insert(host.to_owned(), row);
        // What was used of something that has been written off is charged already.
        lease.used.min(had)
    }

    fn spend(&mut self, limits: &[CountedLimit], now_us: u64, ask: &Ask) -> Spending {
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
                violated |= 1 << nth.min(51);
            }
            let may_be_above = matches!(limit.meter, Meter::Soft(_)) || limit.margin > 0;
            above |= may_be_above && below(limit, words, now_us) < ask.spend.saturating_add(self.out());
            if wait > wait_us {
                (wait_us, slowest) = (wait, nth);
            }
        }
        let spent = ask.spend > 0 && violated == 0;
        if spent && !ask.peek {
            self.charge(limits, now_us, ask.spend);
        }
        Spending { spent, wait_us, slowest, violated, above: above && spent }
    }

    /// How long until so many units are there of a limit if nobody reports on what is held: all of it is charged when the last lease ends, at the
    /// latest.
    fn wait_for_leases(&self, words: &[u64], meter: &Meter, now_us: u64, units: u64) -> u64 {
        let (mut words, mut from_us) = (words.to_vec(), now_us);
        if self.out() > 0 {
            meter.charge(&mut words, self.latest_us, self.out());
            from_us = from_us.max(self.latest_us + 1);
        }
        (from_us - now_us).saturating_add(meter.wait(&words, from_us, units))
    }

    /// A part of what is free, by what the host wants against what all want; or what is left when all others have theirs.
    fn grant(&mut self, host: &str, free: u64) -> u64 {
        let all: u64 = self.rows.values().map(|row| row.wanted).sum();
        let Some(row) = self.rows.get_mut(host) else { return 0 };
        let (wanted, others) = (row.wanted, all - row.wanted);
        if wanted == 0 || free == 0 {
            return 0;
        }
        let share = (free as f64 * (wanted as f64 / all as f64)) as u64;
        row.granted = wanted.min(share.max(free.saturating_sub(others)).max(1)).min(free);
        row.out += row.granted;
        row.granted
    }

    fn charge(&mut self, limits: &[CountedLimit], now_us: u64, units: u64) {
        if units > 0 {
            for (words, limit) in self.words.iter_mut().zip(limits) {
                limit.meter.charge(words, now_us, units);
            }
        }
    }

    /// Units that all hosts hold.
    pub fn out(&self) -> u64 {
        self.rows.values().map(|row| row.out).sum()
    }

    fn free(&self, limits: &[CountedLimit], now_us: u64) -> u64 {
        let left = |(words, limit): (&Vec<u64>, &CountedLimit)| {
            limit.meter.left(words, now_us).saturating_sub(limit.held_back)
        };
        let least = self.words.iter().zip(limits).map(left).min();
        least.unwrap_or(0).saturating_sub(self.out())
    }
}

/// The amount of a limit, and its burst if it is a bucket.
fn numbers(limit: &CountedLimit) -> [u64; 2] {
    match (limit.meter.bucket(), &limit.meter) {
        (Some(bucket), _) => [bucket.amount(), bucket.capacity()],
        (None, meter) => [meter.capacity(), 0],
    }
}

/// What is left of a limit below its margin.
fn below(limit: &CountedLimit, words: &[u64], now_us: u64) -> u64 {
    match &limit.meter {
        Meter::Soft(soft) => soft.below(words, now_us),
        meter => meter.left(words, now_us).saturating_sub(limit.margin + limit.held_back),
    }
}

/// The record of a limit of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    record: StoreRecord,
    /// Since when the store had known everything when the record was made.
    since_us: u64,
    /// The server that has written it.
    of: u64,
    in_force: InForce,
}

/// The smallest of the limits that hosts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InForce {
    limit: RequestBucket,
    /// When a host last said this rate, and this burst.
    rate_us: u64,
    burst_us: u64,
    /// When a host last said more.
    more_us: u64,
}

/// When, and whether the store may have forgotten something.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The store's clock, in microseconds.
    now_us: u64,
    /// Since when it has known everything.
    since_us: u64,
    /// How long leases last that anybody was given.
    longest_us: u64,
    /// The server.
    of: u64,
}

fn bucket(terms: &Terms) -> RequestBucket {
    RequestBucket::new(terms.amount(), terms.period_us(), terms.burst())
}

impl PacketRecord {
    /// A limit that the store knows nothing of. Perhaps nobody has used it for long, perhaps it was forgotten: so nothing was left when the
    /// store began to know everything, and what has come in since then is there.
    fn new(moment: &Moment, said: &RequestBucket) -> Self {
        let words = vec![vec![moment.since_us, said.capacity() * said.period_us()]];
        let in_force = InForce { limit: *said, rate_us: 0, burst_us: 0, more_us: 0 };
        let record = StoreRecord { words, ..StoreRecord::default() };
        Self { record, since_us: moment.since_us, of: moment.of, in_force }
    }

    fn exchange(
        &mut self,
        said: &RequestBucket,
        timing: &Timing,
        moment: &Moment,
        host: &str,
        entry: &Entry,
    ) -> Grant {
        if self.of != moment.of {
            *self = Self::new(moment, said);
        }
        self.record.time = self.record.time.at(moment.now_us);
        let now_us = self.record.time.seen_us;
        let moment = &Moment { now_us, ..*moment };
        // There may be leases that the store does not know.
        let is_cold = self.since_us != 0 && now_us < self.since_us + moment.longest_us;
        let ended = self.record.lapse(now_us);
        let others = self.compare(said, moment, host);
        let limits = [CountedLimit::plain(Meter::Bucket(self.in_force.limit))];
        // What nobody has reported in time is spent, as it ended.
        for (until_us, out) in ended {
            self.record.charge(&limits, until_us, out);
        }
        limits[0].meter.charge(&mut self.record.words[0], now_us, 0);
        if let Some(units) = self.record.repeated(host, entry) {
            // Said before: the answer of then, or none to what has been superseded.
            let until_us = self.record.rows.get(host).map_or(0, |row| row.until_us);
            let lifetime_us = until_us.saturating_sub(timing.margin_us).saturating_sub(now_us);
            return Grant { units, lifetime_us, others, hosts: self.record.rows.len() as u64 };
        }
        let used = self.record.report(timing.recent_us, now_us, host, entry, timing.lifetime_us);
        self.record.charge(&limits, now_us, used);
        // More may be held than the record had: something was lost, and is owed until it has come in again. It may also be an old batch that comes
        // late; then the next one gives back what never was, and nothing is left of it.
        let free = if is_cold { 0 } else { self.record.free(&limits, now_us) };
        let units = self.record.grant(host, free);
        Grant { units, lifetime_us: timing.lifetime_us, others, hosts: self.record.rows.len() as u64 }
    }

    /// Takes down which limit a host has, and compares it with what others say.
    fn compare(&mut self, said: &RequestBucket, moment: &Moment, host: &str) -> Others {
        let Moment { now_us, longest_us, .. } = *moment;
        let is_alone = !self.record.rows.keys().any(|other| other != host);
        let is_over = |said_us: u64| is_alone || said_us + longest_us < now_us;
        let before = self.in_force.limit;
        let InForce { mut limit, mut rate_us, mut burst_us, mut more_us } = self.in_force;
        // In doubles, as the script does it.
        let is_no_faster = said.amount() as f64 * limit.period_us() as f64
            <= limit.amount() as f64 * said.period_us() as f64;
        if is_no_faster || is_over(rate_us) {
            limit = RequestBucket::new(said.amount(), said.period_us(), limit.capacity());
            rate_us = now_us;
        }
        if said.capacity() <= limit.capacity() || is_over(burst_us) {
            limit = RequestBucket::new(limit.amount(), limit.period_us(), said.capacity());
            burst_us = now_us;
        }
        let others = match limit == *said {
            false => {
                more_us = now_us;
                Others::SayLess
            }
            true if more_us > 0 && !is_over(more_us) => Others::SayMore,
            true => Others::Agree,
        };
        if limit != before {
            // Whole units that were left stay, as far as they fit.
            let whole = i128::from(before.capacity()) * i128::from(before.period_us());
            let left = (whole - i128::from(self.record.words[0][1])).div_euclid(before.period_us().into());
            let burst = i128::from(limit.capacity());
            let debt = (burst - left.min(burst)) * i128::from(limit.period_us());
            self.record.words[0][1] = debt.min(MOST.into()) as u64;
        }
        self.in_force = InForce { limit, rate_us, burst_us, more_us };
        others
    }

    /// Units that could be given out at the moment at which it was last written, and units that hosts hold.
    pub fn level_and_out(&self) -> (u64, u64) {
        let limits = [CountedLimit::plain(Meter::Bucket(self.in_force.limit))];
        (self.record.free(&limits, self.record.words[0][0]), self.record.out())
    }
}

/// A store in memory, of limits of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketStore {
    records: HashMap<String, PacketRecord>,
    /// How often another server has taken over.
    server: u64,
    /// Since when it has known everything; none until it is asked something.
    since_us: Option<u64>,
    /// How long leases last that anybody was given, also by whoever kept these records before.
    longest_us: u64,
}

impl PacketStore {
    /// A store that has existed for long, and has nothing to remember.
    pub fn seasoned() -> Self {
        Self { since_us: Some(0), ..Self::default() }
    }

    /// Answers a lease batch.
    pub fn exchange(&mut self, host: &str, timing: &Timing, now_us: u64, lines: &[Line]) -> Vec<Grant> {
        // The clock may have gone back behind that moment.
        let since_us = self.since_us.map_or(now_us, |since_us| since_us.min(now_us));
        self.since_us = Some(since_us);
        self.longest_us = self.longest_us.max(timing.longest_us());
        let longest_us = self.longest_us;
        let moment = Moment { now_us, since_us, longest_us, of: self.server };
        let mut answer = |line: &Line| {
            if line.entry.is_empty() && !self.records.contains_key(&line.key) {
                return Grant { units: 0, lifetime_us: timing.lifetime_us, others: Others::Agree, hosts: 0 };
            }
            let said = bucket(&line.terms);
            let fresh = || PacketRecord::new(&moment, &said);
            let record = self.records.entry(line.key.clone()).or_insert_with(fresh);
            record.exchange(&said, timing, &moment, host, &line.entry)
        };
        lines.iter().map(&mut answer).collect()
    }

    /// The records on a server that has taken over: writes before that may be missing, so it begins to know anew.
    #[must_use]
    pub fn taken_over(self) -> Self {
        Self { since_us: None, server: self.server + 1, ..self }
    }

    /// The record of a limit.
    pub fn record(&self, key: &str) -> Option<&PacketRecord> {
        self.records.get(key)
    }
}
