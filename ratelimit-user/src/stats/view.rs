//! The view: what the host did in one span of time, for the terminal, the dashboard, attack reports and scripts.

use serde::{Deserialize, Serialize};

use super::{
    Snapshot,
    flow::{Flow, ReasonFlow, ServiceFlow},
    owners::Owners,
    rates::Rates,
    remaining::ClusterHost,
    sampled::Sampled,
    talkers::{Naming, Talker, Who, largest},
};
use crate::{
    moment,
    policy::{Policy, Prefix},
};

/// Version of the JSON form. Fields are added, never renamed.
const VERSION: u32 = 1;
/// Lengths of the prefixes that sources are added up by, in bits.
const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 48;

/// How the talkers of a view were estimated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingNote {
    /// Frames that were sampled.
    pub samples: u64,
    /// Samples that were lost because the daemon did not read them in time.
    pub lost: u64,
    /// At the busiest moment one frame in this many was sampled; 1 if every frame was.
    pub one_in: u64,
    /// A source without a sample sent fewer packets than this, nineteen times out of twenty.
    pub unseen_packets: u64,
    /// Why there are no talkers, if frames cannot be sampled on this host.
    pub problem: Option<String>,
}

/// One span of time. Rates of reasons and services are exact; those of talkers are estimates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsView {
    /// Version of this form.
    pub version: u32,
    /// When the span ended: UTC, RFC 3339.
    pub at: String,
    /// When the span ended, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Length of the span in milliseconds.
    pub span_ms: u64,
    /// Traffic that was handed on.
    pub passed: Flow,
    /// Traffic that was dropped.
    pub dropped: Flow,
    /// Traffic that the kernel program answered.
    pub replied: Flow,
    /// The traffic of each reason that occurred.
    pub reasons: Vec<ReasonFlow>,
    /// The traffic of each service.
    pub services: Vec<ServiceFlow>,
    /// The sources that send most, largest first.
    pub sources: Vec<Talker>,
    /// The prefixes that send most.
    pub prefixes: Vec<Talker>,
    /// The users that send most.
    pub users: Vec<Talker>,
    /// How the talkers were estimated.
    pub sampling: SamplingNote,
    /// The host's attack state.
    pub attack_state: String,
    /// A sentence about each attack that goes on.
    #[serde(default)]
    pub attacks: Vec<String>,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// The hosts of the cluster, if this one is in one.
    #[serde(default)]
    pub hosts: Vec<ClusterHost>,
}

/// The data that a view is made of.
#[derive(Clone, Copy, Debug)]
pub struct StatsSpan<'s> {
    /// The counters when the span began.
    pub before: &'s Snapshot,
    /// The counters when the span ended.
    pub after: &'s Snapshot,
    /// The sampled frames.
    pub samples: &'s [Sampled],
    /// Samples that were lost.
    pub lost: u64,
    /// Length of the span in milliseconds.
    pub span_ms: u64,
    /// When the span ended, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The policy in force.
    pub policy: &'s Policy,
    /// The attack state.
    pub attack_state: &'s str,
    /// Why frames are not sampled, if they are not.
    pub problem: Option<&'s str>,
}

impl StatsView {
    /// The view of a span. `service` returns the name of a number in the table of ports.
    pub fn of<'s>(span: &StatsSpan<'s>, service: impl Fn(u32) -> Option<&'s str>) -> Self {
        // At least 1, because it divides.
        let seconds = span.span_ms.max(1) as f64 / 1_000.0;
        // Counters that started again have no rates.
        let rates = Rates::between(span.before, span.after, span.span_ms);
        let (passed, dropped, replied) = rates
            .as_ref()
            .map_or_else(Default::default, |rates| (rates.passed, rates.dropped, rates.replied));
        let (mut reasons, services) =
            rates.map_or_else(Default::default, |rates| (rates.reasons, rates.services));
        reasons.sort_by(|a, b| b.flow.packets_per_second.total_cmp(&a.flow.packets_per_second));
        let owners = Owners::of(span.policy.users());
        let names = ViewNames { owners: &owners, service };
        let source = span.policy.source();
        let talkers = |who: &dyn Fn(Prefix) -> Option<Who>| {
            let of = |sample: &Sampled| who(source.around(sample.source?));
            largest(span.samples, scale(span), seconds, &names, of)
        };
        Self {
            version: VERSION,
            at: moment::utc_ms(span.unix_ms),
            unix_ms: span.unix_ms,
            span_ms: span.span_ms,
            passed,
            dropped,
            replied,
            reasons,
            services,
            sources: talkers(&|source| Some(Who::Source(source.shown()))),
            prefixes: talkers(&|source| Some(Who::Prefix(wider(source).to_string()))),
            users: talkers(&|source| owners.owner(&source).map(|name| Who::User(name.to_owned()))),
            sampling: note(span),
            attack_state: span.attack_state.to_owned(),
            attacks: Vec::new(),
            mode: span.policy.mode().name().to_owned(),
            hosts: Vec::new(),
        }
    }
}

