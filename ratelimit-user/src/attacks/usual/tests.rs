use super::*;
use crate::{
    attacks::{AttackKind, AttackNews, Detector, Glance, OriginPort, SampledPart, Volume, Witness},
    policy::AttackPolicy,
    stats::known_packets::KnownPackets,
};

const HOST: AttackTarget = AttackTarget::Host;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;

impl UsualLoads {
    /// Takes in a minute in which this many packets per second passed to a service.
    pub(crate) fn see_for_a_minute(&mut self, service: &str, packets: u64) {
        let load = passing(packets, 100);
        let usual = self.of(&AttackTarget::Service(service.to_owned()));
        for second in 0..60 {
            let _ = usual.look(&load, &load, (second * 1_000, 1_000), 10_000);
        }
    }
}

fn dns() -> AttackTarget {
    AttackTarget::Service("dns".to_owned())
}

fn passing(packets: u64, size: u64) -> Load {
    Load { passed: Volume { packets, bytes: packets * size }, ..Load::default() }
}

fn refusing(passed: u64, refused: u64) -> Load {
    let mut load = passing(passed, 100);
    load.refused.insert("limit_packets", Volume { packets: refused, bytes: refused * 100 });
    load
}

/// A detector, and a clock that the test moves.
struct Day {
    detector: Detector,
    policy: AttackPolicy,
    unix_ms: u64,
}

impl Day {
    /// Begins at midnight.
    fn new() -> Self {
        let detector = Detector::new(1, Vec::new(), UsualLoads::default());
        Self { detector, policy: AttackPolicy::default(), unix_ms: 20_000 * DAY_S * 1_000 }
    }

    fn second(&mut self, loads: &[(AttackTarget, Load)]) -> Vec<AttackNews> {
        let mut all = BTreeMap::from([(HOST, Load::default()), (dns(), Load::default())]);
        all.extend(loads.iter().cloned());
        self.look(1_000, all)
    }

    fn look(&mut self, span_ms: u64, loads: BTreeMap<AttackTarget, Load>) -> Vec<AttackNews> {
        self.unix_ms += span_ms;
        let glance =
            Glance { unix_ms: self.unix_ms, span_ms, loads, known: KnownPackets::default(), flood: false };
        let mut news = self.detector.observe(&glance, &self.policy);
        news.retain(|one| !matches!(one, AttackNews::Update(_)));
        news
    }

    /// Seconds in which as many packets of 100 bytes pass to the host. From an hour on, a look is ten seconds.
    fn pass(&mut self, seconds: u64, packets: u64) -> Vec<AttackNews> {
        let each = if seconds >= HOUR_S { 10 } else { 1 };
        let load = passing(packets * each, 100);
        let looks = 0..seconds / each;
        looks.flat_map(|_| self.look(each * 1_000, BTreeMap::from([(HOST, load.clone())]))).collect()
    }

    fn restart(&mut self) {
        let kept = serde_json::to_string(self.detector.usual()).unwrap();
        let going_on = self.detector.ongoing().cloned().collect();
        let next = self.detector.last_number() + 1;
        self.detector = Detector::new(next, going_on, serde_json::from_str(&kept).unwrap());
    }
}

fn words(news: &[AttackNews]) -> Vec<String> {
    let word = |one: &AttackNews| match one {
        AttackNews::Begin(report) => format!("begin {}", report.summary.number),
        AttackNews::Update(report) => format!("update {}", report.summary.number),
        AttackNews::Change(report) => format!("change {}", report.summary.number),
        AttackNews::End(report) => format!("end {}", report.summary.number),
    };
    news.iter().map(word).collect()
}

#[test]
fn an_unrefused_flood_on_a_cold_host_is_an_attack() {
    let mut day = Day::new();
    assert!(day.pass(20, 120).is_empty());
    assert!(day.pass(4, 30_000).is_empty(), "four seconds may be a spike");
    let news = day.pass(1, 30_000);
    assert_eq!(words(&news), ["begin 1"]);
    let report = news[0].report();
    assert_eq!(
        report.begun(),
        "attack 1 began: unusual_rate on the host, 30000 packets/s pass, usually at most 120 packets/s; \
         total = [\"8000 packets/s\"] of [host] bounds it"
    );
    assert_eq!((report.begin_unix_ms, report.passed_packets), (day.unix_ms - 5_000, 150_000));
    assert!(!report.summary.now.contained && day.pass(600, 30_000).is_empty());
    assert_eq!(words(&day.pass(40, 120)), ["end 1"]);
}

