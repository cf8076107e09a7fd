//! `[requests]` and `[[api]]`: their keys, and what they mean.

mod login;
mod words;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::{Range, RangeInclusive},
};

use toml::{Spanned, de::DeValue};

use super::{
    problem::Problems,
    request_limits::{self, LimitTerms},
    table::{one, policy_table},
    users::PlanTable,
    value::{At, KeyLookup, Strings, entries, integer, string, strings, table},
};
use crate::policy::{
    ANY_API, Alone, Api, DEFAULT_KEYS, DEFAULT_PLAN, KeyPart, MAX_KEYS, MAX_THREADS, RequestLimit,
    RequestPolicy, Sharing, is_api_name, is_calendar,
};

policy_table! {
    /// The table `[requests]`.
    RequestsTable {
        "keys" => keys: Option<At<i64>> = integer,
        "threads" => threads: Option<At<i64>> = integer,
        "time_zone" => time_zone: Option<At<String>> = string,
    }
}

policy_table! {
    /// The table `[[api]]`.
    ApiTable {
        at,
        "name" => name: KeyLookup<At<String>> = string,
        "key" => key: KeyLookup<Strings> = strings,
        "limits" => limits: KeyLookup<Strings> = strings,
        "algorithm" => algorithm: Option<At<String>> = string,
        "throttle" => throttle: Option<At<String>> = string,
        "on_limit" => on_limit: Option<At<String>> = string,
        "sharing" => sharing: Option<At<String>> = string,
        "without_store" => without_store: Option<At<String>> = string,
        "reserved" => reserved: Option<words::ReservedTable> = one::<words::ReservedTable>,
        "ipv4_prefix" => ipv4_prefix: Option<At<i64>> = integer,
        "ipv6_prefix" => ipv6_prefix: Option<At<i64>> = integer,
        "time_zone" => time_zone: Option<At<String>> = string,
        "plans" => plans: KeyLookup<ListsByName> = read_lists,
        "users" => users: KeyLookup<ListsByName> = read_lists,
        "escalate" => escalate: Option<words::EscalateTable> = one::<words::EscalateTable>,
        "preset" => preset: KeyLookup<At<String>> = string,
        "per_ip" => per_ip: Option<Strings> = strings,
        "per_user_and_ip" => per_user_and_ip: Option<Strings> = strings,
        "per_user" => per_user: Option<Strings> = strings,
        "known_for" => known_for: Option<At<String>> = string,
    }
}

/// The lists of limits of one key, each by the name of its plan or user.
#[derive(Debug, Default)]
pub(super) struct ListsByName {
    pub(super) at: Range<usize>,
    pub(super) of: Vec<(At<String>, Strings)>,
}

