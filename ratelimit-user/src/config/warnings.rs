//! Warnings about a valid policy: prefixes and limits that change nothing, or that let no packet pass.

mod requests;

use std::{collections::HashMap, ops::Range};

use ratelimit_common::{
    abi::{Meter, service::Protocol},
    limit::rate::Rate,
};

use super::{
    cluster,
    document::Document,
    problem::Problems,
    value::{At, KeyLookup, Strings},
};
use crate::policy::{Carrier, NamedLimit, Policy, Prefix, Service, Shadow, ShadowOrder, User};

/// A jumbo frame of 9000 bytes with its Ethernet header.
const JUMBO_FRAME: u64 = 9014;

/// Warns about a valid policy. Its tables stand in the same order as in the document that it was read from.
pub(super) fn warn(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let source: Vec<Rate> = policy.source().limits().iter().map(NamedLimit::rate).copied().collect();
    if let KeyLookup::Read(table) = &document.source
        && let KeyLookup::Read(limits) = &table.limits
    {
        frames("[source]", &source, limits, problems);
    }
    for (table, service) in document.services.iter().zip(policy.services().iter()) {
        let name = format!("service {:?}", service.name());
        if let Some(total) = &table.total {
            frames(&format!("{name}: total"), service.totals(), total, problems);
        }
        if let Some(limits) = &table.per_source {
            let of = format!("{name}: per_source");
            within(&of, service.per_source(), limits, problems);
            per_source(&of, service, &source, limits, problems);
        }
    }
    if let KeyLookup::Read(table) = &document.host
        && let Some(total) = &table.total
    {
        frames("[host]: total", policy.host().totals(), total, problems);
    }
    for (table, plan) in document.plans.iter().zip(policy.users().plans()) {
        if let Some(limits) = &table.keys.network {
            network(&format!("plan {:?}", plan.name()), plan.network(), &source, limits, problems);
        }
    }
    for (table, user) in document.users.iter().zip(policy.users().iter()) {
        let name = format!("user {:?}", user.name());
        if let Some(limits) = &table.network {
            network(&name, user.network(), &source, limits, problems);
            one_address(&name, user, policy, &source, limits, problems);
        }
        if user.sources().is_empty() && !policy.limits_requests() {
            problems.warning(&table.at, format!("{name} has no sources: no packet is ever its own"));
        }
        if user.network().is_empty() && !(user.sources().is_empty() && policy.limits_requests()) {
            problems.warning(
                &table.at,
                format!("{name} has no network limits: nothing holds it but the source's"),
            );
        }
    }
    destinations(document, policy, problems);
    without_ports(document, policy, problems);
    cluster::warn((&document.plans, &document.users), policy, problems);
    requests::warn(document, policy, problems);
}

/// Warns of limits of one list that never decide, and of bursts that frames do not fit into.
fn within(of: &str, rates: &[Rate], places: &Strings, problems: &mut Problems<'_>) {
    frames(of, rates, places, problems);
    for (index, (rate, at)) in placed(rates, places).enumerate() {
        if let Some(by) = forestaller(rates, index, Rate::at_least_as_strict_as) {
            problems.warning(
                at,
                format!("{of} \"{rate}\" never decides: \"{by}\" beside it is at least as strict"),
            );
        }
    }
}

/// The item of a list that is at least as strict as another, so that the other never decides; of two equal items, the first.
fn forestaller<T>(all: &[T], index: usize, strict: impl Fn(&T, &T) -> bool) -> Option<&T> {
    let one = &all[index];
    let before = |(other, by): &(usize, &T)| {
        *other != index && strict(by, one) && (*other < index || !strict(one, by))
    };
    all.iter().enumerate().find(before).map(|(_, by)| by)
}

/// Warns of limits of one source at a service that never decide, beside the limits in `[source]` and the service's totals.
fn per_source(of: &str, service: &Service, source: &[Rate], places: &Strings, problems: &mut Problems<'_>) {
    for (rate, at) in placed(service.per_source(), places) {
        if rate.meter == Meter::Syns && service.carrier() != Carrier::Ports(Protocol::Tcp) {
            problems.warning(at, format!("{of} \"{rate}\" never decides: only TCP has SYNs"));
        }
        if let Some(by) = source.iter().find(|by| by.at_least_as_strict_as(rate)) {
            problems.warning(
                at,
                format!("{of} \"{rate}\" never decides: every source has \"{by}\" already, in [source]"),
            );
        }
        if let Some(total) =
            service.totals().iter().find(|total| total.meter == rate.meter && !is_slower(rate, total))
        {
            problems.warning(
                at,
                format!("{of} \"{rate}\" lets one source use up the total of \"{total}\"; use a lower one"),
            );
        }
    }
}

/// Warns of limits of a user that are lower than those of one address.
fn network(of: &str, rates: &[Rate], source: &[Rate], places: &Strings, problems: &mut Problems<'_>) {
    within(&format!("{of}: network"), rates, places, problems);
    for (rate, at) in placed(rates, places) {
        let above = source.iter().find(|one| one.meter == rate.meter && is_slower(rate, one));
        if let Some(one) = above {
            problems.warning(
                at,
                format!("{of}: network \"{rate}\" is less than one address of anybody else may have (\"{one}\" in [source])"),
            );
        }
    }
}

