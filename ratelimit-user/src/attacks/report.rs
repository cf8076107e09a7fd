//! The report of one attack, for lists, files and webhooks.

use serde::{Deserialize, Serialize};

use super::{
    AttackKind, AttackTarget, Timeline, Unusual, Volume,
    load::{Load, per_second},
};
use crate::{
    moment,
    stats::{ReasonCount, known_packets::KnownPackets},
};

/// Changes that a report has room for.
const CHANGES: usize = 50;
/// Characters of one change that a report has room for.
const LETTERS: usize = 300;

/// One attack in a list. Of an attack on an API, packets are requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttackSummary {
    /// The number of the attack; numbers go on across restarts of the daemon.
    pub number: u64,
    /// The target of the attack.
    #[serde(flatten)]
    pub target: AttackTarget,
    /// The kind of the attack, as far as it is known by now.
    pub kind: AttackKind,
    /// When the first second above the thresholds began: UTC, RFC 3339.
    pub begin: String,
    /// When the last second above the thresholds ended; absent while the attack goes on.
    pub end: Option<String>,
    /// Seconds from begin to end, or until now.
    pub seconds: u64,
    /// Refused packets, without those of blocked sources.
    pub refused_packets: u64,
    /// Bytes of those packets.
    pub refused_bytes: u64,
    /// Most refused packets in one second, those of sources blocked since the begin included.
    pub peak_packets_per_second: u64,
    /// Most refused bytes in one second, those of sources blocked since the begin included.
    pub peak_bytes_per_second: u64,
    /// Of the refused packets, those that passed because the policy or the service is on trial.
    pub would_drop_packets: u64,
    /// Packets of known clients that came while the attack went on and a total was spent, at all services.
    #[serde(flatten)]
    pub known: KnownPackets,
    /// How the attack differs from what usually passes, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusual: Option<Unusual>,
    /// The last second of the attack.
    #[serde(flatten)]
    pub now: AttackNow,
}

/// The last second of an attack that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttackNow {
    /// Whether the attack is contained: its senders alone are refused, and no more passes than before it.
    pub contained: bool,
    /// Refused packets per second, those of sources blocked since the begin included.
    pub refused_per_second: u64,
    /// Passed packets per second.
    pub passed_per_second: u64,
}

impl AttackNow {
    /// Returns how the attack goes: `is contained: 5000 packets/s refused, 120 packets/s pass`.
    pub fn words(&self, unit: &str) -> String {
        let Self { contained, refused_per_second, passed_per_second } = self;
        let verb = if *contained { "is contained" } else { "goes on" };
        format!("{verb}: {refused_per_second} {unit}/s refused, {passed_per_second} {unit}/s pass")
    }
}

/// Everything that is known of one attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttackReport {
    /// The part of the report that lists show.
    #[serde(flatten)]
    pub summary: AttackSummary,
    /// When most packets were refused in one second.
    pub peak_at: String,
    /// Refused packets by reason.
    pub reasons: Vec<ReasonCount>,
    /// Packets of blocked sources, beyond the average before the attack.
    pub blocked_packets: u64,
    /// Packets per second that passed within every limit before the attack, on average over about a minute; absent if the daemon had not watched for long enough.
    pub passed_before_per_second: Option<u64>,
    /// Packets per second that passed within every limit during the attack, on average.
    pub passed_during_per_second: u64,
    /// Packets that passed within every limit in the worst second.
    pub passed_lowest_per_second: u64,
    /// Packets that passed within every limit during the attack.
    pub passed_packets: u64,
    /// Whether the lists below were made from samples or from drop events.
    #[serde(default)]
    pub counted_by: CountedBy,
    /// Sampled packets, or drop events, that the lists below were made of.
    pub samples: u64,
    /// Different sources among the samples, at most as many as are told apart.
    pub sources_seen: u64,
    /// Sources that were refused most often.
    pub sources: Vec<Frequency>,
    /// Prefixes (/24 and /48) that were refused most often.
    pub prefixes: Vec<Frequency>,
    /// Destination ports that were refused most often.
    pub ports: Vec<Frequency>,
    /// Source ports that were refused most often; drop events do not tell them.
    #[serde(default)]
    pub source_ports: Vec<Frequency>,
    /// Changes that operators and the daemon made during the attack.
    pub changes: Vec<Meanwhile>,
    /// Changes that found no room in the report.
    pub changes_left_out: u64,
    /// The refused and passed packets per second over the time of the attack.
    pub timeline: Timeline,
    /// How often the daemon began anew while the attack went on.
    pub restarts: u64,
    /// Why the attack is over; absent while it goes on.
    pub ended_because: Option<String>,
    /// Begin, in milliseconds since 1970.
    pub begin_unix_ms: u64,
    /// The last second above the thresholds, in milliseconds since 1970.
    pub last_unix_ms: u64,
    /// Milliseconds that the daemon watched the attack.
    pub watched_ms: u64,
}