#[test]
fn short_spikes_are_ordinary_and_short_pauses_hide_nothing() {
    let mut day = Day::new();
    day.pass(60, 120);
    for _ in 0..20 {
        assert!(day.pass(4, 500_000).is_empty() && day.pass(5, 120).is_empty());
    }
    assert!((0..3).any(|_| !day.pass(4, 30_000).is_empty() || !day.pass(1, 120).is_empty()));
}

#[test]
fn less_than_the_floor_is_never_unusual() {
    let mut day = Day::new();
    assert!(day.pass(600, 10).is_empty() && day.pass(HOUR_S, 10_000).is_empty());
    day.policy = day.policy.with_unusual("200 packets/s").unwrap();
    let mut other = Day { policy: day.policy, ..Day::new() };
    other.pass(600, 10);
    assert_eq!(words(&other.pass(60, 201)), ["begin 1"]);
}

#[test]
fn four_times_what_is_usual_is_the_bound() {
    let mut day = Day::new();
    day.pass(8 * HOUR_S, 9_000);
    let busiest = day.detector.usual().0[&HOST].learned[0].busiest;
    assert!((8_000.0..=9_000.0).contains(&busiest), "{busiest}");
    let bound = (busiest * FACTOR) as u64;
    assert!(day.pass(10, bound - 500).is_empty());
    assert_eq!(words(&day.pass(10, bound + 500)), ["begin 1"]);
}

#[test]
fn large_packets_and_new_sources_are_unusual_too() {
    let mut day = Day::new();
    day.pass(600, 500);
    let news: Vec<_> = (0..5).flat_map(|_| day.second(&[(HOST, passing(9_500, 1_400))])).collect();
    let report = news[0].report();
    assert!(report.begun().contains("107 Mbit/s pass, usually at most "), "{}", report.begun());
    assert!(report.begun().ends_with("total = [\"80 Mbit/s\"] of [host] bounds it"), "{}", report.begun());
    let mut day = Day::new();
    day.pass(600, 500);
    let newcomers = Load { new_sources: 3_000, ..passing(6_000, 100) };
    let news: Vec<_> = (0..5).flat_map(|_| day.second(&[(HOST, newcomers.clone())])).collect();
    assert!(news[0].report().begun().contains("3000 new sources/s come, "), "{}", news[0].report().begun());
}

#[test]
fn the_source_that_sends_most_is_named() {
    let mut day = Day::new();
    day.pass(60, 120);
    let witness = |last: u64| Witness {
        source: format!("198.51.100.{}", if last.is_multiple_of(3) { last % 100 } else { 200 })
            .parse()
            .unwrap(),
        port: 53,
        origin: OriginPort { is_udp: true, port: 40_000 },
        weight: 10,
    };
    let part = SampledPart {
        service: None,
        has_passed: true,
        witnesses: (0..600).map(witness).collect(),
        scale: 1.0,
    };
    day.pass(1, 30_000);
    assert!(day.detector.is_alert());
    day.detector.see_samples(part);
    let news = day.pass(4, 30_000);
    let report = news[0].report();
    assert_eq!((report.sources[0].value.as_str(), report.ports[0].value.as_str()), ("198.51.100.200", "53"));
    assert!(report.begun().contains("most is from 198.51.100.200: ratelimit block add 198.51.100.200; "));
}

#[test]
fn a_refused_attack_does_not_hide_an_unusual_one() {
    let mut day = Day::new();
    day.pass(600, 200);
    let mut news = Vec::new();
    (0..60).for_each(|_| news.extend(day.second(&[(HOST, refusing(200, 1_500))])));
    assert_eq!(words(&news), ["begin 1"]);
    let masked: Vec<_> = (0..20).flat_map(|_| day.second(&[(HOST, refusing(30_000, 1_500))])).collect();
    assert_eq!(words(&masked), ["change 1"]);
    let report = masked[0].report();
    assert!(
        report.changed().ends_with("; 30000 packets/s pass, usually at most 200 packets/s"),
        "{}",
        report.changed()
    );
}

#[test]
fn an_unusual_rate_that_limits_refuse_becomes_another_kind() {
    let mut day = Day::new();
    day.pass(600, 200);
    assert_eq!(words(&day.pass(60, 30_000)), ["begin 1"]);
    let news: Vec<_> = (0..20).flat_map(|_| day.second(&[(HOST, refusing(10_000, 20_000))])).collect();
    assert_eq!(words(&news), ["change 1"]);
    assert_eq!(news[0].report().changes[0].what, "the attack is many_sources, not unusual_rate");
    assert_eq!(words(&day.pass(60, 200)), ["end 1"]);
}

