use ratelimit_common::abi::{Reason, counter::Fate};

use super::*;
use crate::attacks::{AttackKind, OriginPort, Volume, Witness};

const HOST: AttackTarget = AttackTarget::Host;

fn dns() -> AttackTarget {
    AttackTarget::Service("dns".to_owned())
}

/// A detector, and a clock that the test moves.
struct Bench {
    detector: Detector,
    policy: AttackPolicy,
    unix_ms: u64,
    flood: bool,
    /// Packets of known clients in each second.
    known: KnownPackets,
}

impl Bench {
    fn new() -> Self {
        Self {
            detector: Detector::new(1, Vec::new(), UsualLoads::default()),
            // What passes is unusual in tests of its own.
            policy: AttackPolicy::default().with_unusual("1000000000 packets/s").unwrap(),
            unix_ms: 1_000_000,
            flood: false,
            known: KnownPackets::default(),
        }
    }

    /// One look a second later: one target has these passed and refused packets, every other target has none.
    fn second(&mut self, target: &AttackTarget, passed: u64, refused: u64) -> Vec<AttackNews> {
        self.look(&[(target, load(passed, Reason::LimitPackets, refused))])
    }

    fn look(&mut self, loads: &[(&AttackTarget, Load)]) -> Vec<AttackNews> {
        self.unix_ms += 1_000;
        let mut all = BTreeMap::from([(HOST, Load::default()), (dns(), Load::default())]);
        all.extend(loads.iter().map(|(target, load)| ((*target).clone(), load.clone())));
        let glance = Glance {
            unix_ms: self.unix_ms,
            span_ms: 1_000,
            loads: all,
            known: self.known,
            flood: self.flood,
        };
        self.detector.observe(&glance, &self.policy)
    }

    fn calm(&mut self, seconds: u32) -> Vec<AttackNews> {
        (0..seconds).flat_map(|_| self.look(&[])).collect()
    }
}

fn load(passed: u64, reason: Reason, refused: u64) -> Load {
    let volume = |packets| Volume { packets, bytes: packets * 100 };
    let mut load = Load { passed: volume(passed), ..Load::default() };
    if refused > 0 {
        load.refused.insert(reason.name(), volume(refused));
    }
    load
}

fn blocked(packets: u64) -> Load {
    Load { blocked: Volume { packets, bytes: packets }, ..Load::default() }
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
fn two_seconds_above_both_thresholds_begin_an_attack_and_one_does_not() {
    let mut bench = Bench::new();
    assert!(bench.second(&dns(), 100, 5_000).is_empty());
    assert!(bench.calm(1).is_empty());
    assert!(bench.second(&dns(), 100, 5_000).is_empty(), "the second before does not count");
    assert_eq!(words(&bench.second(&dns(), 100, 7_000)), ["begin 1"]);
    let report = bench.detector.ongoing().next().unwrap();
    assert_eq!(
        (&report.summary.target, report.summary.refused_packets),
        (&dns(), 12_000),
        "both seconds count"
    );
    assert_eq!(report.begin_unix_ms, bench.unix_ms - 2_000);
    assert_eq!(report.summary.peak_packets_per_second, 6_000, "of two seconds together");
    assert_eq!(
        bench.detector.ongoing().count(),
        1,
        "the packets of a service under attack are not the host's too"
    );
}

#[test]
fn few_packets_and_a_small_part_of_what_passes_are_no_attack_unless_the_state_is_flood() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        assert!(bench.second(&HOST, 0, 999).is_empty(), "below the absolute threshold");
    }
    for _ in 0..10 {
        assert!(bench.second(&HOST, 100_000, 24_999).is_empty(), "below a quarter");
    }
    bench.flood = true;
    bench.second(&HOST, 100_000, 24_999);
    assert_eq!(words(&bench.second(&HOST, 100_000, 24_999)), ["begin 1"]);
}

