//! Recognises attacks on this host, logs them, keeps their reports and tells notifiers.

pub(super) mod attack;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::state::attack_records::{AttackRecords, KEPT};
use crate::{
    attacks::{AttackNews, AttackReport, AttackSummary, Detector, Glance, SampledPart, Tallied},
    clock::Clock,
    control::protocol::{ActiveAttack, AttacksStatus},
    drops::Sighting,
    failure::{ExitCode, Failure},
    log,
    notify::{DeliveryTimes, Notifications, Post},
    policy::{Occasion, Policy},
};

/// How often what was learned of usual loads is written to disk. A daemon that is killed loses what it has learned since.
const KEEP_USUAL_EVERY: Duration = Duration::from_secs(300);
/// How often the report of an attack that goes on is written to disk. A daemon that is killed loses what it has counted since.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// An attack whose last second is longer ago than this when a daemon starts has ended.
const LONGEST_GAP: Duration = Duration::from_secs(300);
/// How long a daemon that stops waits for the disk.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Attacks that go on, and the reports of those that are over.
#[derive(Debug)]
pub(super) struct Attacks {
    detector: Detector,
    /// Reports of attacks that are over, and the last saved reports of those that go on.
    reports: BTreeMap<u64, AttackReport>,
    records: AttackRecords,
    notifications: Notifications,
    clock: Clock,
    before: Option<(Tallied, Instant)>,
    kept: Instant,
    usual_kept: Instant,
    begun: u64,
}

impl Attacks {
    /// Reads the reports that are kept in a directory. `post` sends messages of webhooks.
    pub(super) fn open(directory: &Path, policy: &Policy, post: Arc<dyn Post>) -> Result<Self, Failure> {
        let failed = |error| Failure::new(ExitCode::Unsupported, format!("cannot start a thread: {error}"));
        let mut notifications =
            Notifications::start(host_name(), DeliveryTimes::default(), post).map_err(failed)?;
        notifications.follow(policy.notifiers());
        let (records, mut reports, next) = AttackRecords::open(directory);
        let usual = records.usual();
        let clock = Clock::start();
        let now_ms = clock.now_us() / 1_000;
        let mut going_on = Vec::new();
        for report in reports.values_mut().filter(|report| !report.is_over()) {
            report.found_at_start(now_ms, LONGEST_GAP.as_millis() as u64);
            records.keep(report);
            if report.is_over() {
                log_attack("attack_end", report, &report.ended());
                notifications.tell(Occasion::End, report, now_ms);
            } else {
                log::warning(format!(
                    "attack {} was going on when the daemon before ended",
                    report.summary.number
                ));
                going_on.push(report.clone());
            }
        }
        let detector = Detector::new(next, going_on, usual);
        Ok(Self {
            detector,
            reports,
            records,
            notifications,
            clock,
            before: None,
            kept: Instant::now(),
            usual_kept: Instant::now(),
            begun: 0,
        })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_us() / 1_000
    }

    /// Takes in a drop event.
    pub(super) fn see(&mut self, sighting: &Arc<Sighting>) {
        self.detector.see(sighting);
    }

    /// Whether packets should be sampled.
    pub(super) fn is_alert(&self) -> bool {
        self.detector.is_alert()
    }

    /// Takes in sampled packets.
    pub(super) fn see_samples(&mut self, part: SampledPart) {
        self.detector.see_samples(part);
    }

    /// Adds a change to the reports of attacks that go on.
    pub(super) fn note(&mut self, what: &str) {
        self.detector.note(self.now_ms(), what);
    }

    /// Takes in the counters. Called once a second.
    pub(super) fn observe(&mut self, (tallied, read): (Tallied, Instant), flood: bool, policy: &Policy) {
        self.notifications.follow(policy.notifiers());
        let Some((before, then)) = self.before.replace((tallied, read)) else { return };
        let span_ms = read.duration_since(then).as_millis().max(1) as u64;
        let now = self.before.as_ref().map(|(tallied, _)| tallied);
        let loads = now.map(|tallied| tallied.since(&before)).unwrap_or_default();
        let known = now.map(|tallied| tallied.known_since(&before)).unwrap_or_default();
        let glance = Glance { unix_ms: self.now_ms(), span_ms, loads, known, flood };
        for news in self.detector.observe(&glance, policy.attacks()) {
            self.take_in(&news, glance.unix_ms);
        }
        let now = Instant::now();
        if now.duration_since(self.kept) >= KEEP_EVERY {
            self.keep_ongoing();
            self.kept = now;
        }
        if now.duration_since(self.usual_kept) >= KEEP_USUAL_EVERY {
            self.records.keep_usual(self.detector.usual());
            self.usual_kept = now;
        }
    }

    fn take_in(&mut self, news: &AttackNews, now_ms: u64) {
        let report = news.report();
        let occasion = match news {
            AttackNews::Begin(_) => {
                self.begun += 1;
                log_attack("attack_begin", report, &report.begun());
                Occasion::Begin
            }
            AttackNews::Update(_) => Occasion::Update,
            AttackNews::Change(_) => {
                log_attack("attack_change", report, &report.changed());
                Occasion::Change
            }
            AttackNews::End(_) => {
                log_attack("attack_end", report, &report.ended());
                Occasion::End
            }
        };
        self.notifications.tell(occasion, report, now_ms);
        self.records.keep(report);
        self.reports.insert(report.summary.number, report.clone());
        while let Some(number) = superfluous(&self.reports) {
            self.reports.remove(&number);
            self.records.remove(number);
        }
    }

    fn keep_ongoing(&mut self) {
        for report in self.detector.ongoing() {
            self.records.keep(report);
            self.reports.insert(report.summary.number, report.clone());
        }
    }

