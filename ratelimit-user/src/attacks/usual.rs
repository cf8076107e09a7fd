//! What usually passes to a target, learned while it passes, so that an attack that no limit refuses is recognised.
//!
//! A **level** is what [`REACHED`] of the last [`LOOKS`] looks reached: spikes of seconds do not count, and pauses of seconds do not hide a flood. A level
//! is unusual above the bound, which is the largest of these:
//!
//! | | |
//! |---|---|
//! | floor | `[attacks] unusual`, 10 000 packets/s: less is never unusual, and for a target without a history nothing else counts |
//! | four times the busiest level | it rises within hours, within a day if the level is unusual, and halves in a week without such a level |
//! | half as much again as the level of this hour of an earlier day | for backups and other jobs; a level counts after a quarter of an hour |
//!
//! A young history learns and forgets faster: at most within a quarter of its age, and at least within an hour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    load::{Load, per_second},
    target::AttackTarget,
};

/// Targets that are remembered: twice as many as a policy can have.
const MOST: usize = 512;
/// The last looks, of which a level is taken.
const LOOKS: usize = 9;
/// How many of these looks must reach a level.
const REACHED: usize = 5;
/// A level is unusual if it is this many times the busiest one.
const FACTOR: f64 = 4.0;
/// A level is not unusual if it is less than this many times the one of the same hour of an earlier day.
const SAME_HOUR: f64 = 1.5;
/// The seconds of an hour: the shortest time in which a level is learned.
const HOUR: f64 = 3_600.0;
/// Seconds in which a level that is not unusual is learned.
const ORDINARY: f64 = 3.0 * HOUR;
/// Seconds in which an unusual level is learned.
const DAY: f64 = 24.0 * HOUR;
/// Seconds in which the busiest level halves if it does not come again.
const WEEK: f64 = 7.0 * DAY;
/// Seconds in which the level of an hour is learned.
const QUARTER: f64 = 900.0;
/// What is left of the level of an hour on the next day without it: half in a week.
const KEPT_BY_A_DAY: f32 = 0.906;
const HOURS: usize = 24;
/// Hours after which a level counts for an earlier day.
const APART: usize = 12;
/// Bytes of a packet that make the floor of bytes from that of packets: 100 Mbit/s from 10 000 packets/s.
const LARGE: u64 = 1_250;
/// Packets per new source that make the floor of new sources from that of packets.
const PER_SOURCE: u64 = 5;

/// What is measured of the packets that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsualMeasure {
    /// Packets per second.
    Packets,
    /// Bytes per second.
    Bytes,
    /// Sources per second that got an entry in the table; of the host alone.
    NewSources,
}

impl UsualMeasure {
    const ALL: [Self; 3] = [Self::Packets, Self::Bytes, Self::NewSources];

    fn of(self, load: &Load, span_ms: u64) -> u64 {
        let count = match self {
            Self::Packets => load.passed.packets,
            Self::Bytes => load.passed.bytes,
            Self::NewSources => load.new_sources,
        };
        per_second(count, span_ms)
    }

    fn floor(self, packets: u64) -> u64 {
        match self {
            Self::Packets => packets,
            Self::Bytes => packets.saturating_mul(LARGE),
            Self::NewSources => (packets / PER_SOURCE).max(1),
        }
    }

    /// Returns a rate as a limit is written: `10000 packets/s`, `100 Mbit/s`.
    pub(super) fn rate(self, per_second: u64) -> String {
        match self {
            Self::Packets => format!("{per_second} packets/s"),
            Self::Bytes if per_second < LARGE * 100 => {
                format!("{} kbit/s", per_second.saturating_mul(8).div_ceil(1_000))
            }
            Self::Bytes => format!("{} Mbit/s", per_second.saturating_mul(8).div_ceil(1_000_000)),
            Self::NewSources => format!("{per_second} new sources/s"),
        }
    }
}

/// How an attack differs from what usually passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusual {
    /// What is unusual.
    pub measure: UsualMeasure,
    /// The most that passed in one second.
    pub peak_per_second: u64,
    /// The busiest level that was learned before.
    pub usual_per_second: u64,
    /// The bound that it exceeded.
    pub begin_per_second: u64,
    /// Seconds for which the target had been watched.
    pub watched_seconds: u64,
    /// What can be done about it.
    pub advice: String,
}

impl Unusual {
    /// Returns what is unusual: `30010 packets/s pass, usually at most 120 packets/s`.
    pub fn words(&self) -> String {
        let verb = if self.measure == UsualMeasure::NewSources { "come" } else { "pass" };
        format!("{} {verb}, {}", self.measure.rate(self.peak_per_second), self.usually())
    }

