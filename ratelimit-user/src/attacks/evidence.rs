//! The senders of refused packets, as seen in sampled packets, or in drop events where packets could not be sampled.

use super::{
    frequent::{Frequent, FrequentTally},
    kind::{AttackKind, Senders},
    load::Volume,
    report::{AttackReport, CountedBy, Frequency},
    witness::{OriginPort, Witness},
};
use crate::{drops::Sighting, policy::Prefix, stats::ReasonCount};

/// Sources that are told apart. A flood from more sources is reported as one from at least this many.
const SOURCES: usize = 4_096;
/// Prefixes and ports that are told apart.
const OTHERS: usize = 512;
/// Samples from which a source is said to have sent most packets.
const ENOUGH: u64 = 200;
/// Rows of each list in a report.
const SHOWN: usize = 10;

/// The senders and ports of one attack, as far as they were seen.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    counted_by: CountedBy,
    samples: u64,
    /// Of the samples, those whose source was not known when they came.
    first_seen: u64,
    sources: Frequent<Prefix>,
    prefixes: Frequent<Prefix>,
    ports: Frequent<u16>,
    origins: Frequent<OriginPort>,
}

impl Evidence {
    /// Makes evidence that is counted by samples alone.
    pub(super) fn of_samples() -> Self {
        Self::new(CountedBy::Samples)
    }

    fn new(counted_by: CountedBy) -> Self {
        Self {
            counted_by,
            samples: 0,
            first_seen: 0,
            sources: Frequent::new(SOURCES),
            prefixes: Frequent::new(OTHERS),
            ports: Frequent::new(OTHERS),
            origins: Frequent::new(OTHERS),
        }
    }

    /// Reads the evidence back from a report. A new report has none; the report of an attack that the daemon before saw begin has some.
    pub(super) fn of(report: &AttackReport) -> Self {
        let mut evidence = Self::new(report.counted_by);
        evidence.samples = report.samples;
        // An attack that its report calls spoofed stays spoofed until samples say otherwise.
        let is_spoofed = report.summary.kind == AttackKind::Spoofed;
        evidence.first_seen = if is_spoofed { report.samples } else { report.sources_seen };
        for row in &report.sources {
            read(row, row.value.parse().ok(), &mut evidence.sources);
        }
        for row in &report.prefixes {
            read(row, row.value.parse().ok(), &mut evidence.prefixes);
        }
        for row in &report.ports {
            read(row, row.value.parse().ok(), &mut evidence.ports);
        }
        for row in &report.source_ports {
            read(row, OriginPort::read(&row.value), &mut evidence.origins);
        }
        evidence
    }

    /// Takes in a drop event, unless the evidence is counted by samples, which say more.
    pub(super) fn see(&mut self, sighting: &Sighting) {
        if self.counted_by == CountedBy::DropEvents {
            let once = FrequentTally { samples: 1, packets: 1, over: 0, variance: 0.0 };
            self.add(sighting.source, sighting.port, OriginPort { is_udp: false, port: 0 }, once);
        }
    }

    /// Takes in sampled packets, each of which stands for `scale` times its weight because samples were lost.
    pub(super) fn see_samples(&mut self, witnesses: &[Witness], scale: f64) {
        if witnesses.is_empty() {
            return;
        }
        if self.counted_by == CountedBy::DropEvents {
            // Drop events are not weighted, so they cannot be added to estimates from samples: the evidence begins anew.
            *self = Self::new(CountedBy::Samples);
        }
        for witness in witnesses {
            let weight = witness.weight as f64;
            let tally = FrequentTally {
                samples: 1,
                packets: (weight * scale).round() as u64,
                over: 0,
                variance: weight * (weight - 1.0) * scale * scale,
            };
            self.add(witness.source, witness.port, witness.origin, tally);
        }
    }

    fn add(&mut self, source: Prefix, port: u16, origin: OriginPort, tally: FrequentTally) {
        let around = if source.is_v4() { 24 } else { 48 };
        self.samples += tally.samples;
        self.first_seen += u64::from(self.sources.see(&source, tally));
        self.prefixes.see(&source.shortened(around.min(source.len())), tally);
        if port != 0 {
            self.ports.see(&port, tally);
        }
        if origin.port != 0 {
            self.origins.see(&origin, tally);
        }
    }

