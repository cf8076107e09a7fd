//! The meaning of `[[service]]` tables.

use std::ops::RangeInclusive;

use ratelimit_common::{
    abi::service::{OnLimit, Protocol},
    limit::{rate::Rate, text::parse_limit},
};

use super::{
    document::{PortWord, ServiceTable},
    problem::Problems,
    resolve::rates,
    value::At,
};
use crate::policy::{Service, ServiceError, Services};

/// The services, if all of them make sense.
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
                // Indices count what could be read; if something could not, the list itself is the place.
                let table = index(&error).filter(|_| complete).and_then(|index| tables.get(index));
                problems.error(&table.or(tables.first()).map_or(0..0, |table| table.at.clone()), error);
            }
            None
        }
    }
}

fn index(error: &ServiceError) -> Option<usize> {
    match error {
        ServiceError::Name { index, .. }
        | ServiceError::Twice { index, .. }
        | ServiceError::NoPorts { index, .. }
        | ServiceError::Overlap { index, .. }
        | ServiceError::Meter { index, .. }
        | ServiceError::CookieMeter { index, .. }
        | ServiceError::CookieProtocol { index, .. }
        | ServiceError::CookieRate { index, .. }
        | ServiceError::TooManyLimits { index, .. }
        | ServiceError::Rate { index, .. }
        | ServiceError::TwoTotals { index, .. } => Some(*index),
        ServiceError::TooMany { .. } => None,
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
    let protocol = protocol(table, &name, problems);
    let ports: Vec<_> = table.ports.iter().filter_map(|word| port(word, problems)).collect();
    if ports.len() != table.ports.len() {
        return None;
    }
    let totals = table.total.as_ref().map_or_else(Vec::new, |total| rates(total, problems));
    let syn_cookies = match &table.syn_cookies {
        Some(word) => Some(threshold(word, problems)?),
        None => None,
    };
    let per_source = table.per_source.as_ref().map_or_else(Vec::new, |limits| rates(limits, problems));
    let on_limit = on_limit(table, problems)?;
    let plain = |rates: Vec<At<Rate>>| rates.into_iter().map(|(rate, _)| rate).collect();
    let service = Service::new(name, protocol?, ports, plain(totals)).with_syn_cookies(syn_cookies);
    Some(service.with_per_source(plain(per_source)).with_on_limit(on_limit))
}

fn on_limit(table: &ServiceTable, problems: &mut Problems<'_>) -> Option<OnLimit> {
    let Some((word, at)) = &table.on_limit else { return Some(OnLimit::Drop) };
    let known = OnLimit::ALL.into_iter().find(|on_limit| on_limit.name() == word);
    if known.is_none() {
        let message = match word.as_str() {
            "mark" | "reject" => format!("on_limit = {word:?} is not supported by this version yet"),
            _ => format!("on_limit = {word:?} is not known"),
        };
        problems.error(at, format!("{message}; use \"drop\" or \"monitor\""));
    }
    known
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

fn protocol(table: &ServiceTable, name: &str, problems: &mut Problems<'_>) -> Option<Protocol> {
    let Some((word, at)) = &table.protocol else {
        let message =
            format!("service {name:?} matches nothing; write match = {{ protocol = \"udp\", ports = [53] }}");
        problems.missing(&table.at, message);
        return None;
    };
    match word.as_str() {
        "tcp" => Some(Protocol::Tcp),
        "udp" => Some(Protocol::Udp),
        other => {
            problems.error(at, format!("protocol {other:?} has no ports; use \"tcp\" or \"udp\""));
            None
        }
    }
}

fn port((word, at): &At<PortWord>, problems: &mut Problems<'_>) -> Option<RangeInclusive<u16>> {
    let range = match word {
        PortWord::Number(number) => u16::try_from(*number).ok().map(|port| port..=port),
        PortWord::Range(text) => parse_range(text),
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
