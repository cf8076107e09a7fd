//! Talkers: the senders of most traffic, estimated from sampled frames.
//!
//! A frame that was sampled with probability 1/w stands for w frames (Horvitz and Thompson 1952). The sum of the weights of a source's samples
//! is an unbiased estimate of its frames, with the variance Σ (w² - w): zero while every frame is sampled, and 1.96 √(w n) to
//! either side, nineteen times out of twenty, for a source that sent n frames. A source without a sample sent fewer than 3 w frames, nineteen times
//! out of twenty.

use std::{collections::HashMap, hash::Hash};

use ratelimit_common::abi::{Reason, Verdict};
use serde::{Deserialize, Serialize};

use super::{remaining::LimitLeft, sampled::Sampled};

/// Talkers of each kind that a view shows, by each of three orders: packets, bytes, refused packets.
const SHOWN: usize = 50;
/// Half of a 95 % interval, in standard deviations.
const CONFIDENCE: f64 = 1.96;

/// A sender: a source, a prefix or a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// A source: an address, or the prefix of a source.
    Source(String),
    /// A /24 of IPv4, or a /48 of IPv6.
    Prefix(String),
    /// A user of the policy.
    User(String),
}

/// The traffic of one sender in the span of a view. Packets and bytes are estimates; `error_packets` is their error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Talker {
    /// The source, if the talker is a source: an address, or the prefix of a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The prefix, if the talker is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The user, if the talker is one; otherwise the user that a source belongs to.
    #[serde(default)]
    pub user: Option<String>,
    /// Packets that were handed on.
    pub passed_packets: u64,
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Packets that the kernel program answered.
    pub replied_packets: u64,
    /// Bytes of all these packets.
    pub bytes: u64,
    /// All packets per second.
    pub packets_per_second: f64,
    /// All bytes per second.
    pub bytes_per_second: f64,
    /// The error of the numbers of packets, exceeded once out of twenty times; 0 if every packet was sampled.
    pub error_packets: u64,
    /// The service of most packets.
    pub service: Option<String>,
    /// The reason of most refusals.
    pub reason: Option<String>,
    /// The destination port of most packets.
    pub port: Option<u16>,
    /// Whether the talker is a source that is a known client at this service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// What is left of the limits of a source or of a user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitLeft>,
}

impl Talker {
    /// The name of the sender.
    pub fn name(&self) -> &str {
        let name = self.source.as_ref().or(self.prefix.as_ref()).or(self.user.as_ref());
        name.map_or("", String::as_str)
    }

    /// All packets, whatever their verdict.
    pub fn packets(&self) -> u64 {
        self.passed_packets + self.dropped_packets + self.replied_packets
    }
}

/// Names for the numbers in samples.
pub trait Naming {
    /// The name of a service, by its number in the table of ports.
    fn service(&self, number: u32) -> Option<&str>;
    /// The user of a sender.
    fn user(&self, who: &Who) -> Option<&str>;
}

/// The senders of most traffic, largest first, with everything that a view shows of them. Samples for which `who` returns `None` are left out.
pub fn largest<'s>(
    samples: &'s [Sampled],
    scale: f64,
    span_seconds: f64,
    naming: &impl Naming,
    who: impl Fn(&'s Sampled) -> Option<Who>,
) -> Vec<Talker> {
    let mut groups: HashMap<Who, Vec<&Sampled>> = HashMap::new();
    for sample in samples {
        if let Some(who) = who(sample) {
            groups.entry(who).or_default().push(sample);
        }
    }
    let mut talkers: Vec<Talker> =
        groups.into_iter().map(|(who, samples)| talker(who, &samples, scale, span_seconds, naming)).collect();
    keep_largest(&mut talkers);
    talkers
}

/// Keeps the first talkers by each order, sorted by packets.
fn keep_largest(talkers: &mut Vec<Talker>) {
    let threshold = |of: &dyn Fn(&Talker) -> u64| {
        let mut values: Vec<u64> = talkers.iter().map(of).collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.get(SHOWN - 1).copied().unwrap_or(0)
    };
    let (packets, bytes) = (threshold(&Talker::packets), threshold(&|talker| talker.bytes));
    let dropped = threshold(&|talker| talker.dropped_packets).max(1);
    talkers.retain(|talker| {
        talker.packets() >= packets || talker.bytes >= bytes || talker.dropped_packets >= dropped
    });
    talkers.sort_by(|a, b| b.packets().cmp(&a.packets()).then_with(|| a.name().cmp(b.name())));
    // Thousands of senders may have sent one packet each.
    talkers.truncate(3 * SHOWN);
}