    /// Sums up how many senders there seem to be, and which source ports they use.
    pub(super) fn senders(&self) -> Senders {
        let (mut reflected, mut with_origin) = (0, 0);
        for (origin, tally) in self.origins.all() {
            with_origin += tally.packets;
            // Only packets that were surely seen count, without those that the tally took over from a rarer value.
            reflected += if origin.is_reflector() { tally.packets - tally.over } else { 0 };
        }
        let packets = self.sources.all().map(|(_, tally)| tally.packets).sum();
        let of_two = self.sources.top(2).iter().map(|(_, tally)| tally.packets - tally.over).sum();
        Senders {
            samples: self.samples,
            sources: self.sources.known(),
            packets,
            of_two,
            first_seen: self.first_seen,
            reflected,
            with_origin,
        }
    }

    /// Writes the kind of the attack and the senders that were seen into its report. A kind that is settled stays, and an unusual rate stays one until enough is
    /// refused for an attack.
    pub(super) fn conclude(&self, report: &mut AttackReport, is_settled: bool, is_refused: bool) {
        self.tell(report);
        if let Some(unusual) = &mut report.summary.unusual {
            unusual.advice = unusual.advise(&report.summary.target, self.main_source());
        }
        if report.summary.kind == AttackKind::UnusualRate && !is_refused {
            return;
        }
        let volumes = |count: &ReasonCount| {
            (count.reason.clone(), Volume { packets: count.packets, bytes: count.bytes })
        };
        let reasons = report.reasons.iter().map(volumes).collect();
        let kind = AttackKind::of(&report.summary.target, &reasons, self.senders());
        if !is_settled || kind.is_like(report.summary.kind) {
            report.summary.kind = kind;
        }
    }

    /// Returns the source that surely sent more than half of the packets, if there is one.
    fn main_source(&self) -> Option<String> {
        let all: u64 = self.sources.all().map(|(_, tally)| tally.packets).sum();
        let (source, tally) = self.sources.top(1).into_iter().next()?;
        (self.samples >= ENOUGH && (tally.packets - tally.over) * 2 > all).then(|| source.shown())
    }

    /// Writes the lists of sources, prefixes and ports into a report.
    pub(super) fn tell(&self, report: &mut AttackReport) {
        report.counted_by = self.counted_by;
        report.samples = self.samples;
        report.sources_seen = report.sources_seen.max(self.sources.known() as u64);
        report.sources = self.rows(&self.sources, Prefix::shown);
        report.prefixes = self.rows(&self.prefixes, Prefix::shown);
        report.ports = self.rows(&self.ports, u16::to_string);
        report.source_ports = self.rows(&self.origins, |origin| origin.text());
    }

    fn rows<T: Ord + std::hash::Hash + Clone>(
        &self,
        frequent: &Frequent<T>,
        text: impl Fn(&T) -> String,
    ) -> Vec<Frequency> {
        let is_estimate = self.counted_by == CountedBy::Samples;
        let row = |(value, tally): (T, FrequentTally)| Frequency {
            value: text(&value),
            // With drop events, a value counts the events that it took over from a rarer value as well.
            samples: if is_estimate { tally.samples } else { tally.packets },
            packets: is_estimate.then_some(tally.packets),
            error_packets: is_estimate.then(|| tally.error_packets()),
        };
        frequent.top(SHOWN).into_iter().map(row).collect()
    }
}

/// Takes in a row of a report. Its error is kept as the number of packets by which the tally may be too high.
fn read<T: Ord + std::hash::Hash + Clone>(row: &Frequency, value: Option<T>, frequent: &mut Frequent<T>) {
    let Some(value) = value else { return };
    let packets = row.packets.unwrap_or(row.samples);
    let over = row.error_packets.unwrap_or(0).min(packets);
    frequent.see(&value, FrequentTally { samples: row.samples, packets, over, variance: 0.0 });
}
