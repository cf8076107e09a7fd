//! The meaning of a policy file: from words and numbers to a policy.

use std::{net::SocketAddr, ops::Range};

use ratelimit_common::limit::{rate::Rate, text::parse_limit};

use super::{
    document::{At, Document, SourceTable},
    problem::Problems,
};
use crate::policy::{DEFAULT_TABLE_ENTRIES, InterfaceName, Listen, Policy, SourceError, SourcePolicy};

const EXAMPLE: &str = "write [source] and limits = [\"5000 packets/s burst 10000\"]";

/// The policy, if everything in the document makes sense.
pub(super) fn resolve(document: &Document, problems: &mut Problems<'_>) -> Option<Policy> {
    let interfaces = interfaces(&document.interfaces, problems);
    let listen = listen(document.metrics.as_ref(), problems);
    let source = match &document.source {
        Some(table) => source(table, problems),
        None => {
            problems.error(&(0..0), format!("[source] is missing: nothing would be limited; {EXAMPLE}"));
            None
        }
    };
    Some(Policy::new(interfaces, source?, listen))
}

fn interfaces(names: &[At<String>], problems: &mut Problems<'_>) -> Vec<InterfaceName> {
    let mut interfaces = Vec::new();
    for (text, at) in names {
        match text.parse::<InterfaceName>() {
            Ok(name) if interfaces.contains(&name) => {
                problems.error(at, format!("interface {text:?} is named twice; remove one"));
            }
            Ok(name) => interfaces.push(name),
            Err(error) => problems.error(at, error),
        }
    }
    interfaces
}

fn listen(metrics: Option<&At<String>>, problems: &mut Problems<'_>) -> Listen {
    let Some((text, at)) = metrics else { return Listen::default() };
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => {
            let message = format!(
                "metrics = {text:?} is not an address with a port; use one such as \"127.0.0.1:9464\""
            );
            problems.error(at, message);
            return Listen::default();
        }
    };
    if !address.ip().is_loopback() {
        problems.warning(at, format!("metrics on {address} can be read by anybody who reaches it"));
    }
    Listen::new(Some(address))
}

fn source(table: &SourceTable, problems: &mut Problems<'_>) -> Option<SourcePolicy> {
    let Some((texts, limits_at)) = &table.limits else {
        problems.error(&table.at, format!("[source] has no limits: nothing would be limited; {EXAMPLE}"));
        return None;
    };
    let mut rates: Vec<At<Rate>> = Vec::new();
    for (text, at) in texts {
        match parse_limit(text) {
            Ok((rate, _)) => rates.push((rate, at.clone())),
            Err(error) => {
                let place = inside(text, error.offset(), at, problems);
                problems.error(&place, error);
            }
        }
    }
    if let Some((bits, at)) = &table.ipv6_prefix
        && (65..=128).contains(bits)
    {
        problems
            .warning(at, format!("ipv6_prefix = {bits}: whoever has one /64 owns 2^{} sources", bits - 64));
    }
    let value = |at: &Option<At<i64>>, default: i64| at.as_ref().map_or(default, |(value, _)| *value);
    let plain: Vec<Rate> = rates.iter().map(|(rate, _)| *rate).collect();
    let built = SourcePolicy::new(
        &plain,
        value(&table.ipv4_prefix, 32),
        value(&table.ipv6_prefix, 64),
        value(&table.table_entries, i64::from(DEFAULT_TABLE_ENTRIES)),
    );
    built.map_err(|errors| report(&errors, table, &rates, limits_at, !texts.is_empty(), problems)).ok()
}

/// Puts each error where its cause stands.
fn report(
    errors: &[SourceError],
    table: &SourceTable,
    rates: &[At<Rate>],
    limits_at: &Range<usize>,
    some_limits: bool,
    problems: &mut Problems<'_>,
) {
    for error in errors {
        let at = match error {
            // The list only looks empty because its entries were refused one by one.
            SourceError::NoLimits if some_limits => continue,
            SourceError::Rate { index, .. } | SourceError::NeverDecides { index, .. } => &rates[*index].1,
            SourceError::Prefix { key: "ipv4_prefix", .. } => place(&table.ipv4_prefix, limits_at),
            SourceError::Prefix { .. } => place(&table.ipv6_prefix, limits_at),
            SourceError::TableEntries { .. } => place(&table.table_entries, limits_at),
            SourceError::NoLimits
            | SourceError::TooManyLimits { .. }
            | SourceError::UnknownLimit { .. }
            | SourceError::WrongMeter { .. } => limits_at,
        };
        problems.error(at, error);
    }
}

fn place<'a>(value: &'a Option<At<i64>>, otherwise: &'a Range<usize>) -> &'a Range<usize> {
    value.as_ref().map_or(otherwise, |(_, at)| at)
}

/// Where a piece of a string stands in the file: exact, unless escapes make the string differ from its source.
fn inside(text: &str, offset: usize, at: &Range<usize>, problems: &Problems<'_>) -> Range<usize> {
    let plain = problems.source(at).get(1..).is_some_and(|rest| rest.starts_with(text));
    if plain && offset > 0 { at.start + 1 + offset..at.end } else { at.clone() }
}
