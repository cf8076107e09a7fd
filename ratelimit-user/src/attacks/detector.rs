//! The detector of attacks. It looks at the counters once a second and decides when an attack begins and when it is over.
//!
//! | | begins | is over |
//! |---|---|---|
//! | absolute | `[attacks] begin` refused in a second, 1000 packets (100 requests of an API) | fewer than half of that |
//! | relative | and a quarter of what passed, or the attack state is `flood` | or an eighth of what passed |
//! | for | 2 looks in a row | `[attacks] end_after`, 30 s |
//!
//! An attack also begins when more passes than [is usual](super::usual) for 5 of 9 looks. It is over when less than half of that passes for `end_after`.
//!
//! Packets of blocked sources begin no attack; beyond what was blocked before, they keep one going. A target has one attack at a time, and at most
//! [`MOST`] services and APIs have one of their own: what is refused elsewhere counts for the host. Packets of clearly another kind end an attack and
//! begin the next one.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    AttackKind, AttackReport, AttackTarget, Glance, Load,
    load::per_second,
    ongoing::{Arrived, Course, Look, Ongoing, Threshold},
    usual::{UsualLoads, UsualLook},
    witness::SampledPart,
};
use crate::{drops::Sighting, policy::AttackPolicy, stats::known_packets::KnownPackets};

/// Services and APIs that have an attack of their own at a time: who hits all of them makes one attack on the host.
const MOST: usize = 16;
/// Looks in a row that begin an attack.
const LOOKS: u32 = 2;
/// About how many looks the average of a calm target covers.
const MEMORY: f64 = 60.0;
/// Calm looks that an average needs before a report shows it.
const ENOUGH: u32 = 5;
/// Drop events that are remembered for an attack that begins.
const RECENT: usize = 512;
/// Sampled packets that are remembered for an attack that begins.
const RECENT_SAMPLES: usize = 32_768;
/// The greatest age of a drop event that counts for an attack that begins, in milliseconds.
const RECENT_MS: u64 = 5_000;

/// An attack that has begun, goes on or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttackNews {
    /// An attack has begun.
    Begin(AttackReport),
    /// An attack goes on: once a minute.
    Update(AttackReport),
    /// An attack is of another kind than it seemed, or has grown tenfold.
    Change(AttackReport),
    /// An attack is over.
    End(AttackReport),
}

impl AttackNews {
    /// Returns the report of the attack.
    pub fn report(&self) -> &AttackReport {
        match self {
            Self::Begin(report) | Self::Update(report) | Self::Change(report) | Self::End(report) => report,
        }
    }
}

/// Follows the load of all targets and finds the attacks among them.
#[derive(Debug)]
pub struct Detector {
    next: u64,
    ongoing: BTreeMap<AttackTarget, Ongoing>,
    calm: BTreeMap<AttackTarget, Calm>,
    usual: UsualLoads,
    recent: VecDeque<Arc<Sighting>>,
    /// The sampled packets of the last looks, kept only while an attack is about to begin.
    recent_samples: VecDeque<SampledPart>,
}

/// A target that is not attacked.
#[derive(Debug, Default)]
struct Calm {
    looks: u32,
    /// Packets per second that passed and that were blocked, on average.
    passed: f64,
    blocked: f64,
    /// The load above the thresholds since the last calm look, if there is one.
    above: Option<Above>,
}

/// Load above the thresholds that is not called an attack yet.
#[derive(Debug, Default)]
struct Above {
    /// The load since the last calm look.
    load: Load,
    /// Packets of known clients since then that came while a total was spent.
    known: KnownPackets,
    /// The milliseconds in which this load came in.
    span_ms: u64,
    /// How many looks in a row had enough refused packets for an attack.
    refused: u32,
}

impl Detector {
    /// Makes a detector from the number of the next attack, and the attacks that went on and what was usual when the daemon before ended.
    pub fn new(next: u64, going_on: Vec<AttackReport>, usual: UsualLoads) -> Self {
        let resumed = |report: AttackReport| (report.summary.target.clone(), Ongoing::resume(report));
        Self {
            next,
            ongoing: going_on.into_iter().map(resumed).collect(),
            calm: BTreeMap::new(),
            usual,
            recent: VecDeque::new(),
            recent_samples: VecDeque::new(),
        }
    }

    /// Returns the reports of the attacks that go on.
    pub fn ongoing(&self) -> impl Iterator<Item = &AttackReport> {
        self.ongoing.values().map(|ongoing| &ongoing.report)
    }