#[test]
fn an_attack_is_over_after_calm_time_below_half_of_what_began_it_and_not_between() {
    let mut bench = Bench::new();
    bench.second(&HOST, 10, 2_000);
    bench.second(&HOST, 10, 2_000);
    let last = bench.unix_ms;
    for _ in 0..40 {
        assert!(
            !words(&bench.second(&HOST, 10, 600)).contains(&"end 1".to_owned()),
            "more than half keeps it"
        );
    }
    let held = bench.unix_ms;
    assert!(held > last && !words(&bench.calm(29)).contains(&"end 1".to_owned()));
    let news = bench.calm(1);
    assert_eq!(words(&news), ["end 1"]);
    let report = news[0].report();
    assert_eq!(
        (report.last_unix_ms, report.summary.seconds),
        (held, 42),
        "it ended with its last second, not after the calm"
    );
    assert!(bench.calm(100).is_empty());
}

#[test]
fn pressure_that_comes_and_goes_is_one_attack() {
    let mut bench = Bench::new();
    let mut all = Vec::new();
    for _ in 0..50 {
        all.extend(bench.second(&HOST, 0, 3_000));
        all.extend(bench.second(&HOST, 0, 3_000));
        all.extend(bench.calm(10));
    }
    let ends = words(&all).iter().filter(|word| !word.starts_with("update")).count();
    assert_eq!(ends, 1, "{:?}", words(&all));
    assert_eq!(all.len(), 1 + 10, "and once a minute it is said to go on: {:?}", words(&all));
}

#[test]
fn blocking_the_source_does_not_end_the_attack_before_it_stops() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.look(&[(&HOST, blocked(700))]);
    }
    assert!(bench.detector.ongoing().next().is_none(), "blocked packets begin nothing");
    bench.second(&HOST, 0, 5_000);
    bench.second(&HOST, 0, 5_000);
    for _ in 0..60 {
        bench.look(&[(&HOST, blocked(5_700))]);
    }
    let report = bench.detector.ongoing().next().unwrap();
    assert_eq!((report.blocked_packets, report.summary.refused_packets), (300_000, 10_000));
    let news: Vec<_> = (0..30).flat_map(|_| bench.look(&[(&HOST, blocked(700))])).collect();
    assert_eq!(
        words(&news).last().unwrap(),
        "end 1",
        "what was blocked before the attack does not keep it going"
    );
}

#[test]
fn what_is_spread_over_services_is_an_attack_on_the_host_and_beyond_sixteen_nobody_gets_another() {
    let mut bench = Bench::new();
    let service = |n: usize| AttackTarget::Service(format!("s{n}"));
    let spread: Vec<(AttackTarget, Load)> =
        (0..10).map(|n| (service(n), load(10, Reason::LimitPackets, 300))).collect();
    let spread: Vec<(&AttackTarget, Load)> =
        spread.iter().map(|(target, load)| (target, load.clone())).collect();
    bench.look(&spread);
    let news = bench.look(&spread);
    assert_eq!((words(&news), &news[0].report().summary.target), (vec!["begin 1".to_owned()], &HOST));
    let mut bench = Bench::new();
    let all: Vec<(AttackTarget, Load)> =
        (0..40).map(|n| (service(n), load(0, Reason::LimitPackets, 2_000))).collect();
    let all: Vec<(&AttackTarget, Load)> = all.iter().map(|(target, load)| (target, load.clone())).collect();
    bench.look(&all);
    let (first, second) = (bench.look(&all), bench.look(&all));
    assert_eq!(first.len() + second.len(), MOST + 1, "{:?} {:?}", words(&first), words(&second));
    let refused: u64 = bench.detector.ongoing().map(|report| report.summary.refused_packets).sum();
    assert!(refused <= 3 * 40 * 2_000, "no packet counts twice: {refused}");
}

#[test]
fn requests_have_a_threshold_of_their_own_and_no_packets() {
    let mut bench = Bench::new();
    let api = AttackTarget::Api("search".to_owned());
    let mut refused = Load { passed: Volume { packets: 50, bytes: 0 }, ..Load::default() };
    refused.refused.insert("refused", Volume { packets: 150, bytes: 0 });
    bench.look(&[(&api, refused.clone())]);
    let news = bench.look(&[(&api, refused)]);
    assert_eq!(
        (words(&news), news[0].report().summary.kind),
        (vec!["begin 1".to_owned()], AttackKind::Requests)
    );
    assert!(
        news[0].report().begun().ends_with("requests on api search, 150 requests/s refused (refused)"),
        "{}",
        news[0].report().begun()
    );
    // The policy does not have the API any more.
    assert_eq!(words(&bench.calm(1)), ["end 1"]);
}

