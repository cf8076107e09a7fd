//! A draft: a policy made of proposals, with the numbers behind them as comments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use ratelimit_common::abi::service::Protocol;
use serde::Serialize;

use super::{
    distribution::Quantiles,
    habits::SubjectRates,
    proposal::Proposal,
    subject::{ProposalSubject, port_name},
};
use crate::{
    policy::{Carrier, Service, Services},
    replay::{Replay, limit_of},
};

/// The most services that are proposed from ports; those with the most sources come first.
const MAX_PORTS: usize = 12;
/// Units per second that a normal source may need.
const LEAST_PACKETS: u64 = 100;
const LEAST_PACKETS_OF_SERVICE: u64 = 20;
const LEAST_SYNS: u64 = 10;
/// Sources that are named as examples for each limit.
const EXAMPLES: usize = 5;

/// The proposals for all traffic, or for one service.
#[derive(Clone, Debug)]
struct Section {
    /// The name of the service; `None` for all traffic.
    service: Option<String>,
    /// The key `match` of the service, as in a policy.
    matching: String,
    limits: Vec<(Proposal, Quantiles)>,
    /// Proposals that are not needed, because the limit of every source is at least as low.
    spared: Vec<(Proposal, Quantiles)>,
}

/// A policy that has not been replayed yet.
#[derive(Clone, Debug)]
pub struct PolicyDraft {
    /// The traffic that the draft was made from, in one line.
    observed: String,
    sections: Vec<Section>,
}

/// A policy, and the packets that each of its limits would have refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The traffic that the suggestion was made from.
    pub observed: String,
    /// The policy, as a file.
    pub policy: String,
    /// The proposed limits.
    pub limits: Vec<ProposedLimit>,
    /// Packets that other parts of the policy refused, by reason.
    pub other_refusals: BTreeMap<&'static str, u64>,
}

/// A limit that is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProposedLimit {
    /// The limit, by its name in `ratelimit limit list`.
    pub limit: String,
    /// The rate as in the policy.
    pub rate: String,
    /// Why this rate is proposed.
    pub reason: String,
    /// Rates of sources in their busiest second.
    pub rates_per_second: Quantiles,
    /// How many sources the limit would have refused packets of.
    pub sources_hit: u64,
    /// How many packets the limit would have refused.
    pub packets_hit: u64,
    /// Some of the sources that were hit, most refused packets first.
    pub examples: Vec<String>,
}

/// The packets and sources that a limit hit.
#[derive(Clone, Debug, Default)]
struct Hits {
    packets: u64,
    sources: Vec<(u64, String)>,
}

impl PolicyDraft {
    /// A draft for observed rates; `None` if there was no source. Services are those of a policy, or observed ports.
    pub fn of(
        rates: &BTreeMap<ProposalSubject, SubjectRates>,
        services: Option<&Services>,
        observed: &str,
    ) -> Option<Self> {
        let everything = rates.get(&ProposalSubject::Everything)?;
        let mut sections = vec![Section {
            service: None,
            matching: String::new(),
            limits: limits(everything, LEAST_PACKETS),
            spared: Vec::new(),
        }];
        let of_source = sections[0].limits.clone();
        let of_service = |service: String, matching: String, rates: &SubjectRates| {
            // A limit that is not below the limit of every source would never decide.
            let decides = |(one, _): &(Proposal, Quantiles)| {
                of_source.iter().all(|(other, _)| other.unit != one.unit || other.rate > one.rate)
            };
            let (limits, spared) = limits(rates, LEAST_PACKETS_OF_SERVICE).into_iter().partition(decides);
            Section { service: Some(service), matching, limits, spared }
        };
        match services {
            Some(services) => {
                for (service, at) in services.iter().zip(0..) {
                    if let Some(rates) = rates.get(&ProposalSubject::Service(at)) {
                        sections.push(of_service(service.name().to_owned(), matching(service), rates));
                    }
                }
            }
            None => {
                for (protocol, port, rates) in ports(rates) {
                    let matching =
                        format!("{{ protocol = \"{}\", ports = [{port}] }}", Carrier::Ports(protocol));
                    sections.push(of_service(port_name(protocol, port), matching, rates));
                }
            }
        }
        Some(Self { observed: observed.to_owned(), sections })
    }

