//! One attack that goes on: its report, its evidence, and whether what comes in still belongs to it.
//!
//! Looks whose packets are clearly of another kind are kept apart. After [`APART`] of them in a row they are an attack of their own; if the earlier
//! kind comes back before that, they belong to the attack that goes on.

use std::sync::Arc;

use super::{
    AttackKind, AttackReport, AttackSummary, AttackTarget, Glance, Load, SampledPart, Volume,
    evidence::Evidence,
    load::per_second,
    report::ReportStep,
    usual::{UsualLook, UsualMeasure},
};
use crate::{drops::Sighting, policy::AttackPolicy, stats::known_packets::KnownPackets};

/// Milliseconds between two updates about one attack.
const UPDATE_MS: u64 = 60_000;
/// Milliseconds after which the kind of an attack is settled.
const SETTLED_MS: u64 = 10_000;
/// Looks of another kind in a row that are another attack.
const APART: usize = 5;
/// Looks in a row in which an attack must have been held before it is called contained.
const HELD: u32 = 3;
/// An attack that grows by this factor is told again.
const GROWTH: u64 = 10;
/// Drop events and sampled packets of one look that are taken in.
const ROOM: usize = 32_768;

/// The thresholds of one target that its load is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    per_second: u64,
    flood: bool,
}

impl Threshold {
    pub(super) fn of(target: &AttackTarget, policy: &AttackPolicy, flood: bool) -> Self {
        match target {
            AttackTarget::Api(_) => Self { per_second: policy.begin_requests(), flood: false },
            AttackTarget::Host | AttackTarget::Service(_) => Self { per_second: policy.begin(), flood },
        }
    }

    pub(super) fn is_crossed(self, load: &Load, span_ms: u64) -> bool {
        let refused = load.all_refused().packets;
        let is_large_part = self.flood || refused.saturating_mul(4) >= load.passed.packets;
        per_second(refused, span_ms) >= self.per_second && is_large_part
    }

    /// Whether an attack goes on: half of the refused packets per second that begin an attack keep it going.
    fn holds(self, refused: u64, passed: u64, span_ms: u64) -> bool {
        let is_large_part = self.flood || refused.saturating_mul(8) >= passed;
        per_second(refused, span_ms).saturating_mul(2) >= self.per_second && is_large_part
    }
}

/// An attack that goes on.
#[derive(Debug)]
pub(super) struct Ongoing {
    pub(super) report: AttackReport,
    evidence: Evidence,
    calm_ms: u64,
    since_update_ms: u64,
    /// Packets per second of blocked sources before the attack.
    blocked_before: f64,
    /// Milliseconds after which looks of another kind may become an attack of their own.
    settles_ms: u64,
    is_settled: bool,
    held: u32,
    told: Announced,
    arrived: Arrived,
    /// The last looks, if they were of another kind.
    apart: Vec<Look>,
}

/// What notifiers were told of an attack.
#[derive(Clone, Copy, Debug)]
struct Announced {
    kind: AttackKind,
    /// Most refused packets per second.
    refused: u64,
    /// What was unusual, and its peak.
    unusual: Option<(UsualMeasure, u64)>,
}

/// Packets of the attack that were seen since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    pub(super) sightings: Vec<Arc<Sighting>>,
    pub(super) parts: Vec<SampledPart>,
}

/// One look at the counters of the target of an attack.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Now, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Milliseconds since the look before.
    pub(super) span_ms: u64,
    pub(super) load: Load,
    /// Packets of known clients since then that came while a total was spent, at all targets together.
    pub(super) known: KnownPackets,
    /// The comparison with what is usual.
    pub(super) usual: UsualLook,
    pub(super) arrived: Arrived,
}

/// The result of one look.
#[derive(Debug)]
pub(super) enum Course {
    /// Nothing to tell.
    Same,
    /// The attack has gone on for another minute.
    Due,
    /// The attack is of another kind than it seemed, or has grown tenfold.
    Changed,
    /// The attack is over.
    Over,
    /// These looks belong to an attack of another kind.
    Another(Vec<Look>),
}

impl Ongoing {
    /// Makes an attack that begins with these looks. `blocked_before` are the packets per second of blocked sources before it.
    pub(super) fn begin(
        report: AttackReport,
        looks: Vec<Look>,
        blocked_before: f64,
        threshold: Threshold,
    ) -> Self {
        let mut ongoing = Self::of(report, blocked_before);
        looks.into_iter().for_each(|look| ongoing.absorb(look, threshold));
        ongoing.since_update_ms = ongoing.report.watched_ms;
        ongoing.told = Announced::of(&ongoing.report);
        ongoing
    }

