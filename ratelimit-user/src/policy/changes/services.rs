//! Services in words.

use std::collections::BTreeSet;

use ratelimit_common::abi::{Meter, OnLimit};

use super::{Fields, followed};
use crate::policy::{Prefix, Service, words};

pub(super) fn of_service(service: &Service) -> Fields {
    let mut fields = followed([("match", matching(service))]);
    for rate in service.totals() {
        let field = match rate.meter {
            Meter::Bytes => "total in bytes",
            _ => "total in packets",
        };
        fields.insert(field.into(), (rate.to_string(), false));
    }
    if let Some(rate) = service.syn_cookies() {
        fields.insert("syn_cookies".into(), (rate.to_string(), false));
    }
    if !service.per_source().is_empty() {
        fields.insert("per_source".into(), (words(service.per_source()), false));
    }
    if service.on_limit() != OnLimit::Drop {
        fields.insert("on_limit".into(), (service.on_limit().name().to_owned(), false));
    }
    if service.on_limit() == OnLimit::Mark {
        fields.insert("dscp".into(), (service.dscp().to_string(), false));
    }
    fields
}

/// `udp 53, 5300-5399 to 192.0.2.0/24`, `gre`: the same for the same ports and destinations, however they are written.
fn matching(service: &Service) -> String {
    let carrier = service.carrier();
    let mut ranges: Vec<(u16, u16)> =
        service.ports().iter().map(|range| (*range.start(), *range.end())).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = (*end).max(last),
            _ => merged.push((first, last)),
        }
    }
    let words = merged.iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        },
    );
    let ports = words.collect::<Vec<_>>().join(", ");
    let destinations: BTreeSet<&Prefix> = service.destinations().iter().collect();
    let destinations: Vec<String> = destinations.into_iter().map(ToString::to_string).collect();
    let to = if destinations.is_empty() { "" } else { " to " };
    let space = if ports.is_empty() { "" } else { " " };
    format!("{carrier}{space}{ports}{to}{}", destinations.join(", "))
}