/// Whether the lists of a report were made from samples or from drop events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedBy {
    /// Drop events: they tell which sources were seen, not how much each one sent.
    #[default]
    DropEvents,
    /// Packets that were sampled while the attack went on.
    Samples,
}

/// A source, prefix or port that occurs often among refused packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// A source, a prefix or a port.
    pub value: String,
    /// Sampled packets, or drop events.
    pub samples: u64,
    /// Refused packets, estimated from sampled ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// By how many packets the estimate may be wrong, with a probability of 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_packets: Option<u64>,
}

/// A change that was made during an attack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meanwhile {
    /// The time of the change: UTC, RFC 3339.
    pub at: String,
    /// The change, as a sentence.
    pub what: String,
}

/// The time and the blocked packets that one look adds to a report.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportStep {
    /// Now, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// Milliseconds since the look before.
    pub(super) span_ms: u64,
    /// Packets of blocked sources since the look before, beyond the average before the attack.
    pub(super) blocked: Volume,
}

impl AttackReport {
    /// Makes the report of an attack that begins at `begin_unix_ms`, with `before` packets per second passing before it.
    pub fn new(number: u64, target: AttackTarget, begin_unix_ms: u64, before: Option<u64>) -> Self {
        Self {
            summary: AttackSummary {
                number,
                target,
                kind: AttackKind::default(),
                begin: moment::utc_ms(begin_unix_ms),
                end: None,
                seconds: 0,
                refused_packets: 0,
                refused_bytes: 0,
                peak_packets_per_second: 0,
                peak_bytes_per_second: 0,
                would_drop_packets: 0,
                known: KnownPackets::default(),
                unusual: None,
                now: AttackNow::default(),
            },
            peak_at: moment::utc_ms(begin_unix_ms),
            reasons: Vec::new(),
            blocked_packets: 0,
            passed_before_per_second: before,
            passed_during_per_second: 0,
            passed_lowest_per_second: u64::MAX,
            passed_packets: 0,
            counted_by: CountedBy::default(),
            samples: 0,
            sources_seen: 0,
            sources: Vec::new(),
            prefixes: Vec::new(),
            ports: Vec::new(),
            source_ports: Vec::new(),
            changes: Vec::new(),
            changes_left_out: 0,
            timeline: Timeline::default(),
            restarts: 0,
            ended_because: None,
            begin_unix_ms,
            last_unix_ms: begin_unix_ms,
            watched_ms: 0,
        }
    }

    /// Adds the load since the look before.
    pub(super) fn add(&mut self, load: &Load, moment: ReportStep) {
        let ReportStep { unix_ms, span_ms, blocked } = moment;
        let refused = load.all_refused();
        self.summary.refused_packets += refused.packets;
        self.summary.refused_bytes += refused.bytes;
        self.summary.would_drop_packets += load.waived.packets;
        self.blocked_packets += blocked.packets;
        self.passed_packets += load.passed.packets;
        self.watched_ms += span_ms;
        for (reason, volume) in &load.refused {
            self.count(reason, *volume);
        }
        let (packets, bytes) = (refused.packets + blocked.packets, refused.bytes + blocked.bytes);
        let (refused_rate, passed_rate) =
            (per_second(packets, span_ms), per_second(load.passed.packets, span_ms));
        if refused_rate > self.summary.peak_packets_per_second {
            self.summary.peak_packets_per_second = refused_rate;
            self.peak_at = moment::utc_ms(unix_ms);
        }
        self.summary.now.refused_per_second = refused_rate;
        self.summary.now.passed_per_second = passed_rate;
        self.summary.peak_bytes_per_second =
            self.summary.peak_bytes_per_second.max(per_second(bytes, span_ms));
        self.passed_lowest_per_second = self.passed_lowest_per_second.min(passed_rate);
        self.passed_during_per_second = per_second(self.passed_packets, self.watched_ms);
        self.timeline.add(refused_rate, passed_rate);
        self.summary.seconds = unix_ms.saturating_sub(self.begin_unix_ms) / 1_000;
    }