    /// Makes the attack that follows an attack of another kind. It has to last for `settles_ms` before it can be followed by yet another one.
    pub(super) fn after(
        before: &AttackReport,
        number: u64,
        looks: Vec<Look>,
        threshold: Threshold,
        settles_ms: u64,
    ) -> Self {
        let (mut blocked, mut span_ms) = (0, 0);
        for look in &looks {
            blocked += look.load.blocked.packets;
            span_ms += look.span_ms;
        }
        let begin_unix_ms =
            looks.first().map_or(before.last_unix_ms, |look| look.unix_ms.saturating_sub(look.span_ms));
        let target = before.summary.target.clone();
        let report = AttackReport::new(number, target, begin_unix_ms, before.passed_before_per_second);
        let settles_ms = settles_ms.max(SETTLED_MS);
        Self { settles_ms, ..Self::begin(report, looks, per_second(blocked, span_ms) as f64, threshold) }
    }

    /// Goes on with an attack that the daemon before saw begin.
    pub(super) fn resume(report: AttackReport) -> Self {
        // How much was blocked before the attack is not in the report: none of it counts, or an attack might never end.
        Self::of(report, f64::INFINITY)
    }

    fn of(report: AttackReport, blocked_before: f64) -> Self {
        Self {
            evidence: Evidence::of(&report),
            told: Announced::of(&report),
            is_settled: report.watched_ms >= SETTLED_MS,
            report,
            calm_ms: 0,
            since_update_ms: 0,
            blocked_before,
            settles_ms: SETTLED_MS,
            held: 0,
            arrived: Arrived::default(),
            apart: Vec::new(),
        }
    }

    /// Takes in a drop event.
    pub(super) fn see(&mut self, sighting: &Arc<Sighting>) {
        if self.arrived.sightings.len() < ROOM {
            self.arrived.sightings.push(Arc::clone(sighting));
        }
    }

    /// Takes in sampled packets. Those that passed count if more passes than usual.
    pub(super) fn see_samples(&mut self, part: SampledPart) {
        if part.has_passed && self.report.summary.unusual.is_none() {
            return;
        }
        if self.arrived.parts.iter().map(|part| part.witnesses.len()).sum::<usize>() < ROOM {
            self.arrived.parts.push(part);
        }
    }

    /// Takes in one look.
    pub(super) fn follow(
        &mut self,
        glance: &Glance,
        load: &Load,
        usual: UsualLook,
        threshold: Threshold,
        end_after_ms: u64,
    ) -> Course {
        let arrived = std::mem::take(&mut self.arrived);
        let Glance { unix_ms, span_ms, known, .. } = *glance;
        let look = Look { unix_ms, span_ms, load: load.clone(), known, usual, arrived };
        self.since_update_ms += span_ms;
        if self.is_of_another_kind(&look, threshold) {
            self.apart.push(look);
            if self.apart.len() >= APART {
                return Course::Another(std::mem::take(&mut self.apart));
            }
            return Course::Same;
        }
        for look in std::mem::take(&mut self.apart).into_iter().chain([look]) {
            self.absorb(look, threshold);
        }
        if self.calm_ms >= end_after_ms {
            let is_usual =
                self.report.summary.unusual.as_ref().is_some_and(|unusual| usual.is_usual_now(unusual));
            let calm = format!("calm for {} s", end_after_ms / 1_000);
            self.report.close(if is_usual {
                "it has lasted so long that so much is usual now"
            } else {
                &calm
            });
            return Course::Over;
        }
        if self.note_change(unix_ms, threshold) {
            self.since_update_ms = 0;
            return Course::Changed;
        }
        if self.since_update_ms >= UPDATE_MS {
            self.since_update_ms = 0;
            return Course::Due;
        }
        Course::Same
    }

    /// Whether a look is large enough for an attack, and clearly of another kind than this one.
    fn is_of_another_kind(&self, look: &Look, threshold: Threshold) -> bool {
        let is_steady = self.report.watched_ms >= self.settles_ms;
        if !is_steady || !threshold.is_crossed(&look.load, look.span_ms) {
            return false;
        }
        let mut evidence = Evidence::of_samples();
        let refused = look.arrived.parts.iter().filter(|part| !part.has_passed);
        refused.for_each(|part| evidence.see_samples(&part.witnesses, part.scale));
        self.report.summary.kind.is_followed_by_another(&look.load.refused, evidence.senders())
    }