    /// The policy, without comments about hits.
    pub fn policy(&self) -> String {
        self.text(&BTreeMap::new(), &BTreeMap::new(), false)
    }

    /// The policy with the hits on the packets that it was made from. The replay is of [`policy`](Self::policy), in mode `enforce`.
    pub fn suggestion(&self, replay: &Replay) -> Suggestion {
        let (hits, other_refusals) = hits(replay);
        let limits = self.sections.iter().flat_map(|section| {
            section.limits.iter().map(|(proposal, quantiles)| {
                let limit = section.limit_name(proposal);
                let hit = hits.get(&limit).cloned().unwrap_or_default();
                ProposedLimit {
                    rate: proposal.limit(),
                    reason: proposal.reason.clone(),
                    rates_per_second: *quantiles,
                    sources_hit: hit.sources.len() as u64,
                    packets_hit: hit.packets,
                    examples: hit.sources.iter().take(EXAMPLES).map(|(_, source)| source.clone()).collect(),
                    limit,
                }
            })
        });
        Suggestion {
            observed: self.observed.clone(),
            policy: self.text(&hits, &other_refusals, true),
            limits: limits.collect(),
            other_refusals,
        }
    }

    fn text(
        &self,
        hits: &BTreeMap<String, Hits>,
        others: &BTreeMap<&'static str, u64>,
        tried: bool,
    ) -> String {
        let mut text = format!("# Suggested by ratelimit from {}.\n", self.observed);
        text.push_str("# Rates are packets, or SYNs, of one source in its busiest second. With mode = \"monitor\" nothing is dropped, and\n");
        text.push_str("# `ratelimit stats` counts what would be. Remove that line to enforce.\n");
        for (reason, packets) in others {
            let _ = writeln!(text, "# Beside these limits, {reason} would have refused {packets} packets.");
        }
        text.push_str("mode = \"monitor\"\n");
        for section in &self.sections {
            let told = |text: &mut String, (proposal, quantiles): &(Proposal, Quantiles)| {
                let Quantiles { sources, p50, p99, p99_9, max } = quantiles;
                let rates = format!("p50 {p50}, p99 {p99}, p99.9 {p99_9}, max {max}");
                let _ = writeln!(text, "# {}/s of {sources} sources: {rates}", proposal.unit);
            };
            match &section.service {
                None => text.push_str("\n[source]\n"),
                Some(name) if section.limits.is_empty() => {
                    let _ = writeln!(text, "\n# {name}, match = {}", section.matching);
                }
                Some(name) => {
                    let _ = write!(text, "\n[[service]]\nname = \"{name}\"\nmatch = {}\n", section.matching);
                }
            }
            for limit in &section.limits {
                let (proposal, Quantiles { sources, .. }) = limit;
                told(&mut text, limit);
                let _ = writeln!(text, "#   {}: {}", proposal.limit(), proposal.reason);
                if tried {
                    let _ =
                        writeln!(text, "#   {}", effect(hits.get(&section.limit_name(proposal)), *sources));
                }
            }
            for limit in &section.spared {
                told(&mut text, limit);
                let _ = writeln!(
                    text,
                    "#   no limit here: \"{}\" would not be below that of [source]",
                    limit.0.limit()
                );
            }
            let limits: Vec<String> =
                section.limits.iter().map(|(proposal, _)| format!("\"{}\"", proposal.limit())).collect();
            let key = if section.service.is_some() { "per_source" } else { "limits" };
            if !limits.is_empty() {
                let _ = writeln!(text, "{key} = [{}]", limits.join(", "));
            }
        }
        text
    }
}