    /// Returns what is usual for each target.
    pub fn usual(&self) -> &UsualLoads {
        &self.usual
    }

    /// Returns the number of the last attack; 0 before the first.
    pub fn last_number(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Takes in a drop event.
    pub fn see(&mut self, sighting: &Arc<Sighting>) {
        let target = self.target_of(sighting.service.as_deref());
        if let Some(ongoing) = self.ongoing.get_mut(&target) {
            ongoing.see(sighting);
        }
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(sighting));
    }

    /// Whether packets should be sampled: the host or a service is attacked, or an attack on one is about to begin.
    pub fn is_alert(&self) -> bool {
        let has_packets = |target: &AttackTarget| !matches!(target, AttackTarget::Api(_));
        self.ongoing.keys().any(has_packets) || self.is_about_to_begin()
    }

    fn is_about_to_begin(&self) -> bool {
        let is_above = |(target, calm): (&AttackTarget, &Calm)| {
            !matches!(target, AttackTarget::Api(_)) && calm.above.is_some()
        };
        self.calm.iter().any(is_above)
    }

    /// Takes in sampled packets.
    pub fn see_samples(&mut self, part: SampledPart) {
        let target = self.target_of(part.service.as_deref());
        if let Some(ongoing) = self.ongoing.get_mut(&target) {
            ongoing.see_samples(part.clone());
        }
        if !self.is_about_to_begin() {
            self.recent_samples.clear();
            return;
        }
        self.recent_samples.push_back(part);
        while self.recent_samples.iter().map(|part| part.witnesses.len()).sum::<usize>() > RECENT_SAMPLES {
            self.recent_samples.pop_front();
        }
    }

    /// Adds a change of the policy, a list or a setting to the report of every attack that goes on.
    pub fn note(&mut self, unix_ms: u64, what: &str) {
        self.ongoing.values_mut().for_each(|ongoing| ongoing.report.note(unix_ms, what));
    }

    /// Takes in one look, and returns the attacks that have begun, gone on for a minute or ended.
    pub fn observe(&mut self, glance: &Glance, policy: &AttackPolicy) -> Vec<AttackNews> {
        let mut news = Vec::new();
        self.end_without_target(&glance.loads, &mut news);
        let (mut rest, mut all) = (Load::default(), Load::default());
        for (target, load) in &glance.loads {
            if *target != AttackTarget::Host {
                self.follow(target, (load, load), glance, policy, &mut news);
            }
            if self.is_for_host(target) {
                rest.add(load);
            }
            if !matches!(target, AttackTarget::Api(_)) {
                all.add(load);
            }
        }
        if glance.loads.contains_key(&AttackTarget::Host) {
            self.follow(&AttackTarget::Host, (&rest, &all), glance, policy, &mut news);
        }
        news
    }

    /// Whether the load of a target counts for the host. The load of a service counts for the service alone once it is above the thresholds.
    fn is_for_host(&self, target: &AttackTarget) -> bool {
        match target {
            AttackTarget::Host => true,
            AttackTarget::Service(_) => {
                let is_above = self.calm.get(target).is_some_and(|calm| calm.above.is_some());
                !is_above && !self.ongoing.contains_key(target)
            }
            AttackTarget::Api(_) => false,
        }
    }

    /// Returns the target whose attack a packet for a service, or for none, counts for.
    fn target_of(&self, service: Option<&str>) -> AttackTarget {
        let own = service.map(|name| AttackTarget::Service(name.into()));
        own.filter(|target| !self.is_for_host(target)).unwrap_or(AttackTarget::Host)
    }

    /// Whether a packet for a service, or for none, counts for an attack on `target` that begins now.
    fn begins_with(&self, target: &AttackTarget, service: Option<&str>) -> bool {
        match target {
            AttackTarget::Host => self.target_of(service) == AttackTarget::Host,
            AttackTarget::Service(name) => service == Some(&**name),
            AttackTarget::Api(_) => false,
        }
    }

    /// Ends attacks on services and APIs that the policy does not have any more.
    fn end_without_target(&mut self, loads: &BTreeMap<AttackTarget, Load>, news: &mut Vec<AttackNews>) {
        self.calm.retain(|target, _| loads.contains_key(target));
        let gone: Vec<AttackTarget> =
            self.ongoing.keys().filter(|target| !loads.contains_key(target)).cloned().collect();
        for target in gone {
            if let Some(mut ongoing) = self.ongoing.remove(&target) {
                ongoing.report.close("the policy does not have its target any more");
                news.push(AttackNews::End(ongoing.report));
            }
        }
    }