    /// Called when the daemon stops: saves the reports of attacks that go on and what was learned, so that the next daemon goes on with them.
    pub(super) fn stop(&mut self) {
        self.keep_ongoing();
        self.records.keep_usual(self.detector.usual());
        self.records.settle(LAST_WAIT);
    }

    /// Whether an attack goes on.
    pub(super) fn is_any_ongoing(&self) -> bool {
        self.detector.ongoing().next().is_some()
    }

    /// Returns all attacks, the newest first.
    pub(super) fn list(&self) -> Vec<AttackSummary> {
        let now: BTreeMap<u64, &AttackReport> =
            self.detector.ongoing().map(|report| (report.summary.number, report)).collect();
        let newest = self.reports.iter().rev();
        newest.map(|(number, kept)| now.get(number).copied().unwrap_or(kept).summary.clone()).collect()
    }

    /// Returns the report of one attack.
    pub(super) fn show(&self, number: u64) -> Result<AttackReport, Failure> {
        let ongoing = self.detector.ongoing().find(|report| report.summary.number == number);
        if let Some(report) = ongoing.or_else(|| self.reports.get(&number)) {
            return Ok(report.clone());
        }
        let known = match (self.reports.first_key_value(), self.reports.last_key_value()) {
            (Some((first, _)), Some((last, _))) if first < last => {
                format!("attacks from {first} to {last} are kept")
            }
            (Some((only, _)), _) => format!("attack {only} is kept"),
            _ => "there was none".to_owned(),
        };
        Err(Failure::new(ExitCode::Found, format!("attack {number} is not known; {known}")))
    }

    /// Returns the attacks that go on and the state of notifiers, for `status` and metrics.
    pub(super) fn status(&self) -> AttacksStatus {
        let active = |report: &AttackReport| ActiveAttack {
            number: report.summary.number,
            target: report.summary.target.clone(),
            kind: report.summary.kind,
            refused_packets: report.summary.refused_packets,
            now: report.summary.now,
            unusual: report.summary.unusual.clone(),
        };
        AttacksStatus {
            active: self.detector.ongoing().map(active).collect(),
            begun: self.begun,
            last_number: self.detector.last_number(),
            kept: self.reports.len() as u64,
            notifiers: self.notifications.status(),
        }
    }

    /// Returns a sentence if reports are not on disk, so that a restart would lose them.
    pub(super) fn not_on_disk(&self) -> Option<String> {
        self.records.problem().map(|problem| format!("reports of attacks are NOT ON DISK: {problem}"))
    }

    /// Returns sentences about notifiers that could not be told.
    pub(super) fn untold(&self) -> Vec<String> {
        self.notifications.warnings()
    }
}

/// Returns the number of the report to remove when there are too many: of the older half the one with the fewest packets, so that many small attacks do not
/// displace a large one.
fn superfluous(reports: &BTreeMap<u64, AttackReport>) -> Option<u64> {
    if reports.len() <= KEPT {
        return None;
    }
    let older = reports.values().take(KEPT / 2).filter(|report| report.is_over());
    let size = |report: &&AttackReport| {
        let passed = if report.summary.unusual.is_some() { report.passed_packets } else { 0 };
        report.summary.refused_packets.saturating_add(passed)
    };
    let least = older.min_by_key(size);
    least.or_else(|| reports.values().next()).map(|report| report.summary.number)
}

/// Logs one line for the begin, a change or the end of an attack.
fn log_attack(event: &str, report: &AttackReport, sentence: &str) {
    let AttackSummary { number, target, kind, refused_packets, peak_packets_per_second, .. } =
        &report.summary;
    tracing::warn!(
        event,
        attack = *number,
        target = target.kind(),
        name = target.name(),
        kind = kind.name(),
        refused_packets = *refused_packets,
        peak_packets_per_second = *peak_packets_per_second,
        "{sentence}"
    );
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{Counter, Reason, counter::Fate};

    use super::*;
    use crate::{
        attacks::tests::report,
        config,
        daemon::state::replacement::tests::Dir,
        notify::FromHere,
        stats::{Count, named_counters::CountedServices},
    };

    #[test]
    fn rates_are_over_the_time_between_two_readings() {
        let dir = Dir::new("attack-rates");
        let policy = config::parse("[source]\nlimits = [\"10 packets/s\"]\n", "policy.toml").unwrap().policy;
        let mut attacks = Attacks::open(&dir.0, &policy, Arc::new(FromHere)).unwrap();
        let start = Instant::now();
        for second in 0..7 {
            let counter = Counter { packets: 30_000 * second, bytes: 0 };
            let count = Count { service: 0, reason: Reason::Conforming, fate: Fate::Decided, counter };
            let tallied =
                Tallied::new(&CountedServices { counts: vec![count], ..CountedServices::default() }, &[]);
            attacks.observe((tallied, start + Duration::from_secs(second)), false, &policy);
        }
        let unusual = attacks.list()[0].unusual.clone().unwrap();
        assert_eq!(unusual.peak_per_second, 30_000, "however soon they are compared");
    }

    #[test]
    fn many_small_attacks_do_not_make_a_large_one_forgotten() {
        let mut reports: BTreeMap<u64, AttackReport> = BTreeMap::new();
        for number in 1..=1_000 {
            let mut one = report(number);
            one.summary.refused_packets = if number == 3 { 1_000_000 } else { number };
            reports.insert(number, one);
            if let Some(number) = superfluous(&reports) {
                reports.remove(&number);
            }
        }
        assert_eq!(reports.len(), KEPT);
        assert!(reports.contains_key(&3) && reports.contains_key(&1_000));
    }
}
