//! `[source]`: its keys and their meaning, except `ladder`.

use std::ops::Range;

use ratelimit_common::{abi::MAX_LIMITS, limit::rate::Rate};

use super::{
    aggregation::{self, AggregationWord},
    lists::rates,
    problem::Problems,
    table::policy_table,
    value::{At, KeyLookup, Strings, boolean, integer, strings},
};
use crate::policy::{DEFAULT_NEW_SOURCES, DEFAULT_TABLE_ENTRIES, PrefilterPolicy, SourceError, SourcePolicy};

/// The advice for a file without limits of packets.
pub(super) const EXAMPLE: &str = "write [source] and limits = [\"5000 packets/s burst 10000\"]";

policy_table! {
    /// The table `[source]`.
    SourceSection {
        at,
        "limits" => limits: KeyLookup<Strings> = strings,
        "ipv4_prefix" => ipv4_prefix: Option<At<i64>> = integer,
        "ipv6_prefix" => ipv6_prefix: Option<At<i64>> = integer,
        "table_entries" => table_entries: Option<At<i64>> = integer,
        "gate" => prefilter: Option<At<bool>> = boolean,
        "ladder" => aggregation: AggregationWord = aggregation::read,
        "new_sources_per_cpu" => new_sources_per_cpu: Option<At<i64>> = integer,
    }
}

/// The prefilter's settings.
pub(super) fn prefilter(table: &SourceSection, problems: &mut Problems<'_>) -> PrefilterPolicy {
    let enabled = table.prefilter.as_ref().is_none_or(|(enabled, _)| *enabled);
    let new_sources = table.new_sources_per_cpu.as_ref().map_or(i64::from(DEFAULT_NEW_SOURCES), |(n, _)| *n);
    PrefilterPolicy::new(enabled, new_sources).unwrap_or_else(|error| {
        problems.error(place(&table.new_sources_per_cpu, &table.at), error);
        PrefilterPolicy::default()
    })
}

/// The limits of sources, if the table is valid.
pub(super) fn resolve(table: &SourceSection, problems: &mut Problems<'_>) -> Option<SourcePolicy> {
    let limits = match &table.limits {
        KeyLookup::Read(limits) => source_rates(limits, problems),
        // Without valid limits, the rest of the table is still checked.
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
            .warning(at, format!("ipv6_prefix = {bits}: a sender with one /64 has 2^{} sources", bits - 64));
    }
    let value = |at: &Option<At<i64>>, default: i64| at.as_ref().map_or(default, |(value, _)| *value);
    // More limits than this are refused already, and comparing every pair of them would take long.
    let plain: Vec<Rate> = limits.iter().map(|(rate, _)| *rate).take(MAX_LIMITS).collect();
    let built = SourcePolicy::new(
        &plain,
        value(&table.ipv4_prefix, 32),
        value(&table.ipv6_prefix, 64),
        value(&table.table_entries, i64::from(DEFAULT_TABLE_ENTRIES)),
    );
    built.map_err(|errors| report(&errors, table, &limits, problems)).ok()
}

/// The limits of a source that can be parsed, each with its place.
fn source_rates(limits: &Strings, problems: &mut Problems<'_>) -> Vec<At<Rate>> {
    if limits.entries.is_empty() {
        problems.error(&limits.at, SourceError::NoLimits);
    }
    // Counts all entries, including ones that are refused by themselves.
    if let Some((_, first_too_many)) = limits.entries.get(MAX_LIMITS) {
        problems.error(first_too_many, SourceError::TooManyLimits { count: limits.entries.len() });
    }
    rates(limits, problems)
}

/// Reports each error at the place of its cause.
fn report(errors: &[SourceError], table: &SourceSection, rates: &[At<Rate>], problems: &mut Problems<'_>) {
    for error in errors {
        let at = match error {
            // The length of the list is checked already, except for margins, which count as limits too.
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