    /// Follows a target. What is usual is learned from `all`, which for the host has the packets of services that are attacked by themselves, too.
    fn follow(
        &mut self,
        target: &AttackTarget,
        (load, all): (&Load, &Load),
        glance: &Glance,
        policy: &AttackPolicy,
        news: &mut Vec<AttackNews>,
    ) {
        let threshold = Threshold::of(target, policy, glance.flood);
        let usual = match target {
            AttackTarget::Api(_) => UsualLook::default(),
            AttackTarget::Host | AttackTarget::Service(_) => {
                self.usual.of(target).look(load, all, (glance.unix_ms, glance.span_ms), policy.unusual())
            }
        };
        if let Some(ongoing) = self.ongoing.get_mut(target) {
            let end_after_ms = policy.end_after_ms();
            match ongoing.follow(glance, load, usual, threshold, end_after_ms) {
                Course::Same => {}
                Course::Due => news.push(AttackNews::Update(ongoing.report.clone())),
                Course::Changed => news.push(AttackNews::Change(ongoing.report.clone())),
                Course::Over => {
                    news.extend(self.ongoing.remove(target).map(|ongoing| AttackNews::End(ongoing.report)));
                }
                Course::Another(looks) => {
                    let next = Ongoing::after(&ongoing.report, self.next, looks, threshold, end_after_ms);
                    let begun = next.report.clone();
                    let mut before = std::mem::replace(ongoing, next).report;
                    let kind = begun.summary.kind.name();
                    before.close(&format!("attack {} of another kind, {kind}, followed", self.next));
                    self.next += 1;
                    news.extend([AttackNews::End(before), AttackNews::Begin(begun)]);
                }
            }
            return;
        }
        // The bound MOST holds for services and for APIs apart: attacks on services must not hide attacks on APIs.
        let kind = std::mem::discriminant(target);
        let own = self.ongoing.keys().filter(|other| std::mem::discriminant(*other) == kind).count();
        let has_room = own < MOST;
        let calm = self.calm.entry(target.clone()).or_default();
        let is_refused = threshold.is_crossed(load, glance.span_ms);
        if !has_room || !(is_refused || usual.is_above()) {
            calm.add(load, glance.span_ms);
            return;
        }
        let mut above = calm.above.take().unwrap_or_default();
        above.load.add(load);
        above.known.add(glance.known);
        above.span_ms += glance.span_ms;
        above.refused = if is_refused { above.refused + 1 } else { 0 };
        if above.refused < LOOKS && usual.unusual().is_none() {
            calm.above = Some(above);
            return;
        }
        let Above { load: all, known, span_ms, refused } = above;
        let before = (calm.looks >= ENOUGH).then_some(calm.passed as u64);
        let blocked_before = calm.blocked;
        self.calm.remove(target);
        let mut report =
            AttackReport::new(self.next, target.clone(), glance.unix_ms.saturating_sub(span_ms), before);
        if refused < LOOKS {
            report.summary.kind = AttackKind::UnusualRate;
        }
        self.next += 1;
        let recent = self.recent.iter().filter(|sighting| sighting.unix_ms + RECENT_MS >= glance.unix_ms);
        let sightings = recent.filter(|one| self.begins_with(target, one.service.as_deref()));
        let parts = self.recent_samples.iter().filter(|one| self.begins_with(target, one.service.as_deref()));
        let parts = parts.filter(|one| !one.has_passed || usual.unusual().is_some());
        let arrived = Arrived { sightings: sightings.cloned().collect(), parts: parts.cloned().collect() };
        let look = Look { unix_ms: glance.unix_ms, span_ms, load: all, known, usual, arrived };
        let ongoing = Ongoing::begin(report, vec![look], blocked_before, threshold);
        news.push(AttackNews::Begin(ongoing.report.clone()));
        self.ongoing.insert(target.clone(), ongoing);
    }
}

impl Calm {
    fn add(&mut self, load: &Load, span_ms: u64) {
        self.above = None;
        let weight = 1.0 / f64::from(self.looks + 1).min(MEMORY);
        self.passed += (per_second(load.passed.packets, span_ms) as f64 - self.passed) * weight;
        self.blocked += (per_second(load.blocked.packets, span_ms) as f64 - self.blocked) * weight;
        self.looks = self.looks.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