    fn count(&mut self, reason: &str, volume: Volume) {
        match self.reasons.iter_mut().find(|count| count.reason == reason) {
            Some(count) => {
                count.packets += volume.packets;
                count.bytes += volume.bytes;
            }
            None => self.reasons.push(ReasonCount {
                reason: reason.to_owned(),
                verdict: "refused".to_owned(),
                packets: volume.packets,
                bytes: volume.bytes,
            }),
        }
        self.reasons.sort_by_key(|count| std::cmp::Reverse(count.packets));
    }

    /// Adds a change to the report.
    pub(super) fn note(&mut self, unix_ms: u64, what: &str) {
        if self.changes.len() >= CHANGES {
            self.changes_left_out += 1;
            return;
        }
        let what = what.chars().take(LETTERS).collect();
        self.changes.push(Meanwhile { at: moment::utc_ms(unix_ms), what });
    }

    /// Ends the attack with its last second above the thresholds.
    pub(super) fn close(&mut self, why: &str) {
        self.summary.end = Some(moment::utc_ms(self.last_unix_ms));
        self.summary.seconds = self.last_unix_ms.saturating_sub(self.begin_unix_ms) / 1_000;
        self.summary.now = AttackNow::default();
        self.ended_because = Some(why.to_owned());
    }

    /// Decides at the start of a daemon whether an attack goes on: if its last second above the thresholds is further back than `longest_gap_ms`, it has ended.
    pub fn found_at_start(&mut self, unix_ms: u64, longest_gap_ms: u64) {
        if self.is_over() {
            return;
        }
        self.restarts += 1;
        if unix_ms.saturating_sub(self.last_unix_ms) > longest_gap_ms {
            self.close("the daemon was away when it ended");
        }
    }

    /// Whether the attack has ended.
    pub fn is_over(&self) -> bool {
        self.summary.end.is_some()
    }

    /// Returns one sentence about the begin of the attack.
    pub fn begun(&self) -> String {
        let AttackSummary { number, target, kind, peak_packets_per_second: peak, .. } = &self.summary;
        let unit = self.unit();
        let reason = self.reasons.first().map_or("", |count| count.reason.as_str());
        let sender = match self.sources.first() {
            Some(source) if *kind == AttackKind::OneSource => format!(", from {}", source.value),
            _ => String::new(),
        };
        if let (AttackKind::UnusualRate, Some(unusual)) = (kind, &self.summary.unusual) {
            let (words, advice) = (unusual.words(), &unusual.advice);
            return format!("attack {number} began: {} on {target}, {words}; {advice}", kind.name());
        }
        let trial = if self.summary.would_drop_packets > 0 { ", on trial: not dropped" } else { "" };
        format!(
            "attack {number} began: {} on {target}, {peak} {unit}/s refused ({reason}){sender}{trial}",
            kind.name()
        )
    }

    /// Returns one sentence about the end of the attack.
    pub fn ended(&self) -> String {
        let AttackSummary {
            number,
            target,
            kind,
            seconds,
            refused_packets,
            peak_packets_per_second: peak,
            known,
            ..
        } = &self.summary;
        let (unit, why) = (self.unit(), self.ended_because.as_deref().unwrap_or_default());
        let unusual =
            self.summary.unusual.as_ref().map_or_else(String::new, |unusual| format!(", {}", unusual.peak()));
        let known = known.words().map_or_else(String::new, |words| format!("; {words}"));
        format!(
            "attack {number} ended after {seconds} s: {} on {target}{unusual}, {refused_packets} {unit} refused, peak {peak} {unit}/s; {why}{known}",
            kind.name()
        )
    }

    /// Returns one sentence about an attack that is told again, with the last entry of its changes.
    pub fn changed(&self) -> String {
        let AttackSummary { number, target, kind, .. } = &self.summary;
        let what = self.changes.last().map_or("", |change| change.what.as_str());
        format!("attack {number} changed: {} on {target}; {what}", kind.name())
    }

    /// Returns the unit of the counts: packets or requests.
    pub fn unit(&self) -> &'static str {
        self.summary.target.unit()
    }
}