/// Warns of a user that is a single source, and so has the limits of `[source]` already.
fn one_address(
    of: &str,
    user: &User,
    policy: &Policy,
    source: &[Rate],
    places: &Strings,
    problems: &mut Problems<'_>,
) {
    let mut sources = user.sources().iter();
    let (Some(prefix), None) = (sources.next(), sources.next()) else { return };
    let bits = if prefix.is_v4() { policy.source().ipv4_prefix() } else { policy.source().ipv6_prefix() };
    if prefix.len() < bits {
        return;
    }
    for (rate, at) in placed(user.network(), places) {
        if let Some(by) = source.iter().find(|by| by.at_least_as_strict_as(rate)) {
            let message = format!(
                "{of}: network \"{rate}\" never decides: {prefix} is one source, and has \"{by}\" already, in [source]"
            );
            problems.warning(at, message);
        }
    }
}

/// Warns of prefixes of users that change nothing.
pub(super) fn warn_of_prefixes(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let users: Vec<&User> = policy.users().iter().collect();
    let shadows = ShadowOrder::of(policy.users()).shadows();
    for of_one in shadows.chunk_by(|(one, ..), (other, ..)| one == other) {
        let user = of_one[0].0 as usize;
        let list = document.users.get(user).and_then(|table| table.sources.as_ref());
        let (Some(list), Some(owner)) = (list, users.get(user)) else { continue };
        let place =
            |(text, at): &'_ At<Option<String>>| Some((text.as_ref()?.parse::<Prefix>().ok()?, at.clone()));
        let places: HashMap<Prefix, Range<usize>> = list.entries.iter().filter_map(place).collect();
        for (_, prefix, why) in of_one {
            let (name, at) = (owner.name(), places.get(prefix).unwrap_or(&list.at));
            problems.warning(at, match why {
                Shadow::Around(wider) => {
                    format!("source {prefix} of user {name:?} changes nothing: {wider} is its own already")
                }
                Shadow::Inside => {
                    format!("source {prefix} of user {name:?} is never met: longer prefixes of others have all of it")
                }
            });
        }
    }
}

/// Warns of destinations, and of services for the rest of their ports, that no packet meets.
fn destinations(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let services: Vec<&Service> = policy.services().iter().collect();
    for unmet in policy.services().unmet() {
        let (Some(table), Some(service)) =
            (document.services.get(unmet.service), services.get(unmet.service))
        else {
            continue;
        };
        let name = service.name();
        match (unmet.destination, &table.matching.destinations) {
            (Some(at), KeyLookup::Read(list)) => {
                let prefix = service.destinations()[at];
                let place = list.entries.get(at).map_or(&list.at, |(_, at)| at);
                problems.warning(place, match unmet.why {
                    Shadow::Around(wider) => {
                        format!("destination {prefix} of service {name:?} changes nothing: {wider} is its own already")
                    }
                    Shadow::Inside => format!(
                        "destination {prefix} of service {name:?} is never met: longer ones of others have all of it"
                    ),
                });
            }
            _ => problems.warning(
                &table.at,
                format!("service {name:?} is never met: destinations of others have all of its ports"),
            ),
        }
    }
}

/// Warns of a policy that holds ports to totals and nothing else: what has no port passes from any number of made-up sources.
fn without_ports(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    if !policy.host().totals().is_empty() {
        return;
    }
    let services = || policy.services().iter().filter(|service| !service.totals().is_empty());
    let first = document.services.iter().zip(policy.services().iter()).find_map(|(table, service)| {
        let total = table.total.as_ref().filter(|_| service.carrier().has_ports())?;
        (!service.totals().is_empty()).then_some((total, service.name()))
    });
    let Some((total, name)) = first else { return };
    let what = match services().any(|service| service.carrier() == Carrier::Fragments) {
        true => "protocols without ports",
        false => "fragments and protocols without ports",
    };
    problems.warning(
        &total.at,
        format!(
            "service {name:?}: total is for its ports alone: {what} pass from any number of forged sources; add a total to [host], for everything"
        ),
    );
}

/// Warns of bursts in bytes that large frames do not fit into. Bursts below a full frame are errors.
fn frames(of: &str, rates: &[Rate], places: &Strings, problems: &mut Problems<'_>) {
    for (rate, at) in placed(rates, places) {
        if rate.meter == Meter::Bytes && rate.burst < JUMBO_FRAME {
            let message = format!(
                "{of} \"{rate}\" never lets a frame of more than {} bytes pass; for jumbo frames use a burst of at least {JUMBO_FRAME} bytes",
                rate.burst
            );
            problems.warning(at, message);
        }
    }
}

fn placed<'a>(rates: &'a [Rate], places: &'a Strings) -> impl Iterator<Item = (&'a Rate, &'a Range<usize>)> {
    rates.iter().zip(places.entries.iter().map(|(_, at)| at))
}

/// Whether a rate is lower than another, whatever their bursts.
fn is_slower(rate: &Rate, other: &Rate) -> bool {
    u128::from(rate.amount) * u128::from(other.period.ns())
        < u128::from(other.amount) * u128::from(rate.period.ns())
}
