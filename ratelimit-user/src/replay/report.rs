//! The results of a replay for people and scripts: fields are added, never renamed.

use std::collections::BTreeMap;

use ratelimit_common::abi::{Counter, Mode, Verdict};
use serde::Serialize;

use super::{
    cause::{Cause, limit_of},
    engine::Replay,
    source_tally::{SourceCount, SourceId},
};
use crate::{moment, policy::Service};

/// Sources in the list of sources, and examples for each limit.
const LISTED_SOURCES: usize = 20;
const EXAMPLES: usize = 5;

/// What one policy did to a capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The path of the policy file.
    pub policy: String,
    /// `enforce`, or `monitor` for a policy that drops nothing.
    pub mode: &'static str,
    /// Amounts over all packets of the capture.
    pub totals: Amounts,
    /// Dropped packets by reason.
    pub drops_by_reason: BTreeMap<&'static str, u64>,
    /// What refused packets, most packets first.
    pub refusals: Vec<RefusalRow>,
    /// When the first refused packet arrived: UTC, RFC 3339.
    pub first_refused: Option<String>,
    /// When the last refused packet arrived: UTC, RFC 3339.
    pub last_refused: Option<String>,
    /// Packets over time.
    pub series: SeriesReport,
    /// The sources with the most packets.
    pub sources: Vec<SourceRow>,
    /// How many different sources the capture has.
    pub sources_seen: u64,
    /// How many sources had a refused packet.
    pub sources_refused: u64,
    /// By how many packets the numbers of a source may be too low, because there was no room for all sources.
    pub sources_missing_packets: u64,
    /// Remarks about the limits of these numbers.
    pub notes: Vec<String>,
}

/// Packets and bytes by what happened to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes of the packets that arrived.
    pub offered_bytes: u64,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Bytes of the packets that were handed on.
    pub passed_bytes: u64,
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Bytes of the packets that were dropped.
    pub dropped_bytes: u64,
    /// Packets whose sender was told that they were refused.
    pub rejected_packets: u64,
    /// Packets that passed although a limit refused them: on trial, or marked.
    pub refused_and_passed_packets: u64,
}

/// Packets that one limit refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalRow {
    /// The reason, by its name in `stats`.
    pub reason: &'static str,
    /// What happened to the packets: `dropped`, `would_drop` on trial, `marked` or `rejected`.
    pub fate: &'static str,
    /// The service that the packets were for.
    pub service: Option<String>,
    /// The limit, by its name in `ratelimit limit list`, or the key of the policy.
    pub limit: Option<String>,
    /// The rate of the limit as in the policy; several if the list has several in one meter.
    pub rates: Vec<String>,
    /// How many packets were refused.
    pub packets: u64,
    /// Bytes of the refused packets.
    pub bytes: u64,
    /// How many sources the packets came from.
    pub sources: u64,
    /// Some of these sources, most packets first.
    pub examples: Vec<String>,
}

/// Packets over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeriesReport {
    /// Seconds from one row to the next.
    pub seconds_per_row: u64,
    /// One row after the other, from the first packet on.
    pub rows: Vec<SeriesRow>,
}

/// Packets of one span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeriesRow {
    /// When the span begins: UTC, RFC 3339.
    pub at: String,
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes of the packets that arrived.
    pub offered_bytes: u64,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Bytes of the packets that were handed on.
    pub passed_bytes: u64,
    /// Packets that were refused, whatever their fate.
    pub refused_packets: u64,
}

/// The packets of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceRow {
    /// The source: an address, or the prefix of a source.
    pub source: String,
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes of the packets that arrived.
    pub offered_bytes: u64,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Packets that were not handed on.
    pub dropped_packets: u64,
    /// Packets that were refused, whatever their fate.
    pub refused_packets: u64,
    /// The service of most of the packets.
    pub service: Option<String>,
    /// The reason of most refusals.
    pub reason: Option<&'static str>,
    /// The limit of most refusals, by its name in `ratelimit limit list`.
    pub limit: Option<String>,
}

impl Replay {
    /// The report of the replay. `file` is the path of the policy file.
    pub fn report(&self, file: &str) -> ReplayReport {
        let mut totals = Amounts::default();
        let mut drops_by_reason = BTreeMap::new();
        for (cause, counter) in self.causes() {
            totals.add(cause, counter);
            if cause.verdict() == Verdict::Drop {
                *drops_by_reason.entry(cause.reason.name()).or_insert(0) += counter.packets;
            }
        }
        let moment = |ns: u64| moment::utc_ms(ns / 1_000_000);
        let sources = self.sources();
        ReplayReport {
            policy: file.to_owned(),
            mode: if self.policy().mode() == Mode::Monitor { "monitor" } else { "enforce" },
            totals,
            drops_by_reason,
            refusals: self.refusals(),
            first_refused: self.refused().map(|(first, _)| moment(first)),
            last_refused: self.refused().map(|(_, last)| moment(last)),
            series: self.series_report(),
            sources: sources.largest(LISTED_SOURCES).iter().map(|(id, count)| self.row(*id, count)).collect(),
            sources_seen: sources.seen(),
            sources_refused: sources.iter().filter(|(_, count)| count.refused_packets > 0).count() as u64,
            sources_missing_packets: sources.missing_packets(),
            notes: self.notes(),
        }
    }