fn read_lists(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<ListsByName> {
    let fields = table(key, value, problems)?;
    let mut of = Vec::new();
    for (name, value) in entries(fields, problems) {
        let list = strings(name.get_ref(), value, problems);
        of.extend(list.map(|list| ((name.get_ref().to_string(), name.span()), list)));
    }
    Some(ListsByName { at: value.span(), of })
}

/// The limits of requests, if all tables are valid.
pub(super) fn resolve(
    requests: Option<&RequestsTable>,
    tables: &[ApiTable],
    plans: &[PlanTable],
    zone: Option<&str>,
    problems: &mut Problems<'_>,
) -> Option<RequestPolicy> {
    let absent = RequestsTable::default();
    let table = requests.unwrap_or(&absent);
    let keys = in_range("keys", table.keys.as_ref(), 1..=MAX_KEYS, problems).unwrap_or(DEFAULT_KEYS);
    let threads = in_range("threads", table.threads.as_ref(), 1..=u64::from(MAX_THREADS), problems);
    let plans: HashSet<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    let apis: Vec<Api> = tables.iter().filter_map(|table| api(table, zone, &plans, problems)).collect();
    unique(tables, problems);
    let complete = apis.len() == tables.len();
    let threads = threads.and_then(|threads| u32::try_from(threads).ok());
    complete.then(|| RequestPolicy { apis: apis.into(), keys, threads })
}

fn unique(tables: &[ApiTable], problems: &mut Problems<'_>) {
    let mut seen = HashSet::new();
    for table in tables {
        if let KeyLookup::Read((name, at)) = &table.name
            && !seen.insert(name)
        {
            problems.error(at, format!("api {name:?} is there twice; give one another name"));
        }
    }
}

fn api(
    table: &ApiTable,
    zone: Option<&str>,
    plans: &HashSet<&str>,
    problems: &mut Problems<'_>,
) -> Option<Api> {
    let wrong_before = problems.count();
    let name = name(table, problems);
    let own_zone = request_limits::zone(table.time_zone.as_ref(), problems);
    let terms = LimitTerms { manner: words::manner(table, problems), zone: own_zone.or(zone) };
    let called = name.unwrap_or("?");
    let login = login::resolve(table, terms, problems);
    let limits = match &table.limits {
        KeyLookup::Read(list) => request_limits::read(list, terms, problems),
        KeyLookup::Unreadable => Vec::new(),
        KeyLookup::Absent => {
            if matches!(
                (&table.preset, &table.plans, &table.users),
                (KeyLookup::Absent, KeyLookup::Absent, KeyLookup::Absent)
            ) {
                let message = format!(
                    "api {called:?} has no limits; write limits = [\"100/hour\"], or limits = [] for none"
                );
                problems.missing(&table.at, message);
            }
            Vec::new()
        }
    };
    for ((plan, at), _) in of(&table.plans) {
        if !plans.contains(plan.as_str()) && plan != DEFAULT_PLAN {
            problems.error(at, format!("plan {plan:?} is not there; write [plan.{plan}], or name another"));
        }
    }
    let reserved = words::reserved(table.reserved.as_ref(), problems);
    let api = Api {
        name: called.to_owned(),
        key: key(table, called, problems),
        limits,
        by_plan: lists(&table.plans, terms, problems),
        by_user: lists(&table.users, terms, problems),
        on_limit: words::on_limit(table.on_limit.as_ref(), problems),
        sharing: one_of(
            "sharing",
            table.sharing.as_ref(),
            Sharing::ALL.map(|word| (word.name(), word)),
            problems,
        )
        .unwrap_or(Sharing::Lease),
        without_store: one_of(
            "without_store",
            table.without_store.as_ref(),
            Alone::ALL.map(|word| (word.name(), word)),
            problems,
        )
        .unwrap_or(Alone::Share),
        reserved,
        ipv4_prefix: prefix("ipv4_prefix", table.ipv4_prefix.as_ref(), 32, 32, problems),
        ipv6_prefix: prefix("ipv6_prefix", table.ipv6_prefix.as_ref(), 128, 64, problems),
        login,
        escalation: table.escalate.as_ref().and_then(|table| words::escalation(table, problems)),
    };
    words::judge_delay(table, &api, problems);
    // Checked only if all limits could be read: an unreadable limit may be the one that needs the time zone.
    if problems.count() == wrong_before {
        judge_zone(table, &api, problems);
    }
    name.map(|_| api)
}

fn name<'t>(table: &'t ApiTable, problems: &mut Problems<'_>) -> Option<&'t str> {
    match &table.name {
        KeyLookup::Unreadable => None,
        KeyLookup::Absent => {
            problems.missing(&table.at, "[[api]] has no name; write name = \"create-url\"");
            None
        }
        KeyLookup::Read((name, at)) => {
            if !is_api_name(name) {
                let message = format!(
                    "api name {name:?} is not one; use letters, digits, -, _, ., @, / and :, at most 64, or {ANY_API:?} for all others"
                );
                problems.error(at, message);
            }
            Some(name)
        }
    }
}

fn key(table: &ApiTable, called: &str, problems: &mut Problems<'_>) -> Vec<KeyPart> {
    let login = matches!(table.preset, KeyLookup::Read(_));
    let list = match &table.key {
        KeyLookup::Read(list) => list,
        KeyLookup::Absent if login => return vec![KeyPart::User, KeyPart::Ip],
        KeyLookup::Absent | KeyLookup::Unreadable => return vec![KeyPart::User],
    };
    if list.entries.is_empty() {
        let message = format!(
            "key of api {called:?} has no part: all requests would be one; use [\"user\"] or [\"ip\"]"
        );
        problems.error(&list.at, message);
    }
    let mut parts = Vec::new();
    for (word, at) in list.entries.iter().filter_map(|(text, at)| Some((text.as_ref()?, at))) {
        match KeyPart::new(word) {
            Some(part) if parts.contains(&part) => {
                problems.error(at, format!("key names {word:?} twice; remove one"));
            }
            Some(part) => parts.push(part),
            None => problems.error(
                at,
                format!("key {word:?} is not possible; use user, ip, api, or a word of a-z, 0-9, - and _, at most 64"),
            ),
        }
    }
    if let Some((_, at)) = list.entries.get(MAX_PARTS) {
        problems.error(
            at,
            format!("{} parts of a key are too many; use at most {MAX_PARTS}", list.entries.len()),
        );
    }
    parts
}

/// The most parts of a counter key.
const MAX_PARTS: usize = 8;

fn of(lists: &KeyLookup<ListsByName>) -> &[(At<String>, Strings)] {
    match lists {
        KeyLookup::Read(lists) => &lists.of,
        KeyLookup::Unreadable | KeyLookup::Absent => &[],
    }
}

fn lists(
    written: &KeyLookup<ListsByName>,
    terms: LimitTerms<'_>,
    problems: &mut Problems<'_>,
) -> BTreeMap<String, Vec<RequestLimit>> {
    let list = |((name, _), list): &(At<String>, Strings)| {
        (name.clone(), request_limits::read(list, terms, problems))
    };
    of(written).iter().map(list).collect()
}

/// Reports a time zone that no limit needs: whoever wrote it expects calendar days or months.
fn judge_zone(table: &ApiTable, api: &Api, problems: &mut Problems<'_>) {
    let Some((zone, at)) = &table.time_zone else { return };
    if !api.lists().flatten().any(|limit| is_calendar(&limit.rate)) {
        let message = format!(
            "time_zone = {zone:?} decides nothing: no limit of api {:?} is a fixed-window per day or month; remove it",
            api.name
        );
        problems.error(at, message);
    }
}

/// Reads a number; `None` if it is absent, or out of range and reported.
fn in_range(
    key: &str,
    written: Option<&At<i64>>,
    range: RangeInclusive<u64>,
    problems: &mut Problems<'_>,
) -> Option<u64> {
    let (number, at) = written?;
    let fits = u64::try_from(*number).ok().filter(|number| range.contains(number));
    if fits.is_none() {
        let (least, most) = (range.start(), range.end());
        problems.error(at, format!("{key} = {number} is out of range; use {least} to {most}"));
    }
    fits
}

fn prefix(key: &str, written: Option<&At<i64>>, most: u8, default: u8, problems: &mut Problems<'_>) -> u8 {
    let bits = in_range(key, written, 1..=u64::from(most), problems);
    bits.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(default)
}

/// The value of a word; `None` if it is absent, or unknown and reported.
fn one_of<T: Copy, const N: usize>(
    key: &str,
    written: Option<&At<String>>,
    known: [(&str, T); N],
    problems: &mut Problems<'_>,
) -> Option<T> {
    let (word, at) = written?;
    let found = known.iter().find(|(name, _)| name == word).map(|(_, value)| *value);
    if found.is_none() {
        let names = known.map(|(name, _)| format!("{name:?}")).join(", ");
        problems.error(at, format!("{key} = {word:?} is not known; use one of {names}"));
    }
    found
}

/// The sentence about the value of a key.
fn about(key: &str, text: &str, what: impl fmt::Display) -> String {
    format!("{key} = {text:?}: {what}")
}