#[test]
fn an_attack_is_not_learned_within_hours() {
    let mut day = Day::new();
    day.pass(4 * DAY_S, 200);
    assert_eq!(words(&day.pass(4 * HOUR_S, 30_000)), ["begin 1"], "it goes on");
    assert_eq!(words(&day.pass(HOUR_S, 200)), ["end 1"]);
    assert_eq!(words(&day.pass(60, 30_000)), ["begin 2"], "and is told again");
    let lasts = day.pass(2 * DAY_S, 30_000);
    assert_eq!(words(&lasts), ["end 2"]);
    let report = lasts[0].report();
    assert_eq!(report.ended_because.as_deref(), Some("it has lasted so long that so much is usual now"));
    assert!((3..=8).contains(&(report.summary.seconds / HOUR_S)), "{} s", report.summary.seconds);
}

#[test]
fn a_busy_host_is_told_of_once_at_first() {
    let mut day = Day::new();
    let news = day.pass(DAY_S, 1_000_000);
    assert_eq!(words(&news), ["begin 1", "end 1"]);
    let lasted = news[1].report().summary.seconds;
    assert!((1_800..=HOUR_S).contains(&lasted), "{lasted} s");
}

#[test]
fn a_job_of_every_night_is_told_of_once() {
    let mut day = Day::new();
    let job = |day: &mut Day| {
        day.pass(2 * HOUR_S, 300);
        words(&day.pass(40 * 60, 60_000))
    };
    day.pass(4 * DAY_S, 300);
    assert_eq!(job(&mut day), ["begin 1"]);
    day.pass(10 * HOUR_S, 300);
    assert_eq!(words(&day.pass(60, 60_000)), ["begin 2"], "at another hour it is told");
    day.pass(DAY_S - 12 * HOUR_S - 40 * 60 - 60, 300);
    for _ in 0..6 {
        assert!(job(&mut day).is_empty());
        day.pass(DAY_S - 2 * HOUR_S - 40 * 60, 300);
    }
}

#[test]
fn a_restart_goes_on_with_the_attack_and_what_is_usual() {
    let mut day = Day::new();
    day.pass(8 * HOUR_S, 9_000);
    day.restart();
    assert!(day.pass(600, 20_000).is_empty(), "less than four times");
    day.pass(60, 60_000);
    day.restart();
    assert!(day.pass(60, 60_000).is_empty(), "not told twice");
    let report = day.detector.ongoing().next().unwrap();
    assert_eq!((report.summary.number, report.summary.kind), (1, AttackKind::UnusualRate));
    assert_eq!(words(&day.pass(60, 9_000)), ["end 1"]);
}

#[test]
fn a_service_that_calms_down_is_no_attack_on_the_host() {
    let mut day = Day::new();
    let flood = |day: &mut Day, seconds| -> Vec<AttackNews> {
        (0..seconds)
            .flat_map(|_| day.second(&[(dns(), passing(30_000, 100)), (HOST, passing(100, 100))]))
            .collect()
    };
    let mut news = flood(&mut day, DAY_S);
    assert_eq!(words(&news), ["begin 1", "end 1"], "learned");
    assert_eq!(news.remove(0).report().summary.target, dns());
    assert!(flood(&mut day, HOUR_S).is_empty());
}

#[test]
fn targets_that_come_and_go_are_forgotten() {
    let mut usual = UsualLoads::default();
    (0..2_000).for_each(|service| usual.see_for_a_minute(&format!("s{service}"), 5));
    assert_eq!(usual.0.len(), MOST);
    let bytes = serde_json::to_vec(&usual).unwrap().len();
    assert!(bytes < 1024 * 1024, "{bytes}");
}

/// Random numbers from a seed (SplitMix64).
struct Seeded(u64);

impl Seeded {
    /// Evenly from 0 to 1.
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normally around 0 with deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.even()).sum::<f64>() - 6.0
    }

    fn up_to(&mut self, most: u64) -> u64 {
        (self.even() * most as f64) as u64
    }
}

