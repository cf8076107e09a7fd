//! The shape of a policy file: which keys it has, where, and of which type.

use std::{borrow::Cow, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::problem::Problems;

/// A value and where it stands.
pub(super) type At<T> = (T, Range<usize>);

/// What a policy file says, each value with its place, nothing judged yet.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) interfaces: Vec<At<String>>,
    pub(super) source: Option<SourceTable>,
    pub(super) metrics: Option<At<String>>,
}

/// `[source]`.
#[derive(Debug, Default)]
pub(super) struct SourceTable {
    pub(super) at: Range<usize>,
    pub(super) limits: Option<At<Vec<At<String>>>>,
    pub(super) ipv4_prefix: Option<At<i64>>,
    pub(super) ipv6_prefix: Option<At<i64>>,
    pub(super) table_entries: Option<At<i64>>,
}

/// Keys of the whole product that this version does not have.
const LATER: &[&str] = &["mode", "service", "plan", "user", "api", "cluster"];
const LATER_LISTEN: &[&str] = &["http", "grpc", "resp"];

/// Reads what can be read of a text.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Document {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.error(&error.span().unwrap_or_default(), format!("not TOML: {}", error.message()));
    }
    let mut document = Document::default();
    let known = ["interfaces", "source", "listen"];
    for (key, value) in root.get_ref() {
        match key.get_ref().as_ref() {
            "interfaces" => {
                document.interfaces =
                    strings("interfaces", value, problems).map(|at| at.0).unwrap_or_default();
            }
            "source" => {
                document.source = table("source", value, problems).map(|t| source(t, value.span(), problems));
            }
            "listen" => {
                if let Some(table) = table("listen", value, problems) {
                    document.metrics = listen(table, problems);
                }
            }
            _ => unknown(key, &known, LATER, problems),
        }
    }
    document
}

fn source(table: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> SourceTable {
    let mut source = SourceTable { at, ..SourceTable::default() };
    let known = ["limits", "ipv4_prefix", "ipv6_prefix", "table_entries"];
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "limits" => source.limits = strings("limits", value, problems),
            "ipv4_prefix" => source.ipv4_prefix = integer("ipv4_prefix", value, problems),
            "ipv6_prefix" => source.ipv6_prefix = integer("ipv6_prefix", value, problems),
            "table_entries" => source.table_entries = integer("table_entries", value, problems),
            _ => unknown(key, &known, &[], problems),
        }
    }
    source
}

fn listen(table: &DeTable<'_>, problems: &mut Problems<'_>) -> Option<At<String>> {
    let mut metrics = None;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "metrics" => metrics = string("metrics", value, problems),
            _ => unknown(key, &["metrics"], LATER_LISTEN, problems),
        }
    }
    metrics
}

fn unknown(key: &Spanned<Cow<'_, str>>, known: &[&str], later: &[&str], problems: &mut Problems<'_>) {
    let name = key.get_ref();
    if later.contains(&name.as_ref()) {
        return problems
            .error(&key.span(), format!("{name:?} is not supported by this version yet; remove it"));
    }
    let near = known.iter().map(|word| (distance(word, name), word)).min();
    let hint = match near {
        Some((distance, word)) if distance <= 2 => format!("did you mean {word:?}?"),
        _ => format!("known here: {}", known.join(", ")),
    };
    problems.error(&key.span(), format!("key {name:?} is not known; {hint}"));
}

fn table<'v, 'i>(
    key: &str,
    value: &'v Spanned<DeValue<'i>>,
    problems: &mut Problems<'_>,
) -> Option<&'v DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        other => {
            problems.error(&value.span(), format!("{key} is {}; write it as a table, [{key}]", kind(other)));
            None
        }
    }
}

fn string(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<At<String>> {
    match value.get_ref() {
        DeValue::String(text) => Some((text.to_string(), value.span())),
        other => {
            problems.error(&value.span(), format!("{key} is {}; write a string in quotes", kind(other)));
            None
        }
    }
}

fn strings(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems<'_>,
) -> Option<At<Vec<At<String>>>> {
    let DeValue::Array(items) = value.get_ref() else {
        let message = format!("{key} is {}; write a list of strings, {key} = [\"…\"]", kind(value.get_ref()));
        problems.error(&value.span(), message);
        return None;
    };
    let texts = items.iter().filter_map(|item| string(&format!("an entry of {key}"), item, problems));
    Some((texts.collect(), value.span()))
}

fn integer(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<At<i64>> {
    let number = match value.get_ref() {
        DeValue::Integer(digits) => {
            i64::from_str_radix(&digits.as_str().replace('_', ""), digits.radix()).ok()
        }
        other => {
            problems.error(&value.span(), format!("{key} is {}; write a whole number", kind(other)));
            return None;
        }
    };
    if number.is_none() {
        let message = format!("{key} = {} is too large for any use", problems.source(&value.span()));
        problems.error(&value.span(), message);
    }
    Some((number?, value.span()))
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Edits that lead from one word to another (Levenshtein): small for a typing mistake.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
