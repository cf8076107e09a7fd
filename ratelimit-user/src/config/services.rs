//! `[[service]]`: its keys, and what they mean.

use std::ops::{Range, RangeInclusive};

use ratelimit_common::{
    abi::service::{Challenge, KNOWN_PARTS, OnLimit, Protocol},
    limit::{rate::Rate, text::parse_limit},
};
use toml::{Spanned, de::DeValue};

use super::{
    lists::{prefixes, rates},
    problem::Problems,
    table::{one, policy_table},
    value::{At, KeyLookup, Strings, boolean, integer, kind, string, strings},
};
use crate::policy::{Carrier, DEFAULT_DSCP, Prefix, Service, ServiceError, Services};

policy_table! {
    /// The table `[[service]]`.
    ServiceTable {
        at,
        "name" => name: Option<At<String>> = string,
        "match" => matching: MatchTable = matching,
        "per_source" => per_source: Option<Strings> = strings,
        "total" => total: Option<Strings> = strings,
        "on_limit" => on_limit: Option<At<String>> = string,
        "dscp" => dscp: Option<At<Term>> = term,
        "known" => known: Option<At<bool>> = boolean,
        "newcomers" => newcomers: Option<At<String>> = string,
        "challenge" => challenge: Option<At<String>> = string,
        "syn_cookies" => syn_cookies: Option<At<String>> = string,
    }
}

policy_table! {
    /// `match = { … }`: the packets of a service.
    MatchTable {
        "protocol" => protocol: Option<At<Term>> = term,
        "ports" => ports: Vec<At<Term>> = ports,
        "destinations" => destinations: KeyLookup<Strings> = strings,
    }
}

/// A value that can be a number or a quoted text.
#[derive(Debug)]
pub(super) enum Term {
    Number(i64),
    Text(String),
}