#[test]
fn a_report_has_what_passed_before_and_during_who_was_seen_and_what_was_changed() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        bench.second(&dns(), 400, 0);
    }
    let sighting = |host: u8, service: Option<&str>| {
        Arc::new(Sighting {
            time_ns: 0,
            unix_ms: bench.unix_ms,
            source: format!("198.51.100.{host}").parse().unwrap(),
            reason: Reason::LimitPackets,
            fate: Fate::Decided,
            service: service.map(str::to_owned),
            port: 53,
            len: 60,
        })
    };
    let seen = [sighting(7, Some("dns")), sighting(9, None)];
    seen.iter().for_each(|one| bench.detector.see(one));
    bench.second(&dns(), 100, 5_000);
    bench.second(&dns(), 200, 5_000);
    bench.detector.see(&seen[0]);
    bench.detector.note(bench.unix_ms, "blocked 198.51.100.7/32 for 10m");
    bench.second(&dns(), 300, 5_000);
    let report = bench.detector.ongoing().next().unwrap();
    assert_eq!((report.passed_before_per_second, report.passed_during_per_second), (Some(400), 200));
    assert_eq!(report.passed_lowest_per_second, 150);
    let sources: Vec<(&str, u64)> =
        report.sources.iter().map(|row| (row.value.as_str(), row.samples)).collect();
    assert_eq!((sources, report.samples), (vec![("198.51.100.7", 2)], 2));
    assert_eq!(
        (report.prefixes[0].value.as_str(), report.ports[0].value.as_str()),
        ("198.51.100.0/24", "53")
    );
    assert_eq!((report.summary.kind, report.changes.len()), (AttackKind::OneSource, 1));
    assert!(report.begun().ends_with("from 198.51.100.7"), "{}", report.begun());
}

/// Two attacks at once: one source at no service, and thousands at a service. Samples of both come from the first second on.
#[test]
fn a_sampled_packet_is_part_of_one_attack_and_whoever_sends_most_of_it_makes_its_kind() {
    for service_is_first in [false, true] {
        let mut bench = Bench::new();
        let witness = |source: String, port| Witness {
            source: source.parse().unwrap(),
            port,
            origin: OriginPort { is_udp: true, port: 40_000 },
            weight: 1,
        };
        let samples = |bench: &mut Bench| {
            let many = (0..=255).map(|last| witness(format!("203.0.113.{last}"), 53)).collect();
            let loud = (0..200).map(|n| witness(format!("198.51.100.{}", if n < 5 { n } else { 66 }), 999));
            let part = |service: Option<&str>, witnesses| SampledPart {
                service: service.map(str::to_owned),
                has_passed: false,
                witnesses,
                scale: 1.0,
            };
            bench.detector.see_samples(part(Some("dns"), many));
            bench.detector.see_samples(part(None, loud.collect()));
        };
        let [own, rest] = [0, 1].map(|_| load(0, Reason::LimitPackets, 5_000));
        if service_is_first {
            bench.look(&[(&dns(), own.clone())]);
            samples(&mut bench);
        }
        for _ in 0..3 {
            bench.look(&[(&dns(), own.clone()), (&HOST, rest.clone())]);
            samples(&mut bench);
        }
        bench.look(&[(&dns(), own), (&HOST, rest)]);
        let told = |target: AttackTarget| {
            let report = bench.detector.ongoing().find(|one| one.summary.target == target).unwrap();
            let ports: Vec<&str> = report.ports.iter().map(|row| row.value.as_str()).collect();
            (report.summary.kind, report.sources_seen, ports.join(" "))
        };
        assert_eq!(told(HOST), (AttackKind::OneSource, 6, "999".to_owned()), "{service_is_first}");
        assert_eq!(told(dns()), (AttackKind::ManySources, 256, "53".to_owned()), "{service_is_first}");
    }
}

