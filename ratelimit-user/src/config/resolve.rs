//! The meaning of a policy file: from words and numbers to a policy.

use std::{collections::HashSet, ops::Range};

use ratelimit_common::{
    abi::{MAX_LIMITS, Mode},
    limit::rate::Rate,
};

use super::{
    aggregation, apis, cluster,
    document::{Document, SourceSection},
    host, listen,
    lists::rates,
    notify,
    pieces::Aside,
    problem::Problems,
    request_limits, services, users,
    value::{At, KeyLookup, Strings},
};
use crate::policy::{
    DEFAULT_NEW_SOURCES, DEFAULT_TABLE_ENTRIES, InterfaceName, Policy, PrefilterPolicy, SourceError,
    SourcePolicy,
};

const EXAMPLE: &str = "write [source] and limits = [\"5000 packets/s burst 10000\"]";

/// The policy, if everything in the document makes sense.
pub(super) fn resolve(document: &Document, aside: &Aside, problems: &mut Problems<'_>) -> Option<Policy> {
    let interfaces = document.interfaces.as_ref().map_or_else(Vec::new, |names| interfaces(names, problems));
    let listen = listen::resolve(&document.listen, problems);
    let source = match &document.source {
        KeyLookup::Read(table) => source(table, problems),
        KeyLookup::Unreadable => None,
        KeyLookup::Absent => {
            let what = match document.apis.is_empty() {
                true => "nothing would be limited",
                false => "packets would not be limited, and only `ratelimit serve` does without",
            };
            problems.missing(&(0..0), format!("[source] is missing: {what}; {EXAMPLE}"));
            None
        }
    };
    let prefilter = match &document.source {
        KeyLookup::Read(table) => prefilter(table, problems),
        KeyLookup::Unreadable | KeyLookup::Absent => PrefilterPolicy::default(),
    };
    let host = host::resolve(&document.host, problems);
    let services = services::resolve(&document.services, problems);
    let zone = document.requests.as_ref().and_then(|table| table.time_zone.as_ref());
    let zone = request_limits::zone(zone, problems);
    let users = users::resolve(document, zone, aside, problems);
    let requests = apis::resolve(document, zone, problems);
    let cluster = cluster::resolve(&document.cluster, problems);
    if let (Some(users), Some(Some(cluster))) = (&users, &cluster) {
        cluster::judge(document, users, cluster, problems);
    }
    let attacks = notify::attacks(document.attacks.as_ref(), problems);
    let notifiers = notify::resolve(&document.notify, problems);
    let mode = mode(document.mode.as_ref(), problems);
    let source = source?;
    let aggregation = match &document.source {
        KeyLookup::Read(table) => aggregation::resolve(&table.aggregation, &source, problems),
        KeyLookup::Unreadable | KeyLookup::Absent => None,
    };
    let policy = Policy::new(interfaces, source, prefilter, aggregation?, services?, listen?);
    let policy = policy
        .with_host(host?)
        .with_users(users?)
        .with_mode(mode?)
        .with_cluster(cluster?)
        .with_requests(requests?)
        .with_attacks(attacks, notifiers);
    if let Err(error) = policy.windows_fit() {
        problems.error(&(0..0), error);
        return None;
    }
    Some(policy)
}

fn mode(word: Option<&At<String>>, problems: &mut Problems<'_>) -> Option<Mode> {
    match word.map(|(word, at)| (word.as_str(), at)) {
        None | Some(("enforce", _)) => Some(Mode::Enforce),
        Some(("monitor", _)) => Some(Mode::Monitor),
        Some((other, at)) => {
            problems.error(at, format!("mode = {other:?} is not known; use \"enforce\" or \"monitor\""));
            None
        }
    }
}

