//! Warnings about the limits of requests in a valid policy.

use std::net::SocketAddr;

use super::forestaller;
use crate::{
    config::{
        apis::{ApiTable, ListsByName},
        document::Document,
        problem::Problems,
        value::{KeyLookup, Strings},
    },
    policy::{Api, KeyPart, ListenEndpoint, Plan, Policy, Prefix, RequestLimit, Sharing, log_bytes},
};

/// If this many keys can have full logs at once, there is no warning.
const MANY_LOGS: u64 = 100_000;

pub(super) fn warn(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let (keys, is_in_store) = (policy.requests().keys, policy.cluster().is_some());
    for (table, plan) in document.plans.iter().zip(policy.users().plans()) {
        let of = format!("plan {:?}: limits", plan.name());
        within(&of, plan.requests(), table.keys.limits.as_ref(), problems);
        kept(&of, plan.requests(), table.keys.limits.as_ref(), is_in_store, problems);
        logs(&of, plan.requests(), table.keys.limits.as_ref(), keys, problems);
    }
    for (table, user) in document.users.iter().zip(policy.users().iter()) {
        let limits = user.requests().unwrap_or_default();
        let of = format!("user {:?}: limits", user.name());
        within(&of, limits, table.limits.as_ref(), problems);
        kept(&of, limits, table.limits.as_ref(), is_in_store, problems);
    }
    for (table, api) in document.apis.iter().zip(policy.requests().apis.iter()) {
        lists(table, api, keys, is_in_store && api.sharing != Sharing::Local, problems);
        if policy.cluster().is_none() {
            alone(table, problems);
        }
    }
    unasked(document, policy, problems);
    unvouched(document, policy, problems);
    zone(document, policy, problems);
}

/// Warns of limits of one list that never decide.
fn within(of: &str, limits: &[RequestLimit], places: Option<&Strings>, problems: &mut Problems<'_>) {
    let places = places.map(|list| list.entries.as_slice()).unwrap_or_default();
    for (index, (limit, (_, at))) in limits.iter().zip(places).enumerate() {
        if let Some(by) = forestaller(limits, index, RequestLimit::at_least_as_strict_as) {
            let message = format!("{of} \"{limit}\" never decides: \"{by}\" beside it is at least as strict");
            problems.warning(at, message);
        }
    }
}

/// Warns of limits that are counted in the memory of a process, and for so long that it matters when the process starts again.
fn kept(
    of: &str,
    limits: &[RequestLimit],
    places: Option<&Strings>,
    is_in_store: bool,
    problems: &mut Problems<'_>,
) {
    let places = places.map(|list| list.entries.as_slice()).unwrap_or_default();
    for (limit, (_, at)) in
        limits.iter().zip(places).filter(|(limit, _)| !is_in_store && limit.counts_for_long())
    {
        let message = format!(
            "{of} \"{limit}\" is given again by every restart: counts are in memory; \
             count it with [cluster] in a store that writes them down, or use a period of an hour at most"
        );
        problems.warning(at, message);
    }
}