    /// Notes what changed, and returns whether notifiers should be told again: the kind has turned out to be another one, the attack has grown tenfold, or more passes than usual.
    fn note_change(&mut self, unix_ms: u64, threshold: Threshold) -> bool {
        let (now, told) = (Announced::of(&self.report), self.told);
        let settles_now = !self.is_settled && self.report.watched_ms >= SETTLED_MS;
        self.is_settled |= settles_now;
        let is_open = settles_now || told.kind == AttackKind::UnusualRate;
        let mut news = Vec::new();
        if is_open && now.kind != told.kind {
            news.push(format!("the attack is {}, not {}", now.kind.name(), told.kind.name()));
        }
        let has_refusals = told.kind != AttackKind::UnusualRate;
        if has_refusals && now.refused >= told.refused.max(threshold.per_second).saturating_mul(GROWTH) {
            let unit = self.report.unit();
            news.push(format!("the attack grew from {} to {} {unit}/s refused", told.refused, now.refused));
        }
        if let (Some((measure, peak)), Some(unusual)) = (now.unusual, &self.report.summary.unusual) {
            match told.unusual {
                None => news.push(unusual.words()),
                Some((_, before)) if peak >= before.max(1).saturating_mul(GROWTH) => {
                    let (before, peak) = (measure.rate(before), measure.rate(peak));
                    news.push(format!("the attack grew from {before} to {peak} that pass"));
                }
                Some(_) => {}
            }
        }
        news.iter().for_each(|what| self.report.note(unix_ms, what));
        if !news.is_empty() {
            self.told = now;
        }
        !news.is_empty()
    }

    fn absorb(&mut self, look: Look, threshold: Threshold) {
        let Look { unix_ms, span_ms, load, known, usual, arrived } = look;
        arrived.sightings.iter().for_each(|sighting| self.evidence.see(sighting));
        arrived.parts.iter().for_each(|part| self.evidence.see_samples(&part.witnesses, part.scale));
        let blocked_before = (self.blocked_before * span_ms as f64 / 1_000.0) as u64;
        let packets = load.blocked.packets.saturating_sub(blocked_before);
        let bytes = load.blocked.bytes.checked_div(load.blocked.packets).unwrap_or(0) * packets;
        self.report.add(&load, ReportStep { unix_ms, span_ms, blocked: Volume { packets, bytes } });
        if !matches!(self.report.summary.target, AttackTarget::Api(_)) {
            self.report.summary.known.add(known);
        }
        self.compare(usual);
        let is_refused = threshold.is_crossed(&load, span_ms);
        self.evidence.conclude(&mut self.report, self.is_settled, is_refused);
        let refused = load.all_refused().packets + packets;
        if threshold.holds(refused, load.passed.packets, span_ms) || self.is_unusual(usual) {
            self.calm_ms = 0;
            self.report.last_unix_ms = unix_ms;
        } else {
            self.calm_ms += span_ms;
        }
        let is_held = self.is_held(&load, span_ms, threshold);
        self.held = if is_held { self.held + 1 } else { 0 };
        self.report.summary.now.contained = self.held >= HELD;
    }

    /// Whether more than usual still passes.
    fn is_unusual(&self, usual: UsualLook) -> bool {
        let AttackReport { summary, passed_before_per_second: before, .. } = &self.report;
        summary.unusual.as_ref().is_some_and(|unusual| usual.holds(unusual, *before))
    }

    /// Writes into the report how one look differs from what is usual.
    fn compare(&mut self, usual: UsualLook) {
        match (&mut self.report.summary.unusual, usual.unusual()) {
            (Some(unusual), _) => {
                unusual.peak_per_second = unusual.peak_per_second.max(usual.now(unusual.measure));
            }
            (none, Some(measure)) => {
                *none = Some(usual.describe(measure, self.report.passed_before_per_second));
            }
            (None, None) => {}
        }
    }

    /// Whether the limits hold this attack off: what is refused is refused to its senders alone, and no more passes than usual.
    fn is_held(&self, load: &Load, span_ms: u64, threshold: Threshold) -> bool {
        let usual = self.report.passed_before_per_second.unwrap_or(0).saturating_mul(2);
        load.waived.packets == 0
            && per_second(load.refused_to_all().packets, span_ms).saturating_mul(2) < threshold.per_second
            && per_second(load.passed.packets, span_ms) <= usual.max(threshold.per_second)
    }
}

impl Announced {
    fn of(report: &AttackReport) -> Self {
        let AttackSummary { kind, peak_packets_per_second: refused, unusual, .. } = &report.summary;
        let unusual = unusual.as_ref().map(|unusual| (unusual.measure, unusual.peak_per_second));
        Self { kind: *kind, refused: *refused, unusual }
    }
}