impl Section {
    fn limit_name(&self, proposal: &Proposal) -> String {
        match &self.service {
            None => format!("source.{}", proposal.unit),
            Some(name) => format!("service.{name}.per_source.{}", proposal.unit),
        }
    }
}

fn effect(hits: Option<&Hits>, sources: u64) -> String {
    match hits {
        None => format!("would have hit none of {sources} sources"),
        Some(hits) => {
            let names: Vec<&str> =
                hits.sources.iter().take(EXAMPLES).map(|(_, name)| name.as_str()).collect();
            let more = if hits.sources.len() > EXAMPLES { ", ..." } else { "" };
            format!(
                "would have hit {} of {sources} sources and refused {} packets: {}{more}",
                hits.sources.len(),
                hits.packets,
                names.join(", ")
            )
        }
    }
}

fn limits(rates: &SubjectRates, least: u64) -> Vec<(Proposal, Quantiles)> {
    let mut limits = vec![(Proposal::of(&rates.packets, "packets", least), rates.packets.quantiles())];
    if rates.syns.sources() > 0 {
        limits.push((Proposal::of(&rates.syns, "syns", LEAST_SYNS), rates.syns.quantiles()));
    }
    limits
}

/// Ports that look like services: TCP ports with requests for connections, and ports with more than one packet of one source.
fn ports(rates: &BTreeMap<ProposalSubject, SubjectRates>) -> Vec<(Protocol, u16, &SubjectRates)> {
    let mut ports: Vec<_> = rates
        .iter()
        .filter_map(|(subject, rates)| match subject {
            ProposalSubject::Port(protocol, port) => Some((*protocol, *port, rates)),
            _ => None,
        })
        .filter(|(protocol, _, rates)| {
            let asked = *protocol == Protocol::Udp || rates.syns.sources() > 0;
            asked && (rates.packets.sources() > 1 || rates.packets.quantile(1000) > 1)
        })
        .collect();
    ports.sort_by_key(|(_, port, rates)| (u64::MAX - rates.packets.sources(), *port));
    ports.truncate(MAX_PORTS);
    ports
}

/// The key `match` of a service, as in a policy.
fn matching(service: &Service) -> String {
    let mut text = format!("{{ protocol = \"{}\"", service.carrier());
    let ports: Vec<String> = service
        .ports()
        .iter()
        .map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("\"{first}-{last}\""),
        })
        .collect();
    if !ports.is_empty() {
        let _ = write!(text, ", ports = [{}]", ports.join(", "));
    }
    let destinations: BTreeSet<String> =
        service.destinations().iter().map(|prefix| format!("\"{prefix}\"")).collect();
    if !destinations.is_empty() {
        let _ =
            write!(text, ", destinations = [{}]", destinations.into_iter().collect::<Vec<_>>().join(", "));
    }
    text + " }"
}

/// The packets that each limit hit, and those that other parts of the policy refused.
fn hits(replay: &Replay) -> (BTreeMap<String, Hits>, BTreeMap<&'static str, u64>) {
    let (mut hits, mut others): (BTreeMap<String, Hits>, BTreeMap<&'static str, u64>) = Default::default();
    let names = &replay.desired().names.services;
    for (source, count) in replay.sources().iter() {
        let mut of_source: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, packets) in count.causes.iter().filter(|(cause, _)| cause.refuses()) {
            match limit_of(replay.policy(), names, cause) {
                Some((limit, rates)) if !rates.is_empty() => *of_source.entry(limit).or_insert(0) += packets,
                _ => *others.entry(cause.reason.name()).or_insert(0) += packets,
            }
        }
        for (limit, packets) in of_source {
            let hit = hits.entry(limit).or_default();
            hit.packets += packets;
            hit.sources.push((packets, replay.shown(*source)));
        }
    }
    for hit in hits.values_mut() {
        hit.sources.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    }
    (hits, others)
}