fn matching(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> MatchTable {
    one(key, value, problems).unwrap_or_default()
}

fn ports(_key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Vec<At<Term>> {
    let DeValue::Array(items) = value.get_ref() else {
        let message =
            format!("ports is {}; write a list, ports = [53, \"8000-8099\"]", kind(value.get_ref()));
        problems.error(&value.span(), message);
        return Vec::new();
    };
    items.iter().filter_map(|item| term("a port", item, problems)).collect()
}

fn term(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<At<Term>> {
    match value.get_ref() {
        DeValue::String(text) => Some((Term::Text(text.to_string()), value.span())),
        _ => integer(key, value, problems).map(|(number, at)| (Term::Number(number), at)),
    }
}

/// The services, if all tables are valid.
pub(super) fn resolve(tables: &[ServiceTable], problems: &mut Problems<'_>) -> Option<Services> {
    let mut services = Vec::new();
    for table in tables {
        services.extend(service(table, problems));
    }
    let complete = services.len() == tables.len();
    match Services::new(services) {
        Ok(services) => complete.then_some(services),
        Err(errors) => {
            for error in errors {
                // The index of an error counts services that could be read; if one could not, the error is reported at the first table.
                let table = error.index().filter(|_| complete).and_then(|index| tables.get(index));
                let at = table.map(|table| place(&error, table));
                problems
                    .error(&at.or(tables.first().map(|table| table.at.clone())).unwrap_or_default(), error);
            }
            None
        }
    }
}

/// The place of an error: its destination, or its service.
fn place(error: &ServiceError, table: &ServiceTable) -> Range<usize> {
    match (error, &table.matching.destinations) {
        (ServiceError::SameDestination { destination, .. }, KeyLookup::Read(list)) => {
            list.entries.get(*destination).map_or(&list.at, |(_, at)| at).clone()
        }
        _ => table.at.clone(),
    }
}

fn service(table: &ServiceTable, problems: &mut Problems<'_>) -> Option<Service> {
    let name = match &table.name {
        Some((name, _)) => name.clone(),
        None => {
            problems.missing(&table.at, "[[service]] has no name; write name = \"dns\"");
            return None;
        }
    };
    let carrier = carrier(table, &name, problems);
    let ports: Vec<_> = table.matching.ports.iter().filter_map(|word| port(word, problems)).collect();
    if ports.len() != table.matching.ports.len() {
        return None;
    }
    let destinations = destinations(table, &name, problems);
    let totals = table.total.as_ref().map_or_else(Vec::new, |total| rates(total, problems));
    let syn_cookies = match &table.syn_cookies {
        Some(word) => Some(threshold(word, problems)?),
        None => None,
    };
    let per_source = table.per_source.as_ref().map_or_else(Vec::new, |limits| rates(limits, problems));
    let on_limit = on_limit(table, problems)?;
    let plain = |rates: Vec<At<Rate>>| rates.into_iter().map(|(rate, _)| rate).collect();
    let service = Service::new(name, carrier?, ports, plain(totals)).with_syn_cookies(syn_cookies);
    let dscp = dscp(table, on_limit, problems)?;
    let challenge = challenge(table, carrier?, on_limit, problems)?;
    let known_parts = known_parts(table, problems)?;
    let service = service.with_destinations(destinations?);
    Some(
        service
            .with_per_source(plain(per_source))
            .with_on_limit(on_limit)
            .with_dscp(dscp)
            .with_challenge(challenge)
            .with_known_clients(table.known.as_ref().is_none_or(|(known, _)| *known), known_parts),
    )
}

fn on_limit(table: &ServiceTable, problems: &mut Problems<'_>) -> Option<OnLimit> {
    let Some((word, at)) = &table.on_limit else { return Some(OnLimit::Drop) };
    let known = OnLimit::ALL.into_iter().find(|on_limit| on_limit.name() == word);
    if known.is_none() {
        let names = OnLimit::ALL.map(|on_limit| format!("{:?}", on_limit.name())).join(", ");
        problems.error(at, format!("on_limit = {word:?} is not known; use one of {names}"));
    }
    known
}

/// The parts of known clients: `newcomers = "1/8"` leaves seven to them.
fn known_parts(table: &ServiceTable, problems: &mut Problems<'_>) -> Option<u64> {
    let Some((word, at)) = &table.newcomers else { return Some(KNOWN_PARTS) };
    let parts = word.strip_prefix("1/").and_then(|parts| parts.parse::<u64>().ok());
    let known_parts = parts.filter(|parts| (2..=64).contains(parts)).map(|parts| parts - 1);
    if known_parts.is_none() {
        problems.error(
            at,
            format!("newcomers = {word:?} is no part of a total; write one from \"1/2\" to \"1/64\""),
        );
    }
    known_parts
}

fn challenge(
    table: &ServiceTable,
    carrier: Carrier,
    on_limit: OnLimit,
    problems: &mut Problems<'_>,
) -> Option<Challenge> {
    let Some((word, at)) = &table.challenge else { return Some(Challenge::None) };
    let Some(challenge) = Challenge::ALL.into_iter().find(|challenge| challenge.name() == word) else {
        let names = Challenge::ALL.map(|challenge| format!("{:?}", challenge.name())).join(", ");
        problems.error(at, format!("challenge = {word:?} is not known; use one of {names}"));
        return None;
    };
    if carrier != Carrier::Ports(Protocol::Udp) {
        problems.error(
            at,
            format!(
                "challenge = {word:?} answers datagrams; write match = {{ protocol = \"udp\", ports = [53] }}"
            ),
        );
        return None;
    }
    if table.total.is_none() {
        let message = format!(
            "challenge = {word:?} answers queries that a total refuses; write total = [\"50000 packets/s\"] beside it"
        );
        problems.error(at, message);
        return None;
    }
    if matches!(on_limit, OnLimit::Monitor | OnLimit::Mark) {
        let message = format!(
            "challenge = {word:?} is for queries that a total refuses, and on_limit = {:?} lets them pass; leave one out",
            on_limit.name()
        );
        problems.error(at, message);
        return None;
    }
    Some(challenge)
}

/// The names of DSCP classes and their values (RFC 2474, 2597, 3246, 5865, 8622).
const CLASSES: [(&str, u8); 23] = [
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("va", 44),
    ("ef", 46),
];

fn dscp(table: &ServiceTable, on_limit: OnLimit, problems: &mut Problems<'_>) -> Option<u8> {
    let Some((word, at)) = &table.dscp else { return Some(DEFAULT_DSCP) };
    if on_limit != OnLimit::Mark {
        problems.error(at, "dscp is for services that mark; write on_limit = \"mark\" beside it".to_owned());
        return None;
    }
    let class = match word {
        Term::Number(number) => u8::try_from(*number).ok().filter(|class| *class < 64),
        Term::Text(name) => {
            let name = name.to_ascii_lowercase();
            CLASSES.iter().find(|(known, _)| *known == name).map(|(_, class)| *class)
        }
    };
    if class.is_none() {
        let text = problems.source(at);
        problems.error(
            at,
            format!("{text} is no class of service; use 0 to 63, or a name such as \"cs1\" or \"af13\""),
        );
    }
    class
}

fn threshold((text, at): &At<String>, problems: &mut Problems<'_>) -> Option<Rate> {
    match parse_limit(text) {
        Ok((rate, _)) => Some(rate),
        Err(error) => {
            problems.error(at, format!("syn_cookies: {error}"));
            None
        }
    }
}

fn carrier(table: &ServiceTable, name: &str, problems: &mut Problems<'_>) -> Option<Carrier> {
    let Some((word, at)) = &table.matching.protocol else {
        let message =
            format!("service {name:?} matches nothing; write match = {{ protocol = \"udp\", ports = [53] }}");
        problems.missing(&table.at, message);
        return None;
    };
    let carrier = match word {
        Term::Number(number) => u8::try_from(*number).ok().map(Carrier::numbered),
        Term::Text(word) => Carrier::named(word),
    };
    if carrier.is_none() {
        let text = problems.source(at);
        let names = Carrier::names();
        problems.error(
            at,
            format!("protocol = {text} is not known; use one of {names}, or a number from 0 to 255"),
        );
    }
    carrier
}

fn destinations(table: &ServiceTable, name: &str, problems: &mut Problems<'_>) -> Option<Vec<Prefix>> {
    match &table.matching.destinations {
        KeyLookup::Absent => Some(Vec::new()),
        KeyLookup::Unreadable => None,
        KeyLookup::Read(list) if list.entries.is_empty() => {
            let message = format!(
                "service {name:?} has no destinations: no packet would be for it; name prefixes, or leave the key out"
            );
            problems.error(&list.at, message);
            None
        }
        KeyLookup::Read(list) => prefixes(list, problems),
    }
}

fn port((word, at): &At<Term>, problems: &mut Problems<'_>) -> Option<RangeInclusive<u16>> {
    let range = match word {
        Term::Number(number) => u16::try_from(*number).ok().map(|port| port..=port),
        Term::Text(text) => parse_range(text),
    };
    let range = range.filter(|range| *range.start() > 0 && !range.is_empty());
    if range.is_none() {
        let text = problems.source(at);
        problems.error(at, format!("{text} is no port; use 1 to 65535, or a range such as \"8000-8099\""));
    }
    range
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match text.split_once('-') {
        Some((first, last)) => Some(number(first.trim())?..=number(last.trim())?),
        None => number(text.trim()).map(|port| port..=port),
    }
}