#[test]
fn after_a_restart_an_attack_goes_on_under_its_number_or_has_ended_and_is_not_counted_twice() {
    let mut bench = Bench::new();
    bench.second(&dns(), 0, 5_000);
    bench.second(&dns(), 0, 5_000);
    let kept = bench.detector.ongoing().next().unwrap().clone();
    let mut found = kept.clone();
    found.found_at_start(bench.unix_ms + 20_000, 300_000);
    assert!(!found.is_over());
    bench.detector = Detector::new(2, vec![found], UsualLoads::default());
    assert!(bench.second(&dns(), 0, 5_000).is_empty(), "it is not begun a second time");
    let report = bench.detector.ongoing().next().unwrap();
    assert_eq!((report.summary.number, report.summary.refused_packets, report.restarts), (1, 15_000, 1));
    assert_eq!(words(&bench.calm(30)), ["end 1"]);
    bench.second(&dns(), 0, 5_000);
    assert_eq!(words(&bench.second(&dns(), 0, 5_000)), ["begin 2"]);

    let mut late = kept.clone();
    late.found_at_start(kept.last_unix_ms + 300_001, 300_000);
    assert!(late.is_over() && late.summary.end == Some(crate::moment::utc_ms(kept.last_unix_ms)), "{late:?}");
    let again = late.clone();
    late.found_at_start(u64::MAX, 300_000);
    assert_eq!(late, again, "what is over stays as it is");
}

/// Sampled packets for no service: 100 from each of these addresses.
fn sampled(sources: impl Iterator<Item = u8>) -> SampledPart {
    let witness = |last| Witness {
        source: format!("198.51.100.{last}").parse().unwrap(),
        port: 9,
        origin: OriginPort { is_udp: true, port: 40_000 },
        weight: 1,
    };
    let witnesses = sources.flat_map(|last| vec![witness(last); 100]).collect();
    SampledPart { service: None, has_passed: false, witnesses, scale: 1.0 }
}

impl Bench {
    /// Seconds of refused packets from these sources.
    fn flood(
        &mut self,
        seconds: u32,
        sources: std::ops::Range<u8>,
        reason: Reason,
        refused: u64,
    ) -> Vec<AttackNews> {
        let mut news = Vec::new();
        for _ in 0..seconds {
            self.detector.see_samples(sampled(sources.clone()));
            news.extend(self.look(&[(&HOST, load(100, reason, refused))]));
        }
        news
    }
}

#[test]
fn a_flood_of_another_kind_is_another_attack() {
    let mut bench = Bench::new();
    assert_eq!(words(&bench.flood(20, 1..9, Reason::LimitFragments, 50_000)), ["begin 1"]);
    assert!(bench.calm(28).is_empty());
    let news = bench.flood(10, 50..150, Reason::LimitPrefix, 1_200_000);
    assert_eq!(words(&news), ["end 1", "begin 2"]);
    let fragments = news[0].report();
    assert_eq!(
        (fragments.summary.kind, fragments.summary.refused_packets, fragments.summary.seconds),
        (AttackKind::Fragments, 1_000_000, 20)
    );
    assert_eq!(fragments.sources_seen, 8, "{:?}", fragments.sources);
    assert_eq!(fragments.ended_because.as_deref(), Some("attack 2 of another kind, many_sources, followed"));
    let prefix = bench.detector.ongoing().next().unwrap();
    assert_eq!(
        (prefix.summary.kind, prefix.summary.refused_packets, prefix.sources_seen),
        (AttackKind::ManySources, 12_000_000, 100)
    );
    assert_eq!(prefix.begin_unix_ms, bench.unix_ms - 10_000);
}

#[test]
fn a_report_about_one_source_has_no_sources_of_the_next_attack() {
    let mut bench = Bench::new();
    bench.flood(15, 7..8, Reason::LimitPackets, 20_000);
    let news = bench.flood(6, 50..150, Reason::LimitPackets, 20_000);
    assert_eq!(words(&news), ["end 1", "begin 2"]);
    let one = news[0].report();
    assert_eq!((one.summary.kind, one.sources_seen), (AttackKind::OneSource, 1), "{:?}", one.sources);
}

#[test]
fn packets_of_two_kinds_in_turn_are_one_attack() {
    let mut bench = Bench::new();
    let mut news = bench.flood(12, 7..8, Reason::LimitPackets, 20_000);
    for _ in 0..5 {
        news.extend(bench.flood(4, 50..150, Reason::LimitFragments, 90_000));
        news.extend(bench.flood(1, 7..8, Reason::LimitPackets, 20_000));
    }
    news.retain(|one| !matches!(one, AttackNews::Update(_)));
    assert_eq!(words(&news), ["begin 1"]);
    let report = bench.detector.ongoing().next().unwrap();
    assert_eq!(report.summary.refused_packets, 12 * 20_000 + 5 * (4 * 90_000 + 20_000), "none is lost");
    assert_eq!(report.summary.kind, AttackKind::OneSource, "the kind that was told stays");
}

