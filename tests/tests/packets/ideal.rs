//! Floods against limits of every kind, judged by an ideal bucket that shares neither words nor arithmetic with the limiter.

use std::net::Ipv4Addr;

use fastrand::Rng;
use ratelimit_common::abi::Verdict;
use ratelimit_tests::{
    frames::{ARP, Ipv4, SYN, ethernet},
    memory::Memory,
    policies::{self, FACTS},
};
use ratelimit_user::compile::{self, HostFacts, lists::Lists};

/// A bucket as a textbook has it: it holds `burst` and fills with `rate` per second, in fractions of a unit.
struct IdealBucket {
    rate: f64,
    burst: f64,
    level: f64,
    seen_ns: u64,
}

impl IdealBucket {
    fn full((rate, burst): (f64, f64), now_ns: u64) -> Self {
        Self { rate, burst, level: burst, seen_ns: now_ns }
    }

    /// Takes a packet, if the bucket holds one at this time.
    fn takes(&mut self, now_ns: u64) -> bool {
        self.fill(now_ns);
        let takes = self.level >= 1.0;
        if takes {
            self.level -= 1.0;
        }
        takes
    }

    /// Takes a packet that passed, and returns whether the bucket held one.
    fn take_passed(&mut self, now_ns: u64) -> bool {
        self.fill(now_ns);
        self.level -= 1.0;
        // Sums of fractions are off by as little as this.
        self.level >= -1e-3
    }

    fn fill(&mut self, now_ns: u64) {
        let passed = (now_ns - self.seen_ns) as f64 / 1e9;
        self.level = (self.level + passed * self.rate).min(self.burst);
        self.seen_ns = now_ns;
    }
}

/// What a limit counts for, and who sends.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// `[source] limits` and one source.
    Source,
    /// `per_source` of a service and one source.
    PerSource,
    /// `network` of a user and some of its sources.
    User,
    /// `total` of a service and forged sources.
    Total,
    /// `total` of a service and sources with entries.
    TrackedTotal,
    /// `[host] total` and forged sources.
    HostTotal,
    /// `[host] link` and ARP of many neighbours.
    Link,
}

const KINDS: [Kind; 7] =
    [Kind::Source, Kind::PerSource, Kind::User, Kind::Total, Kind::TrackedTotal, Kind::HostTotal, Kind::Link];

/// One flood against one limit.
#[derive(Debug)]
struct Flood {
    kind: Kind,
    meter: &'static str,
    rate: u64,
    burst: u64,
    /// How many times the rate is sent.
    over: f64,
    tick_ns: u64,
    /// Ticks that the coarse clock is behind, beside the one that it is always in.
    late_ticks: u64,
    lane: bool,
}

impl Flood {
    fn random(rng: &mut Rng) -> Self {
        let among = |rng: &mut Rng, low: f64, high: f64| (low * (high / low).powf(rng.f64())) as u64;
        let kind = KINDS[rng.usize(..KINDS.len())];
        let meters: &[_] = match kind {
            Kind::Link => &["packets"],
            Kind::Source | Kind::PerSource | Kind::User => &["packets", "packets", "bytes", "syns"],
            Kind::Total | Kind::TrackedTotal | Kind::HostTotal => &["packets", "packets", "bytes"],
        };
        let meter = meters[rng.usize(..meters.len())];
        let (least_rate, least_burst) = match (kind, meter) {
            // Smaller caps are errors.
            (Kind::Link, _) => (100.0, 100.0),
            // A full frame, which is 30 of these packets.
            (_, "bytes") => (1.0, 31.0),
            _ => (1.0, 1.0),
        };
        Self {
            kind,
            meter,
            rate: among(rng, least_rate, 1_000_000.0),
            burst: among(rng, least_burst, 3_000.0),
            over: 5.0 + 15.0 * rng.f64(),
            tick_ns: [1_000_000, 4_000_000, 10_000_000][rng.usize(..3)],
            late_ticks: rng.u64(..3),
            lane: rng.u8(..4) != 0,
        }
    }

    /// Units of the limit that one packet costs.
    fn price(&self) -> u64 {
        if self.meter == "bytes" { self.frame(0).len() as u64 } else { 1 }
    }

    fn policy(&self) -> String {
        let price = self.price();
        let limit = format!("[\"{} {}/s burst {}\"]", self.rate * price, self.meter, self.burst * price);
        let own = match self.kind {
            Kind::Source => limit.clone(),
            Kind::TrackedTotal => format!("[\"{} packets/s\"]", self.rate * 6 / 10 + 1),
            _ => "[\"100000000 packets/s\"]".to_owned(),
        };
        let (host, rest) = match self.kind {
            Kind::Source => ("link = false".to_owned(), String::new()),
            Kind::HostTotal => (format!("link = false\ntotal = {limit}"), String::new()),
            Kind::Link => (format!("link = {}", limit.trim_matches(['[', ']'])), String::new()),
            Kind::PerSource => ("link = false".to_owned(), service(&format!("per_source = {limit}"))),
            Kind::Total | Kind::TrackedTotal => {
                ("link = false".to_owned(), service(&format!("total = {limit}")))
            }
            Kind::User => (
                "link = false".to_owned(),
                format!("[[user]]\nname = \"u\"\nsources = [\"192.0.2.0/24\"]\nnetwork = {limit}\n"),
            ),
        };
        format!(
            "[source]\nlimits = {own}\nladder = false\nnew_sources_per_cpu = 10000000\n[host]\n{host}\n{rest}"
        )
    }