/// Ordinary traffic of a host.
#[derive(Clone, Copy)]
struct Ordinary {
    /// Packets per second in the busiest hours.
    peak: f64,
    /// Packets per second of a backup of 45 minutes every night; of 1400 bytes, where others have 400.
    backup: f64,
    /// A crowd on Thursday evening for 40 minutes, in times of the peak.
    crowd: f64,
}

impl Ordinary {
    /// Packets and bytes of each second of a week: nights, weekends, noise, spikes of seconds, jobs on the hour, a deployment each working day, backups.
    fn week(self, random: &mut Seeded) -> Vec<(f64, f64)> {
        let mut drift = 0.0;
        let kept = (-1.0_f64 / 30.0).exp();
        let second = |at: u64| {
            let hour = (at % DAY_S) as f64 / HOUR_S as f64;
            let day = (std::f64::consts::PI * ((hour - 5.0) / 19.0).clamp(0.0, 1.0)).sin().powi(2);
            let weekend = if at / DAY_S >= 5 { 0.6 } else { 1.0 };
            let job = if at % HOUR_S < 20 { 1.5 } else { 1.0 };
            drift = kept * drift + (1.0 - kept * kept).sqrt() * random.normal();
            self.peak * (0.25 + 0.75 * day) * weekend * job * (0.12 * drift + 0.1 * random.normal()).exp()
        };
        let mut rates: Vec<f64> = (0..7 * DAY_S).map(second).collect();
        for _ in 0..140 {
            let (from, factor) = (random.up_to(7 * DAY_S - 4) as usize, 3.0 + 5.0 * random.even());
            let lasts = 1 + random.up_to(3) as usize;
            rates[from..from + lasts].iter_mut().for_each(|rate| *rate *= factor);
        }
        for day in 0..5 {
            let from = (day * DAY_S + 14 * HOUR_S + random.up_to(HOUR_S)) as usize;
            rates[from..from + 20].iter_mut().for_each(|rate| *rate *= 0.2);
            rates[from + 20..from + 80].iter_mut().for_each(|rate| *rate *= 2.5);
        }
        for (at, rate) in rates.iter_mut().skip((3 * DAY_S + 20 * HOUR_S) as usize).take(2_400).enumerate() {
            *rate += self.peak * self.crowd * (at as f64 / 300.0).min(1.0);
        }
        let mut all: Vec<(f64, f64)> = rates.into_iter().map(|rate| (rate, rate * 400.0)).collect();
        for day in 0..7 {
            let from = (day * DAY_S + 3 * HOUR_S + random.up_to(300)) as usize;
            for (packets, bytes) in &mut all[from..from + 2_700] {
                let more = self.backup * (0.05 * random.normal()).exp();
                (*packets, *bytes) = (*packets + more, *bytes + more * 1_400.0);
            }
        }
        all
    }

    /// Returns the attacks of a week that begins on a host without a history: on which day, at which hour.
    fn alarms(self, seed: u64) -> Vec<(u64, u64)> {
        let mut day = Day::new();
        let begin_ms = day.unix_ms;
        let mut alarms = Vec::new();
        for (packets, bytes) in self.week(&mut Seeded(seed)) {
            let load =
                Load { passed: Volume { packets: packets as u64, bytes: bytes as u64 }, ..Load::default() };
            let news = day.look(1_000, BTreeMap::from([(HOST, load)]));
            let begun = news.iter().filter(|one| matches!(one, AttackNews::Begin(_)));
            let hour = (day.unix_ms - begin_ms) / 1_000 / HOUR_S;
            alarms.extend(begun.map(|_| (hour / 24, hour % 24)));
        }
        alarms
    }
}

/// The table of false alarms in docs/attack-reports.md.
#[test]
fn ordinary_weeks_have_few_false_alarms() {
    let week = |peak, backup, crowd| Ordinary { peak, backup, crowd };
    let (first_night, first_deployment, crowd, install) = ((0, 3), (0, 14), (3, 20), (0, 0));
    let weeks = [
        (week(400.0, 15_000.0, 0.0), vec![first_night]),
        (week(4_000.0, 0.0, 3.0), vec![first_deployment]),
        (week(20_000.0, 60_000.0, 0.0), vec![first_night]),
        (week(20_000.0, 0.0, 6.0), vec![first_deployment, crowd]),
        (week(200_000.0, 60_000.0, 0.0), vec![install, first_night, first_deployment]),
    ];
    std::thread::scope(|scope| {
        for (week, alarms) in weeks {
            scope.spawn(move || assert_eq!(week.alarms(2), alarms, "{} packets/s at most", week.peak));
        }
    });
}
