//! Who was seen to send what was refused, from drop events: a sample.

use super::{
    frequent::Frequent,
    kind::Senders,
    report::{AttackReport, Frequency},
};
use crate::{drops::Sighting, policy::Prefix};

/// Sources that are told apart; a flood from more looks like one from at least so many.
const SOURCES: usize = 512;
/// Prefixes and ports that are told apart.
const OTHERS: usize = 128;
/// Rows of each list in a report.
const SHOWN: usize = 10;

/// What drop events said of one attack.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    samples: u64,
    sources: Frequent<Prefix>,
    prefixes: Frequent<Prefix>,
    ports: Frequent<u16>,
}

impl Evidence {
    /// What a report says already: none for a new one, and that of the daemon before for one that goes on.
    pub(super) fn of(report: &AttackReport) -> Self {
        let mut evidence = Self {
            samples: report.samples,
            sources: Frequent::new(SOURCES),
            prefixes: Frequent::new(OTHERS),
            ports: Frequent::new(OTHERS),
        };
        let prefixes = |rows: &[Frequency], frequent: &mut Frequent<Prefix>| {
            rows.iter().for_each(|row| {
                if let Ok(prefix) = row.value.parse() {
                    frequent.see(&prefix, row.samples);
                }
            });
        };
        prefixes(&report.sources, &mut evidence.sources);
        prefixes(&report.prefixes, &mut evidence.prefixes);
        for row in &report.ports {
            if let Ok(port) = row.value.parse() {
                evidence.ports.see(&port, row.samples);
            }
        }
        evidence
    }

    /// Takes in one refused packet.
    pub(super) fn see(&mut self, sighting: &Sighting) {
        let around = if sighting.source.is_v4() { 24 } else { 48 };
        self.samples += 1;
        self.sources.see(&sighting.source, 1);
        self.prefixes.see(&sighting.source.shortened(around), 1);
        if sighting.port != 0 {
            self.ports.see(&sighting.port, 1);
        }
    }

    /// How many senders there seem to be. Source ports are not in drop events, so none is known to be reflected.
    pub(super) fn senders(&self) -> Senders {
        Senders { samples: self.samples, sources: self.sources.known(), reflected: 0 }
    }

    /// Writes what is known into a report.
    pub(super) fn tell(&self, report: &mut AttackReport) {
        let rows = |top: Vec<(String, u64)>| {
            top.into_iter().map(|(value, samples)| Frequency { value, samples }).collect()
        };
        let words = |top: Vec<(Prefix, u64)>| {
            top.into_iter().map(|(prefix, count)| (prefix.shown(), count)).collect()
        };
        report.samples = self.samples;
        report.sources_seen = report.sources_seen.max(self.sources.known() as u64);
        report.sources = rows(words(self.sources.top(SHOWN)));
        report.prefixes = rows(words(self.prefixes.top(SHOWN)));
        report.ports =
            rows(self.ports.top(SHOWN).into_iter().map(|(port, count)| (port.to_string(), count)).collect());
    }
}