    /// The source as text for people.
    pub fn shown(&self, source: SourceId) -> String {
        self.policy().source().around(source.address()).shown()
    }

    fn refusals(&self) -> Vec<RefusalRow> {
        let mut hit: BTreeMap<Cause, Vec<(u64, SourceId)>> = BTreeMap::new();
        for (source, count) in self.sources().iter() {
            for (cause, packets) in count.causes.iter().filter(|(cause, _)| cause.refuses()) {
                hit.entry(*cause).or_default().push((*packets, *source));
            }
        }
        let names = &self.desired().names.services;
        let row = |(cause, counter): (&Cause, &Counter)| {
            let mut sources = hit.remove(cause).unwrap_or_default();
            sources.sort_unstable_by_key(|(packets, source)| (u64::MAX - packets, source.address()));
            let (limit, rates) = limit_of(self.policy(), names, cause).unzip();
            RefusalRow {
                reason: cause.reason.name(),
                fate: cause.fate_name(),
                service: cause.service_name(names).map(str::to_owned),
                limit,
                rates: rates.unwrap_or_default().iter().map(ToString::to_string).collect(),
                packets: counter.packets,
                bytes: counter.bytes,
                sources: sources.len() as u64,
                examples: sources.iter().take(EXAMPLES).map(|(_, source)| self.shown(*source)).collect(),
            }
        };
        let mut rows: Vec<RefusalRow> =
            self.causes().iter().filter(|(cause, _)| cause.refuses()).map(row).collect();
        rows.sort_by_key(|row| u64::MAX - row.packets);
        rows
    }

    fn series_report(&self) -> SeriesReport {
        let (series, start_ns) = (self.series(), self.first_ns().unwrap_or(0));
        let rows = series.bins().iter().zip(0_u64..).map(|(bin, at)| SeriesRow {
            at: moment::utc_ms(start_ns / 1_000_000 + at * series.seconds_per_bin() * 1000),
            offered_packets: bin.offered_packets,
            offered_bytes: bin.offered_bytes,
            passed_packets: bin.passed_packets,
            passed_bytes: bin.passed_bytes,
            refused_packets: bin.refused_packets,
        });
        SeriesReport { seconds_per_row: series.seconds_per_bin(), rows: rows.collect() }
    }

    fn row(&self, source: SourceId, count: &SourceCount) -> SourceRow {
        let names = &self.desired().names.services;
        let service =
            count.main_cause(|_| true).and_then(|cause| cause.service_name(names).map(str::to_owned));
        let refusal = count.main_cause(Cause::refuses);
        SourceRow {
            source: self.shown(source),
            offered_packets: count.offered_packets,
            offered_bytes: count.offered_bytes,
            passed_packets: count.passed_packets,
            dropped_packets: count.offered_packets - count.passed_packets,
            refused_packets: count.refused_packets,
            service,
            reason: refusal.map(|cause| cause.reason.name()),
            limit: refusal.and_then(|cause| limit_of(self.policy(), names, &cause)).map(|(name, _)| name),
        }
    }

    /// Remarks about the limits of these numbers.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.policy().mode() == Mode::Monitor {
            notes.push(
                "the policy is on trial (mode = \"monitor\"): it drops nothing, and what it refuses passes"
                    .to_owned(),
            );
        }
        let cookies = self.policy().services().iter().filter(|service| service.syn_cookies().is_some());
        let cookies: Vec<&str> = cookies.map(Service::name).collect();
        if !cookies.is_empty() {
            notes.push(format!(
                "SYN cookies ({}) need a host's sockets, which a capture has not: SYNs were limited, and not answered",
                cookies.join(", ")
            ));
        }
        if self.unproven() > 0 {
            notes.push(format!(
                "{} refused segments of sources without a table entry would be looked up among a host's connections first, and pass if they belong to one",
                self.unproven()
            ));
        }
        if self.cut() > 0 {
            notes.push(format!(
                "{} packets end inside a header, because the capture has too little of them, and count as truncated; capture with tcpdump -s 128 or more",
                self.cut()
            ));
        }
        if self.sources().missing_packets() > 0 {
            notes.push(format!(
                "there were more sources than are told apart: the numbers of one may be too low by up to {} packets, and numbers of sources are at least",
                self.sources().missing_packets()
            ));
        }
        notes
    }
}

impl Amounts {
    fn add(&mut self, cause: &Cause, counter: &Counter) {
        let Counter { packets, bytes } = *counter;
        self.offered_packets += packets;
        self.offered_bytes += bytes;
        match cause.verdict() {
            Verdict::Pass => {
                self.passed_packets += packets;
                self.passed_bytes += bytes;
                self.refused_and_passed_packets += if cause.refuses() { packets } else { 0 };
            }
            verdict => {
                self.dropped_packets += packets;
                self.dropped_bytes += bytes;
                self.rejected_packets += if verdict == Verdict::Reply { packets } else { 0 };
            }
        }
    }
}