fn talker(who: Who, samples: &[&Sampled], scale: f64, span_seconds: f64, naming: &impl Naming) -> Talker {
    let weight = |wanted: Option<Verdict>| {
        let of = samples.iter().filter(|sample| wanted.is_none_or(|verdict| sample.verdict == verdict));
        of.map(|sample| sample.weight as f64).sum::<f64>() * scale
    };
    let bytes =
        samples.iter().map(|sample| sample.weight as f64 * f64::from(sample.len)).sum::<f64>() * scale;
    let variance: f64 = samples.iter().map(|sample| sample.weight as f64 * (sample.weight - 1) as f64).sum();
    let refused = samples.iter().filter(|sample| sample.reason.verdict() == Verdict::Drop);
    let owner = naming.user(&who).map(str::to_owned);
    let (source, prefix, user) = match who {
        Who::Source(name) => (Some(name), None, owner),
        Who::Prefix(name) => (None, Some(name), None),
        Who::User(name) => (None, None, Some(name)),
    };
    Talker {
        source,
        prefix,
        user,
        passed_packets: weight(Some(Verdict::Pass)).round() as u64,
        dropped_packets: weight(Some(Verdict::Drop)).round() as u64,
        replied_packets: weight(Some(Verdict::Reply)).round() as u64,
        bytes: bytes.round() as u64,
        packets_per_second: weight(None) / span_seconds,
        bytes_per_second: bytes / span_seconds,
        error_packets: (CONFIDENCE * variance.sqrt() * scale).ceil() as u64,
        service: most(samples.iter().map(|sample| (sample.service, sample.weight)))
            .and_then(|number| naming.service(number))
            .map(str::to_owned),
        reason: most(refused.map(|sample| (sample.reason as u32, sample.weight)))
            .map(|code| Reason::from_code(code).name().to_owned()),
        known: false,
        port: most(samples.iter().map(|sample| (sample.port, sample.weight))).filter(|port| *port != 0),
        limits: Vec::new(),
    }
}

/// The thing with the largest sum of weights; the smallest of equals, so that the answer is always the same.
fn most<T: Copy + Eq + Hash + Ord>(weighed: impl Iterator<Item = (T, u64)>) -> Option<T> {
    let mut sums: HashMap<T, u64> = HashMap::new();
    weighed.for_each(|(thing, weight)| *sums.entry(thing).or_default() += weight);
    sums.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(thing, _)| thing)
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{
        counter::Fate,
        sample::{Sampler, Sampling},
    };

    use super::*;

    struct Nobody;

    impl Naming for Nobody {
        fn service(&self, number: u32) -> Option<&str> {
            (number == 1).then_some("dns")
        }

        fn user(&self, who: &Who) -> Option<&str> {
            (*who == Who::Source("10.0.0.1".to_owned())).then_some("acme")
        }
    }

    fn sample(source: u32, weight: u64, verdict: Verdict) -> Sampled {
        Sampled {
            time_ns: 0,
            source: Some(std::net::Ipv4Addr::from_bits(source).into()),
            port: 53,
            source_port: 4711,
            is_udp: true,
            service: 1,
            reason: if verdict == Verdict::Drop { Reason::LimitPackets } else { Reason::Conforming },
            fate: Fate::Decided,
            verdict,
            len: 100,
            weight,
        }
    }

    fn by_source(sample: &Sampled) -> Option<Who> {
        sample.source.map(|source| Who::Source(source.to_string()))
    }

    #[test]
    fn while_every_packet_is_seen_the_numbers_are_exact() {
        let samples: Vec<Sampled> = (0..30)
            .map(|n| sample(0x0a00_0001 + n % 3, 1, if n < 12 { Verdict::Pass } else { Verdict::Drop }))
            .collect();
        let talkers = largest(&samples, 1.0, 2.0, &Nobody, by_source);
        assert_eq!(talkers.len(), 3);
        let first = &talkers[0];
        assert_eq!((first.passed_packets, first.dropped_packets, first.error_packets), (4, 6, 0));
        assert_eq!((first.bytes, first.packets_per_second), (1000, 5.0));
        assert_eq!((first.service.as_deref(), first.user.as_deref()), (Some("dns"), Some("acme")));
        assert_eq!((first.reason.as_deref(), first.port), (Some("limit_packets"), Some(53)));
        let json = serde_json::to_value(first).unwrap();
        assert_eq!(json["source"], "10.0.0.1", "{json}");
        assert_eq!(serde_json::from_value::<Talker>(json).unwrap(), *first);
    }

    /// A second of packets through the sampler of the kernel program: a million sources that send one packet each, and three that send more.
    fn spoofed(seed: u32) -> Vec<Sampled> {
        let mut sampler = Sampler { random: 0, epoch: 0, taken: 0, shift: 0, gap: 0 };
        let packets = 1_000_000_u32;
        let mut samples = Vec::new();
        for number in 0..packets {
            let sampling = Sampling { epoch: 1 + number / (packets / 10), budget: 1024 };
            let source = match number % 100 {
                0..20 => 1,
                20..25 => 2,
                25 => 3,
                _ => 0x1000_0000 + number,
            };
            if let Some(shift) = sampler.due(sampling, || seed) {
                samples.push(sample(source, 1 << shift, Verdict::Drop));
            }
        }
        samples
    }

    #[test]
    fn among_a_million_spoofed_sources_the_largest_are_found_and_the_stated_error_holds() {
        let mut within = 0;
        for seed in 1..=40 {
            let samples = spoofed(seed * 7919);
            let talkers = largest(&samples, 1.0, 1.0, &Nobody, by_source);
            let names: Vec<&str> = talkers.iter().take(2).map(Talker::name).collect();
            assert_eq!(names, ["0.0.0.1", "0.0.0.2"]);
            assert!(samples.len() < 40_000 && talkers.len() <= 150);
            for (talker, truth) in talkers.iter().zip([200_000_i64, 50_000]) {
                assert!(talker.error_packets < 15_000, "1.5 % of all packets: {talker:?}");
                let off = (talker.packets() as i64 - truth).unsigned_abs();
                within += u32::from(off <= talker.error_packets);
            }
        }
        assert!(within >= 70, "{within} of 80 within an error that 76 should be within");
    }
}