fn wider(source: Prefix) -> Prefix {
    let len = if source.is_v4() { PREFIX_V4 } else { PREFIX_V6 };
    source.shortened(len.min(source.len()))
}

struct ViewNames<'o, 's, F> {
    owners: &'o Owners<'s>,
    service: F,
}

impl<'s, F: Fn(u32) -> Option<&'s str>> Naming for ViewNames<'_, 's, F> {
    fn service(&self, number: u32) -> Option<&str> {
        (self.service)(number)
    }

    fn user(&self, who: &Who) -> Option<&str> {
        let prefix = match who {
            Who::Source(name) => name.parse::<Prefix>().ok()?,
            Who::Prefix(_) | Who::User(_) => return None,
        };
        self.owners.owner(&prefix)
    }
}

/// The factor for the weights of samples that makes their sum equal to the counters, and so makes up for lost samples.
fn scale(span: &StatsSpan<'_>) -> f64 {
    let counted = packets(span.after).saturating_sub(packets(span.before));
    let weighed: u64 = span.samples.iter().map(|sample| sample.weight).sum();
    // A span in which every packet was sampled needs no factor; it begins and ends a moment beside the counters' span.
    if weighed == 0 || counted == 0 || (span.lost == 0 && largest_weight(span) == 1) {
        return 1.0;
    }
    counted as f64 / weighed as f64
}

fn packets(snapshot: &Snapshot) -> u64 {
    let totals = snapshot.totals();
    totals.passed_packets + totals.dropped_packets + totals.replied_packets
}

fn largest_weight(span: &StatsSpan<'_>) -> u64 {
    span.samples.iter().map(|sample| sample.weight).max().unwrap_or(1)
}

