//! The key `ladder` of `[source]`: its shape and its meaning.

use toml::{Spanned, de::DeValue};

use super::{
    problem::Problems,
    table::{PolicyTable as _, policy_table},
    value::{Strings, kind, strings},
};
use crate::policy::{AggregationFamily, AggregationLevel, AggregationPolicy, SourcePolicy};

/// The value of `ladder`: a switch, or a table with aggregation levels.
#[derive(Debug, Default)]
pub(super) enum AggregationWord {
    #[default]
    Absent,
    Switch(bool),
    Levels(LevelsTable),
}

policy_table! {
    /// `ladder = { … }`.
    LevelsTable {
        "ipv4" => ipv4: Option<Strings> = strings,
        "ipv6" => ipv6: Option<Strings> = strings,
    }
}

/// Reads the value of `ladder`.
pub(super) fn read(_key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> AggregationWord {
    match value.get_ref() {
        DeValue::Boolean(on) => AggregationWord::Switch(*on),
        DeValue::Table(fields) => AggregationWord::Levels(LevelsTable::read(fields, &value.span(), problems)),
        other => {
            let message = format!(
                "ladder is {}; write ladder = false, or ladder = {{ ipv4 = [\"/24 x32\"], ipv6 = [\"/48 x64\"] }}",
                kind(other)
            );
            problems.error(&value.span(), message);
            AggregationWord::Absent
        }
    }
}

/// The prefix aggregation of the policy, if `ladder` is valid. A family that is not mentioned keeps its default.
pub(super) fn resolve(
    word: &AggregationWord,
    source: &SourcePolicy,
    problems: &mut Problems<'_>,
) -> Option<AggregationPolicy> {
    let default = AggregationPolicy::default_for(source.ipv4_prefix(), source.ipv6_prefix());
    match word {
        AggregationWord::Switch(false) => Some(AggregationPolicy::OFF),
        AggregationWord::Absent | AggregationWord::Switch(true) => Some(default),
        AggregationWord::Levels(LevelsTable { ipv4, ipv6 }) => {
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