fn prefilter(table: &SourceSection, problems: &mut Problems<'_>) -> PrefilterPolicy {
    let enabled = table.prefilter.as_ref().is_none_or(|(enabled, _)| *enabled);
    let new_sources = table.new_sources_per_cpu.as_ref().map_or(i64::from(DEFAULT_NEW_SOURCES), |(n, _)| *n);
    PrefilterPolicy::new(enabled, new_sources).unwrap_or_else(|error| {
        problems.error(place(&table.new_sources_per_cpu, &table.at), error);
        PrefilterPolicy::default()
    })
}

fn interfaces(names: &Strings, problems: &mut Problems<'_>) -> Vec<InterfaceName> {
    let mut seen = HashSet::new();
    let mut interfaces = Vec::new();
    for (text, at) in &names.entries {
        let Some(text) = text else { continue };
        match text.parse::<InterfaceName>() {
            Ok(_) if !seen.insert(text) => {
                problems.error(at, format!("interface {text:?} is named twice; remove one"));
            }
            Ok(name) => interfaces.push(name),
            Err(error) => problems.error(at, error),
        }
    }
    interfaces
}

fn source(table: &SourceSection, problems: &mut Problems<'_>) -> Option<SourcePolicy> {
    let limits = match &table.limits {
        KeyLookup::Read(limits) => source_rates(limits, problems),
        // Also without its limits, the rest of the table is worth a look.
        KeyLookup::Unreadable => Vec::new(),
        KeyLookup::Absent => {
            problems
                .missing(&table.at, format!("[source] has no limits: nothing would be limited; {EXAMPLE}"));
            Vec::new()
        }
    };
    if let Some((bits, at)) = &table.ipv6_prefix
        && (65..=128).contains(bits)
    {
        problems
            .warning(at, format!("ipv6_prefix = {bits}: whoever has one /64 owns 2^{} sources", bits - 64));
    }
    let value = |at: &Option<At<i64>>, default: i64| at.as_ref().map_or(default, |(value, _)| *value);
    // Beyond that they are refused already; every pair of them need not be compared.
    let plain: Vec<Rate> = limits.iter().map(|(rate, _)| *rate).take(MAX_LIMITS).collect();
    let built = SourcePolicy::new(
        &plain,
        value(&table.ipv4_prefix, 32),
        value(&table.ipv6_prefix, 64),
        value(&table.table_entries, i64::from(DEFAULT_TABLE_ENTRIES)),
    );
    built.map_err(|errors| report(&errors, table, &limits, problems)).ok()
}

/// The limits of a source that can be read, each with its place.
fn source_rates(limits: &Strings, problems: &mut Problems<'_>) -> Vec<At<Rate>> {
    if limits.entries.is_empty() {
        problems.error(&limits.at, SourceError::NoLimits);
    }
    // Counted before any is refused for itself: the file has that many.
    if let Some((_, first_too_many)) = limits.entries.get(MAX_LIMITS) {
        problems.error(first_too_many, SourceError::TooManyLimits { count: limits.entries.len() });
    }
    rates(limits, problems)
}

/// Puts each error where its cause stands.
fn report(errors: &[SourceError], table: &SourceSection, rates: &[At<Rate>], problems: &mut Problems<'_>) {
    for error in errors {
        let at = match error {
            // The whole list has been judged already, but for margins.
            SourceError::NoLimits => continue,
            SourceError::TooManyLimits { .. } => match rates.last() {
                Some((_, at)) if rates.len() <= MAX_LIMITS => at,
                _ => continue,
            },
            SourceError::Rate { index, .. } | SourceError::NeverDecides { index, .. } => &rates[*index].1,
            SourceError::Prefix { key: "ipv4_prefix", .. } => place(&table.ipv4_prefix, &table.at),
            SourceError::Prefix { .. } => place(&table.ipv6_prefix, &table.at),
            SourceError::TableEntries { .. } => place(&table.table_entries, &table.at),
        };
        problems.error(at, error);
    }
}

fn place<'a>(value: &'a Option<At<i64>>, otherwise: &'a Range<usize>) -> &'a Range<usize> {
    value.as_ref().map_or(otherwise, |(_, at)| at)
}