    /// Returns what was unusual in an attack that may be over: `up to 30010 packets/s, usually at most 120 packets/s`.
    pub fn peak(&self) -> String {
        format!("up to {}, {}", self.measure.rate(self.peak_per_second), self.usually())
    }

    /// Returns what is usual: `usually at most 120 packets/s`.
    pub fn usually(&self) -> String {
        format!("usually at most {}", self.measure.rate(self.usual_per_second))
    }
}

impl Unusual {
    /// Returns what can be done about it. `source` is the one that sends most, if there is one.
    pub(super) fn advise(&self, target: &AttackTarget, source: Option<String>) -> String {
        // Below the bound, so that what passes under the total is not unusual again.
        let total = self.begin_per_second / 5 * 4;
        let total = match self.measure {
            UsualMeasure::Packets | UsualMeasure::Bytes => self.measure.rate(total),
            UsualMeasure::NewSources => UsualMeasure::Packets.rate(total.saturating_mul(PER_SOURCE)),
        };
        let table = match target {
            AttackTarget::Service(name) => format!("of [[service]] {name:?}"),
            AttackTarget::Host | AttackTarget::Api(_) => "of [host]".to_owned(),
        };
        let block = source.map_or_else(String::new, |source| {
            format!("most is from {source}: ratelimit block add {source}; ")
        });
        format!("{block}total = [\"{total}\"] {table} bounds it")
    }
}

/// What is learned of one target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Usual {
    watched_ms: u64,
    /// Hours since 1970 at the last look.
    hour: u64,
    learned: [UsualLevels; 3],
    /// The rates of the last looks, of which the level is compared.
    #[serde(skip)]
    own: LastRates,
    /// The rates of the last looks, of which the level is learned.
    #[serde(skip)]
    all: LastRates,
}

/// What is learned of each target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(AttackTarget, Usual)>", into = "Vec<(AttackTarget, Usual)>")]
pub struct UsualLoads(BTreeMap<AttackTarget, Usual>);

impl UsualLoads {
    /// Returns what is learned of a target. At most [`MOST`] are remembered: the one that was not seen for the longest time is forgotten.
    pub(super) fn of(&mut self, target: &AttackTarget) -> &mut Usual {
        if !self.0.contains_key(target) && self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(_, usual)| usual.hour).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.entry(target.clone()).or_default()
    }
}

impl From<Vec<(AttackTarget, Usual)>> for UsualLoads {
    fn from(all: Vec<(AttackTarget, Usual)>) -> Self {
        Self(all.into_iter().collect())
    }
}

impl From<UsualLoads> for Vec<(AttackTarget, Usual)> {
    fn from(all: UsualLoads) -> Self {
        all.0.into_iter().collect()
    }
}

/// What is learned of one measure of a target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct UsualLevels {
    busiest: f64,
    /// The levels of the last twelve hours, by the hour of the day.
    lately: [f32; HOURS],
    /// The levels of earlier days, by the hour of the day.
    earlier: [f32; HOURS],
}

/// Rates of the last looks.
#[derive(Clone, Debug, Default)]
struct LastRates {
    rates: [[u64; 3]; LOOKS],
    next: usize,
}

impl LastRates {
    /// Takes in the rates of a look, and returns the level of each measure; 0 before there were [`REACHED`] looks.
    fn level(&mut self, rates: [u64; 3]) -> [u64; 3] {
        self.rates[self.next] = rates;
        self.next = (self.next + 1) % LOOKS;
        [0, 1, 2].map(|which| {
            let mut largest = [0; REACHED];
            for rates in &self.rates {
                let mut rate = rates[which];
                for place in &mut largest {
                    if rate > *place {
                        std::mem::swap(place, &mut rate);
                    }
                }
            }
            largest[REACHED - 1]
        })
    }
}

/// One look at a target, compared with what is usual. The default is a look at which nothing is unusual.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsualLook {
    /// What passed in a second.
    now: [u64; 3],
    level: [u64; 3],
    usual: [u64; 3],
    bound: [u64; 3],
    watched_ms: u64,
}