#[test]
fn an_attack_that_grows_tenfold_is_told_again() {
    let mut bench = Bench::new();
    assert_eq!(words(&bench.flood(20, 1..9, Reason::LimitPackets, 5_000)), ["begin 1"]);
    assert!(bench.flood(5, 1..9, Reason::LimitPackets, 49_000).is_empty());
    assert_eq!(words(&bench.flood(5, 1..9, Reason::LimitPackets, 50_000)), ["change 1"]);
    let news = bench.flood(5, 1..9, Reason::LimitPackets, 700_000);
    assert_eq!(words(&news), ["change 1"]);
    assert_eq!(
        news[0].report().changed(),
        "attack 1 changed: many_sources on the host; the attack grew from 50000 to 700000 packets/s refused"
    );
}

#[test]
fn a_kind_that_was_told_wrongly_is_told_again() {
    let mut bench = Bench::new();
    bench.second(&HOST, 100, 5_000);
    let news = bench.second(&HOST, 100, 5_000);
    assert_eq!(news[0].report().summary.kind, AttackKind::ManySources, "nothing was sampled yet");
    let news = bench.flood(20, 7..8, Reason::LimitPackets, 5_000);
    assert_eq!(words(&news), ["change 1"]);
    assert_eq!(news[0].report().changes[0].what, "the attack is one_source, not many_sources");
}

#[test]
fn an_attack_is_contained_while_only_its_senders_lose() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.second(&HOST, 2_000, 0);
    }
    let after = |bench: &mut Bench, load: Load| {
        (0..5).for_each(|_| drop(bench.look(&[(&HOST, load.clone())])));
        bench.detector.ongoing().next().unwrap().summary.now
    };
    let contained = |bench: &mut Bench, load: Load| after(bench, load).contained;
    assert!(contained(&mut bench, load(4_000, Reason::LimitPackets, 90_000)));
    assert!(!contained(&mut bench, load(4_001, Reason::LimitPackets, 90_000)), "more passes than usual");
    assert!(!contained(&mut bench, load(2_000, Reason::ServiceTotal, 90_000)), "all senders share a total");
    let trial = Load { waived: Volume { packets: 1, bytes: 1 }, ..load(100, Reason::LimitPackets, 90_000) };
    assert!(!contained(&mut bench, trial), "what is on trial is not held off");
    let now = after(&mut bench, Load { passed: Volume { packets: 120, bytes: 1 }, ..blocked(5_700) });
    assert_eq!(now.words("packets"), "is contained: 5700 packets/s refused, 120 packets/s pass");
}

#[test]
fn packets_of_known_clients_count_from_begin_to_end() {
    let mut bench = Bench::new();
    let api = AttackTarget::Api("search".to_owned());
    bench.known = KnownPackets { admitted: 40, refused: 2 };
    bench.calm(10);
    let shed = load(100, Reason::ServiceTotal, 5_000);
    (0..12).for_each(|_| drop(bench.look(&[(&dns(), shed.clone()), (&api, shed.clone())])));
    let report = |bench: &Bench, target: &AttackTarget| {
        bench.detector.ongoing().find(|one| one.summary.target == *target).unwrap().clone()
    };
    let known = |report: &AttackReport| (report.summary.known.admitted, report.summary.known.refused);
    assert_eq!(known(&report(&bench, &dns())), (480, 24), "also of the second before it was called one");
    assert_eq!(known(&report(&bench, &api)), (0, 0), "requests have no packets");

    let mut found = report(&bench, &dns());
    found.found_at_start(bench.unix_ms + 20_000, 300_000);
    bench.detector = Detector::new(3, vec![found], UsualLoads::default());
    bench.look(&[(&dns(), shed)]);
    bench.known = KnownPackets::default();
    let news = bench.calm(30);
    let ended = news.last().unwrap().report();
    assert_eq!(known(ended), (520, 26), "a restart loses none that was counted");
    let words = "; calm for 30 s; known clients: 520 packets came first, 26 were refused (4.8 %)";
    assert!(ended.ended().ends_with(words), "{}", ended.ended());
}
