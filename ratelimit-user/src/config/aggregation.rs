//! The meaning of `ladder`.

use super::{document::AggregationWord, problem::Problems, value::Strings};
use crate::policy::{AggregationFamily, AggregationLevel, AggregationPolicy, SourcePolicy};

/// Prefix aggregation, if it makes sense. A family that is not mentioned keeps its default.
pub(super) fn resolve(
    word: &AggregationWord,
    source: &SourcePolicy,
    problems: &mut Problems<'_>,
) -> Option<AggregationPolicy> {
    let default = AggregationPolicy::default_for(source.ipv4_prefix(), source.ipv6_prefix());
    match word {
        AggregationWord::Switch(false) => Some(AggregationPolicy::OFF),
        AggregationWord::Absent | AggregationWord::Switch(true) => Some(default),
        AggregationWord::Levels { ipv4, ipv6 } => {
            let aggregation =
                family(default, AggregationFamily::V4, ipv4.as_ref(), source.ipv4_prefix(), problems)?;
            family(aggregation, AggregationFamily::V6, ipv6.as_ref(), source.ipv6_prefix(), problems)
        }
    }
}

fn family(
    aggregation: AggregationPolicy,
    family: AggregationFamily,
    texts: Option<&Strings>,
    source: u8,
    problems: &mut Problems<'_>,
) -> Option<AggregationPolicy> {
    let Some(texts) = texts else { return Some(aggregation) };
    let mut prefix_levels = Vec::new();
    for (text, at) in &texts.entries {
        match text.as_ref()?.parse::<AggregationLevel>() {
            Ok(prefix_level) => prefix_levels.push(prefix_level),
            Err(error) => problems.error(at, error),
        }
    }
    if prefix_levels.len() != texts.entries.len() {
        return None;
    }
    aggregation.with(family, prefix_levels, source).map_err(|error| problems.error(&texts.at, error)).ok()
}