impl Usual {
    /// Compares what passed to a target with what is usual, and learns from `all`: for the host this is what passed to all services.
    pub(super) fn look(&mut self, own: &Load, all: &Load, moment: (u64, u64), floor: u64) -> UsualLook {
        let (unix_ms, span_ms) = moment;
        self.watched_ms = self.watched_ms.saturating_add(span_ms);
        let hour = unix_ms / 3_600_000;
        self.go_over_to(hour);
        let at = (hour % HOURS as u64) as usize;
        let now = UsualMeasure::ALL.map(|measure| measure.of(own, span_ms));
        let level = self.own.level(now);
        let to_learn = self.all.level(UsualMeasure::ALL.map(|measure| measure.of(all, span_ms)));
        let bound = [0, 1, 2].map(|which| {
            self.learned[which].bound(at).max(UsualMeasure::ALL[which].floor(floor) as f64) as u64
        });
        let usual = [0, 1, 2].map(|which| self.learned[which].busiest as u64);
        let age = self.watched_ms as f64 / 1e3;
        for which in [0, 1, 2] {
            self.learned[which].learn(
                to_learn[which] as f64,
                bound[which] as f64,
                (age, span_ms as f64 / 1e3),
                at,
            );
        }
        UsualLook { now, level, usual, bound, watched_ms: self.watched_ms }
    }

    /// Begins the hours that have begun since the last look.
    fn go_over_to(&mut self, hour: u64) {
        let passed = hour.saturating_sub(self.hour).min(HOURS as u64);
        for begun in hour + 1 - passed..=hour {
            let at = (begun % HOURS as u64) as usize;
            self.learned.iter_mut().for_each(|levels| levels.begin_hour(at));
        }
        self.hour = hour;
    }
}

impl UsualLevels {
    fn bound(&self, hour: usize) -> f64 {
        let around = [hour + HOURS - 1, hour, hour + 1].map(|at| self.earlier[at % HOURS]);
        let same_hour = around.into_iter().fold(0.0, f32::max);
        (self.busiest * FACTOR).max(f64::from(same_hour) * SAME_HOUR)
    }

    fn learn(&mut self, level: f64, bound: f64, (age, seconds): (f64, f64), hour: usize) {
        if level > self.busiest {
            let longest = if level > bound { DAY } else { ORDINARY };
            let part = seconds / (age / 4.0).clamp(HOUR, longest);
            self.busiest += (level - self.busiest) * part.min(1.0);
        } else {
            self.busiest = level.max(self.busiest * (-seconds / age.clamp(HOUR, WEEK)).exp2());
        }
        let lately = &mut self.lately[hour];
        *lately += ((level as f32 - *lately) * (seconds / QUARTER).min(1.0) as f32).max(0.0);
    }

    /// Begins an hour. What was learned half a day ago belongs to an earlier day from now on.
    fn begin_hour(&mut self, hour: usize) {
        let past = (hour + APART) % HOURS;
        self.earlier[past] = self.lately[past].max(self.earlier[past] * KEPT_BY_A_DAY);
        self.lately[past] = 0.0;
    }
}

impl UsualLook {
    /// Whether more passed since the last look than is usual.
    pub(super) fn is_above(&self) -> bool {
        self.of_each(|which| self.now[which] > self.bound[which]).is_some()
    }

    /// Returns the measure whose level is unusual, if there is one.
    pub(super) fn unusual(&self) -> Option<UsualMeasure> {
        self.of_each(|which| self.level[which] > self.bound[which])
    }

    /// Whether an unusual attack goes on: so much passes that it would begin, or half of that if this is twice the packets that passed `before`.
    pub(super) fn holds(&self, unusual: &Unusual, before: Option<u64>) -> bool {
        let which = unusual.measure as usize;
        let before = before.filter(|_| unusual.measure == UsualMeasure::Packets);
        let is_much = self.level[which] >= before.unwrap_or(0).saturating_mul(2);
        self.unusual().is_some() || is_much && self.level[which].saturating_mul(2) >= self.bound[which]
    }

    /// Whether an attack has ended only because what passes has become usual.
    pub(super) fn is_usual_now(&self, unusual: &Unusual) -> bool {
        self.level[unusual.measure as usize] > unusual.begin_per_second
    }

    /// Returns how this look differs from what is usual, for the report of an attack before which `before` packets passed in a second.
    pub(super) fn describe(&self, measure: UsualMeasure, before: Option<u64>) -> Unusual {
        let which = measure as usize;
        let before = before.filter(|_| measure == UsualMeasure::Packets).unwrap_or(0);
        Unusual {
            measure,
            peak_per_second: self.now[which],
            usual_per_second: self.usual[which].max(before),
            begin_per_second: self.bound[which],
            watched_seconds: self.watched_ms / 1_000,
            advice: String::new(),
        }
    }

    /// Returns what passed in a second by one measure.
    pub(super) fn now(&self, measure: UsualMeasure) -> u64 {
        self.now[measure as usize]
    }

    fn of_each(&self, is_it: impl Fn(usize) -> bool) -> Option<UsualMeasure> {
        UsualMeasure::ALL.into_iter().find(|measure| is_it(*measure as usize))
    }
}

#[cfg(test)]
mod tests;
