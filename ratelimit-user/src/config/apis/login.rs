//! The meaning of `preset = "login"`, and of the keys that are only valid with it.

use std::{ops::Range, time::Duration};

use ratelimit_common::limit::{
    lifetime::parse_lifetime,
    manner::Manner,
    rate::{Period, Rate},
};

use super::{ApiTable, about};
use crate::{
    config::{
        problem::Problems,
        request_limits::{self, LimitTerms},
        value::{At, KeyLookup, Strings},
    },
    policy::{Login, RequestLimit},
};

const LOGIN: &str = "login";
/// How long an address stays known after a user has logged in from it, unless the policy says otherwise.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The limits of failed logins, if the API has the preset.
pub(super) fn resolve(table: &ApiTable, terms: LimitTerms<'_>, problems: &mut Problems<'_>) -> Option<Login> {
    let is_login = match &table.preset {
        KeyLookup::Read((word, at)) if word != LOGIN => {
            problems.error(at, format!("preset = {word:?} is not known; use {LOGIN:?}"));
            return None;
        }
        KeyLookup::Read(_) => true,
        KeyLookup::Unreadable => return None,
        KeyLookup::Absent => false,
    };
    let misplaced = if is_login { not_of_login(table) } else { of_login(table) };
    for (key, at) in misplaced {
        let message = if is_login {
            format!(
                "{key} does not go with preset = {LOGIN:?}, which has per_ip, per_user_and_ip and per_user"
            )
        } else {
            format!("{key} is for preset = {LOGIN:?}; write that beside it, or remove {key}")
        };
        problems.error(at, message);
    }
    let known_for = known_for(table.known_for.as_ref(), problems);
    let mut list = |written: Option<&Strings>, per_hour: u64| match written {
        Some(list) => request_limits::read(list, terms, problems),
        None => default(per_hour, terms),
    };
    is_login.then(|| Login {
        per_ip: list(table.per_ip.as_ref(), 20),
        per_user_and_ip: list(table.per_user_and_ip.as_ref(), 5),
        per_user: list(table.per_user.as_ref(), 100),
        known_for,
    })
}

/// A default limit of `per_hour` failures per hour, with the manner of the other limits of the table.
fn default(per_hour: u64, terms: LimitTerms<'_>) -> Vec<RequestLimit> {
    let manner = terms.manner.unwrap_or(Manner::PLAIN);
    let meter = ratelimit_common::abi::Meter::Packets;
    let rate =
        Rate { meter, amount: per_hour, period: Period::Hour, burst: per_hour, manner, units: Rate::UNTYPED };
    vec![RequestLimit { rate, zone: None }]
}

fn known_for(written: Option<&At<String>>, problems: &mut Problems<'_>) -> Duration {
    let Some((text, at)) = written else { return KNOWN_FOR };
    match parse_lifetime(text) {
        Ok(ns) => Duration::from_nanos(ns),
        Err(error) => {
            problems.error(at, about("known_for", text, error));
            KNOWN_FOR
        }
    }
}

type LoginKeys<'t> = Vec<(&'static str, &'t Range<usize>)>;

fn not_of_login(table: &ApiTable) -> LoginKeys<'_> {
    let mut keys = Vec::new();
    keys.extend(list("limits", &table.limits));
    keys.extend(list("key", &table.key));
    for (key, lists) in [("plans", &table.plans), ("users", &table.users)] {
        if let KeyLookup::Read(lists) = lists {
            keys.push((key, &lists.at));
        }
    }
    keys
}

fn list<'t>(key: &'static str, written: &'t KeyLookup<Strings>) -> Option<(&'static str, &'t Range<usize>)> {
    match written {
        KeyLookup::Read(list) => Some((key, &list.at)),
        KeyLookup::Unreadable | KeyLookup::Absent => None,
    }
}

fn of_login(table: &ApiTable) -> LoginKeys<'_> {
    let lists = [
        ("per_ip", &table.per_ip),
        ("per_user_and_ip", &table.per_user_and_ip),
        ("per_user", &table.per_user),
    ];
    let lists = lists.into_iter().filter_map(|(key, list)| Some((key, &list.as_ref()?.at)));
    lists.chain(table.known_for.as_ref().map(|(_, at)| ("known_for", at))).collect()
}