fn note(span: &StatsSpan<'_>) -> SamplingNote {
    let one_in = largest_weight(span);
    // The rule of three: frames that are sampled with probability 1/w and never were, numbered fewer than 3 w.
    let unseen_packets =
        if one_in > 1 || span.lost > 0 { (3.0 * one_in as f64 * scale(span)).ceil() as u64 } else { 0 };
    SamplingNote {
        samples: span.samples.len() as u64,
        lost: span.lost,
        one_in,
        unseen_packets,
        problem: span.problem.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{Counter, Reason, Verdict, counter::Fate};

    use super::*;
    use crate::{compile::Places, config, stats::Count};

    const POLICY: &str = "[source]\nlimits = [\"10 packets/s\"]\n\
        [[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\ntotal = [\"10 packets/s\"]\n\
        [[user]]\nname = \"acme\"\nsources = [\"203.0.113.0/25\"]\nnetwork = [\"10 packets/s\"]\n";

    fn snapshot(passed: u64, dropped: u64) -> Snapshot {
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let count = |service, reason, packets| Count {
            service,
            reason,
            fate: Fate::Decided,
            counter: Counter { packets, bytes: packets * 100 },
        };
        Snapshot::new(
            &[count(0, Reason::Conforming, passed), count(1, Reason::LimitPackets, dropped)],
            &names,
        )
    }

    fn sample(last: u8, weight: u64) -> Sampled {
        Sampled {
            time_ns: 0,
            source: Some([203, 0, 113, last].into()),
            port: 53,
            source_port: 4711,
            is_udp: true,
            service: 1,
            reason: Reason::LimitPackets,
            fate: Fate::Decided,
            verdict: Verdict::Drop,
            len: 100,
            weight,
        }
    }

    fn view(samples: &[Sampled], lost: u64) -> StatsView {
        let policy = config::parse(POLICY, "policy.toml").unwrap().policy;
        let (before, after) = (snapshot(100, 1_000), snapshot(300, 5_000));
        let span = StatsSpan {
            before: &before,
            after: &after,
            samples,
            lost,
            span_ms: 2_000,
            unix_ms: 1_709_210_096_500,
            policy: &policy,
            attack_state: "flood",
            problem: None,
        };
        StatsView::of(&span, |number| (number == 1).then_some("dns"))
    }

    #[test]
    fn rates_are_what_the_counters_grew_by_and_reasons_that_did_not_grow_are_left_out() {
        let view = view(&[], 0);
        assert_eq!((view.passed.packets_per_second, view.dropped.packets_per_second), (100.0, 2_000.0));
        assert_eq!(view.dropped.bytes_per_second, 200_000.0);
        let names: Vec<&str> = view.reasons.iter().map(|reason| reason.reason.as_str()).collect();
        assert_eq!(names, ["limit_packets", "conforming"]);
        let dns = view.services.iter().find(|service| service.service == "dns").unwrap();
        assert_eq!((dns.passed.packets_per_second, dns.dropped.packets_per_second), (0.0, 2_000.0));
        assert_eq!((view.at.as_str(), view.mode.as_str()), ("2024-02-29T12:34:56.500Z", "enforce"));
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["reasons"][0]["packets_per_second"], 2_000.0);
        assert_eq!(serde_json::from_value::<StatsView>(json).unwrap(), view);
    }

    #[test]
    fn sources_prefixes_and_users_are_added_up_from_the_samples() {
        let view = view(&[sample(7, 1), sample(7, 1), sample(200, 1)], 0);
        let names = |talkers: &[Talker]| -> Vec<(String, u64, Option<String>)> {
            talkers.iter().map(|one| (one.name().to_owned(), one.dropped_packets, one.user.clone())).collect()
        };
        let acme = Some("acme".to_owned());
        assert_eq!(
            names(&view.sources),
            [("203.0.113.7".to_owned(), 2, acme), ("203.0.113.200".to_owned(), 1, None)]
        );
        assert_eq!(names(&view.prefixes), [("203.0.113.0/24".to_owned(), 3, None)]);
        assert_eq!(names(&view.users), [("acme".to_owned(), 2, Some("acme".to_owned()))]);
        assert_eq!(view.sampling, SamplingNote { samples: 3, one_in: 1, ..SamplingNote::default() });
    }

    #[test]
    fn what_was_lost_is_made_up_for_by_what_was_counted() {
        // The counters have 4200 packets, and the samples stand for 2100.
        let view = view(&[sample(7, 2_048), sample(200, 52)], 9);
        let packets: Vec<u64> = view.sources.iter().map(Talker::packets).collect();
        assert_eq!(packets, [4_096, 104]);
        assert_eq!((view.sampling.one_in, view.sampling.unseen_packets), (2_048, 12_288));
    }

    #[test]
    fn what_is_rejected_and_what_is_dropped_for_one_reason_are_counted_apart() {
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let count = |fate, packets| Count {
            service: 1,
            reason: Reason::LimitPackets,
            fate,
            counter: Counter { packets, bytes: packets },
        };
        let at = |dropped, rejected| {
            Snapshot::new(&[count(Fate::Decided, dropped), count(Fate::Rejected, rejected)], &names)
        };
        let policy = config::parse(POLICY, "policy.toml").unwrap().policy;
        let span = StatsSpan {
            before: &at(7, 5_000_000),
            after: &at(9, 5_000_010),
            samples: &[],
            lost: 0,
            span_ms: 1_000,
            unix_ms: 0,
            policy: &policy,
            attack_state: "normal",
            problem: None,
        };
        let view = StatsView::of(&span, |_| None);
        assert_eq!(view.dropped.packets_per_second, 12.0, "nobody sent five million");
    }
}
