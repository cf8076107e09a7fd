//! The meaning of a policy file: turns its words and numbers into a policy.

use std::collections::HashSet;

use ratelimit_common::abi::Mode;

use super::{
    aggregation, apis, cluster,
    document::Document,
    host, listen, notify,
    pieces::Aside,
    problem::Problems,
    request_limits, services, source, users,
    value::{At, KeyLookup, Strings},
};
use crate::policy::{InterfaceName, Policy, PrefilterPolicy};

/// The policy, if the whole document is valid.
pub(super) fn resolve(document: &Document, aside: &Aside, problems: &mut Problems<'_>) -> Option<Policy> {
    let interfaces = document.interfaces.as_ref().map_or_else(Vec::new, |names| interfaces(names, problems));
    let listen = listen::resolve(&document.listen, problems);
    let source = match &document.source {
        KeyLookup::Read(table) => source::resolve(table, problems),
        KeyLookup::Unreadable => None,
        KeyLookup::Absent => {
            let what = match document.apis.is_empty() {
                true => "nothing would be limited",
                false => "packets would not be limited, and only `ratelimit serve` does without",
            };
            problems.missing(&(0..0), format!("[source] is missing: {what}; {}", source::EXAMPLE));
            None
        }
    };
    let prefilter = match &document.source {
        KeyLookup::Read(table) => source::prefilter(table, problems),
        KeyLookup::Unreadable | KeyLookup::Absent => PrefilterPolicy::default(),
    };
    let host = host::resolve(&document.host, problems);
    let services = services::resolve(&document.services, problems);
    let zone = document.requests.as_ref().and_then(|table| table.time_zone.as_ref());
    let zone = request_limits::zone(zone, problems);
    let users = users::resolve(&document.plans, &document.users, zone, aside, problems);
    let requests = apis::resolve(document.requests.as_ref(), &document.apis, &document.plans, zone, problems);
    let cluster = cluster::resolve(&document.cluster, problems);
    if let (Some(users), Some(Some(cluster))) = (&users, &cluster) {
        cluster::judge((&document.plans, &document.users), users, cluster, problems);
    }
    let attacks = notify::attacks(document.attacks.as_ref(), problems);
    let notifiers = notify::resolve(&document.notify, problems);
    let mode = mode(document.mode.as_ref(), problems);
    let source = source?;
    let aggregation = match &document.source {
        KeyLookup::Read(table) => aggregation::resolve(&table.aggregation, &source, problems),
        KeyLookup::Unreadable | KeyLookup::Absent => None,
    };
    let policy = Policy::new(interfaces, source, prefilter, aggregation?, services?, listen?);
    let policy = policy
        .with_host(host?)
        .with_users(users?)
        .with_mode(mode?)
        .with_cluster(cluster?)
        .with_requests(requests?)
        .with_attacks(attacks, notifiers);
    if let Err(error) = policy.windows_fit() {
        problems.error(&(0..0), error);
        return None;
    }
    Some(policy)
}

fn mode(word: Option<&At<String>>, problems: &mut Problems<'_>) -> Option<Mode> {
    match word.map(|(word, at)| (word.as_str(), at)) {
        None | Some(("enforce", _)) => Some(Mode::Enforce),
        Some(("monitor", _)) => Some(Mode::Monitor),
        Some((other, at)) => {
            problems.error(at, format!("mode = {other:?} is not known; use \"enforce\" or \"monitor\""));
            None
        }
    }
}

fn interfaces(names: &Strings, problems: &mut Problems<'_>) -> Vec<InterfaceName> {
    let mut seen = HashSet::new();
    let mut interfaces = Vec::new();
    for (text, at) in &names.entries {
        let Some(text) = text else { continue };
        match text.parse::<InterfaceName>() {
            Ok(_) if !seen.insert(text) => {
                problems.error(at, format!("interface {text:?} is named twice; remove one"));
            }
            Ok(name) => interfaces.push(name),
            Err(error) => problems.error(at, error),
        }
    }
    interfaces
}