    fn frame(&self, sender: u32) -> Vec<u8> {
        let source = match self.kind {
            Kind::Link => return ethernet(ARP, &[0; 28]),
            Kind::Source | Kind::PerSource => 0xc000_0201,
            Kind::User | Kind::TrackedTotal => 0xc000_0200 | (sender % 4),
            Kind::Total | Kind::HostTotal => 0x0b00_0000 | (sender & 0xff_ffff),
        };
        let packet = Ipv4::from(Ipv4Addr::from(source));
        if self.meter == "syns" { packet.tcp_frame(SYN) } else { packet.udp_frame(8) }
    }

    /// Sends the flood, and says what is wrong with what passes.
    fn fault(&self, rng: &mut Rng) -> Option<String> {
        let policy = policies::parsed(&self.policy());
        let facts = HostFacts { tick_ns: self.tick_ns, ..FACTS };
        let host = Memory::new(&compile::desired(&policy, &facts, 2, None), Lists::new());
        host.express.set(self.lane);
        let began_ns = host.now_ns.get();
        let (rate, burst) = (self.rate as f64, self.burst as f64);
        // One neighbour has the shared half of a cap, and a part of the other half.
        let half = if matches!(self.kind, Kind::Link) { 2.0 } else { 1.0 };
        let mut ideal = IdealBucket::full((rate / half, burst / half), began_ns);
        let mut bound = IdealBucket::full((rate, burst), began_ns);
        let (mut passed, mut would) = (0.0, 0.0);
        let mut sent_ns = 0.0;
        let packets = (self.over * (800.0 + burst)) as u64;
        for _ in 0..packets {
            sent_ns += 2e9 * rng.f64() / (rate * self.over);
            let now_ns = began_ns + sent_ns as u64;
            host.now_ns.set(now_ns);
            host.lag_ns.set(now_ns % self.tick_ns + self.late_ticks * self.tick_ns);
            would += f64::from(u8::from(ideal.takes(now_ns)));
            if host.run(&self.frame(rng.u32(..))) == Verdict::Pass {
                passed += 1.0;
                if !bound.take_passed(now_ns) {
                    return Some(format!("{} packets above the bound: {self:?}", -bound.level));
                }
            }
        }
        // A total keeps parts of its burst for clients that are known and in the hands of other CPUs.
        let least = 0.98 * (would - burst);
        (passed < least).then(|| format!("{passed} of {would} packets: {self:?}"))
    }
}

/// The tables of a service for all frames here.
fn service(limit: &str) -> String {
    let of = |protocol, port| {
        format!(
            "[[service]]\nname = \"{protocol}\"\nmatch = {{ protocol = \"{protocol}\", ports = [{port}] }}\n{limit}\n"
        )
    };
    of("udp", 53) + &of("tcp", 80)
}

fn faults(seed: u64, floods: u64) -> Vec<String> {
    let flood = |number| {
        let mut rng = Rng::with_seed(seed + number);
        Flood::random(&mut rng).fault(&mut rng)
    };
    (0..floods).filter_map(flood).collect()
}

#[test]
fn every_limit_admits_what_an_ideal_bucket_does() {
    let faults = faults(0x1dea1, 120);
    assert!(faults.is_empty(), "{} floods:\n{}", faults.len(), faults.join("\n"));
}

#[test]
#[ignore = "minutes"]
fn every_limit_admits_what_an_ideal_bucket_does_for_long() {
    let faults = faults(0x1dea1 << 20, 10_000);
    assert!(faults.is_empty(), "{} floods:\n{}", faults.len(), faults.join("\n"));
}

/// One source at 20 000 packets/s, whose own limit is up to twice the total or far above it.
#[test]
fn a_source_that_a_total_refuses_ends_in_the_lane() {
    for own in [900, 1_000, 1_200, 2_000, 5_000] {
        let policy = format!(
            "[source]\nlimits = [\"{own} packets/s\"]\nladder = false\n[host]\nlink = false\n{}",
            service("total = [\"1000 packets/s\"]")
        );
        let host = Memory::new(&policies::policy(&policy), Lists::new());
        host.express.set(true);
        let frame = Ipv4::from([192, 0, 2, 1]).udp_frame(8);
        let began_ns = host.now_ns.get();
        let send = |from: u64| {
            let passes = |number: &u64| {
                host.now_ns.set(began_ns + number * 50_000);
                host.lag_ns.set(host.now_ns.get() % FACTS.tick_ns);
                host.run(&frame) == Verdict::Pass
            };
            (from..from + 60_000).filter(passes).count() as u64
        };
        send(0);
        let before = host.lane_drops.get();
        let refused = 60_000 - send(60_000);
        let in_lane = host.lane_drops.get() - before;
        assert!(in_lane * 10 > refused * 9, "own limit {own}: {in_lane} of {refused} refused in the lane");
    }
}