/// Warns of logs that do not all fit when many keys are at their limits. Callers choose the names, and so how many keys there are.
fn logs(of: &str, limits: &[RequestLimit], places: Option<&Strings>, keys: u64, problems: &mut Problems<'_>) {
    let places = places.map(|list| list.entries.as_slice()).unwrap_or_default();
    for (limit, (_, at)) in limits.iter().zip(places) {
        let Some(largest) = limit.largest_log() else { continue };
        let all = log_bytes(keys);
        let fit = all / largest;
        if fit < keys.min(MANY_LOGS) {
            let message = format!(
                "{of} \"{limit}\" keeps up to {} for each key, and all logs together at most {} ([requests] keys = {keys}): \
                 beyond {fit} keys that have used it up, those that were not asked about for longest start anew; \
                 use sliding-window, or more keys",
                bytes(largest),
                bytes(all)
            );
            problems.warning(at, message);
        }
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} KB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

fn lists(table: &ApiTable, api: &Api, keys: u64, is_in_store: bool, problems: &mut Problems<'_>) {
    let of = |key: &str| format!("api {:?}: {key}", api.name);
    // An API whose key is only its own name has one counter key.
    let has_many_keys = api.key.iter().any(|part| *part != KeyPart::Api);
    if let KeyLookup::Read(list) = &table.limits {
        within(&of("limits"), &api.limits, Some(list), problems);
        kept(&of("limits"), &api.limits, Some(list), is_in_store, problems);
        if has_many_keys {
            logs(&of("limits"), &api.limits, Some(list), keys, problems);
        }
    }
    if let Some(login) = &api.login {
        for (key, limits, places) in [
            ("per_ip", &login.per_ip, &table.per_ip),
            ("per_user_and_ip", &login.per_user_and_ip, &table.per_user_and_ip),
            ("per_user", &login.per_user, &table.per_user),
        ] {
            within(&of(key), limits, places.as_ref(), problems);
            kept(&of(key), limits, places.as_ref(), is_in_store, problems);
            logs(&of(key), limits, places.as_ref(), keys, problems);
        }
    }
    for (key, written, limits) in
        [("plans", &table.plans, &api.by_plan), ("users", &table.users, &api.by_user)]
    {
        let KeyLookup::Read(ListsByName { of: lists, .. }) = written else { continue };
        for ((name, _), list) in lists {
            let limits = limits.get(name).map(Vec::as_slice).unwrap_or_default();
            let of = of(&format!("{key}.{name}"));
            within(&of, limits, Some(list), problems);
            kept(&of, limits, Some(list), is_in_store, problems);
            // The list of one user has one counter key per user.
            if key == "plans" && has_many_keys {
                logs(&of, limits, Some(list), keys, problems);
            }
        }
    }
}

/// Warns of keys about other hosts in a policy without a cluster.
fn alone(table: &ApiTable, problems: &mut Problems<'_>) {
    for (key, written) in [("sharing", &table.sharing), ("without_store", &table.without_store)] {
        if let Some((word, at)) = written {
            problems.warning(at, format!("{key} = {word:?} does nothing without [cluster]"));
        }
    }
}

/// Warns of listeners that would allow every question.
fn unasked(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let KeyLookup::Read(table) = &document.listen else { return };
    if policy.limits_requests() {
        return;
    }
    for (key, written) in [("http", &table.http), ("grpc", &table.grpc), ("resp", &table.resp)] {
        if let Some((_, at)) = written.first() {
            let message =
                format!("{key} would allow everything: there is no [[api]], and no plan or user has limits");
            problems.warning(at, message);
        }
    }
}

/// Warns of escalation with listeners whose callers are not trusted to name addresses.
fn unvouched(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let listen = policy.listen();
    let certified = listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let mut endpoints = listen.http.iter().chain(&listen.grpc).chain(&listen.resp).peekable();
    if listen.token_file.is_some() || certified || endpoints.peek().is_none() {
        return;
    }
    let trusted = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        let host = Prefix::masked(ip, if ip.is_ipv4() { 32 } else { 128 });
        listen.trusted_proxies.iter().any(|proxy| proxy.covers(&host))
    };
    let vouches = |endpoint: &ListenEndpoint| match endpoint {
        ListenEndpoint::Unix(_) => true,
        ListenEndpoint::Tcp(address) => trusted(address),
    };
    if endpoints.any(vouches) {
        return;
    }
    for (table, api) in document.apis.iter().zip(policy.requests().apis.iter()) {
        if let (Some(escalate), true) = (&table.escalate, api.escalation.is_some()) {
            let message = format!(
                "api {:?}: escalate blocks nobody: anybody on this host could name any address. Name a token_file or a socket in the file \
                 system in [listen], or the addresses of those who may ask in trusted_proxies",
                api.name
            );
            problems.warning(&escalate.at, message);
        }
    }
}

/// Warns of a time zone in `[requests]` that no limit needs.
fn zone(document: &Document, policy: &Policy, problems: &mut Problems<'_>) {
    let Some((zone, at)) = document.requests.as_ref().and_then(|table| table.time_zone.as_ref()) else {
        return;
    };
    let of_apis = policy.requests().apis.iter().flat_map(Api::lists).flatten();
    let of_plans = policy.users().plans().flat_map(Plan::requests);
    let of_users = policy.users().iter().flat_map(|user| user.requests().unwrap_or_default());
    let mut limits = of_apis.chain(of_plans).chain(of_users);
    if !limits.any(|limit| limit.zone.as_ref() == Some(zone)) {
        let message =
            format!("time_zone = {zone:?} decides nothing: no limit is a fixed-window per day or month");
        problems.warning(at, message);
    }
}
