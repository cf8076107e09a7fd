//! The shape of `[requests]` and `[[api]]`.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::config::{
    keys::{API, ESCALATE, REQUESTS, RESERVED, unknown},
    problem::Problems,
    value::{At, KeyLookup, Strings, entries, integer, string, strings, table},
};

/// `[requests]`.
#[derive(Debug, Default)]
pub(in crate::config) struct RequestsTable {
    pub(in crate::config) keys: Option<At<i64>>,
    pub(in crate::config) threads: Option<At<i64>>,
    pub(in crate::config) time_zone: Option<At<String>>,
}

/// `[[api]]`.
#[derive(Debug, Default)]
pub(in crate::config) struct ApiTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) name: KeyLookup<At<String>>,
    pub(in crate::config) key: KeyLookup<Strings>,
    pub(in crate::config) limits: KeyLookup<Strings>,
    pub(in crate::config) algorithm: Option<At<String>>,
    pub(in crate::config) throttle: Option<At<String>>,
    pub(in crate::config) on_limit: Option<At<String>>,
    pub(in crate::config) sharing: Option<At<String>>,
    pub(in crate::config) without_store: Option<At<String>>,
    pub(in crate::config) reserved: Option<ReservedTable>,
    pub(in crate::config) ipv4_prefix: Option<At<i64>>,
    pub(in crate::config) ipv6_prefix: Option<At<i64>>,
    pub(in crate::config) time_zone: Option<At<String>>,
    pub(in crate::config) plans: KeyLookup<Lists>,
    pub(in crate::config) users: KeyLookup<Lists>,
    pub(in crate::config) escalate: Option<EscalateTable>,
    pub(in crate::config) preset: KeyLookup<At<String>>,
    pub(in crate::config) per_ip: Option<Strings>,
    pub(in crate::config) per_user_and_ip: Option<Strings>,
    pub(in crate::config) per_user: Option<Strings>,
    pub(in crate::config) known_for: Option<At<String>>,
}

/// Lists of limits by the name of whom they are for.
#[derive(Debug, Default)]
pub(in crate::config) struct Lists {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) of: Vec<(At<String>, Strings)>,
}

/// `reserved = { … }`.
#[derive(Debug, Default)]
pub(in crate::config) struct ReservedTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) critical: Option<At<String>>,
    pub(in crate::config) normal: Option<At<String>>,
}

/// `escalate = { … }`.
#[derive(Debug, Default)]
pub(in crate::config) struct EscalateTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) above: KeyLookup<At<String>>,
    pub(in crate::config) lasting: KeyLookup<At<String>>,
    pub(in crate::config) block: KeyLookup<At<String>>,
    pub(in crate::config) ipv4_prefix: Option<At<i64>>,
    pub(in crate::config) ipv6_prefix: Option<At<i64>>,
}

pub(super) fn requests(fields: &DeTable<'_>, problems: &mut Problems<'_>) -> RequestsTable {
    let mut requests = RequestsTable::default();
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "keys" => requests.keys = integer("keys", value, problems),
            "threads" => requests.threads = integer("threads", value, problems),
            "time_zone" => requests.time_zone = string("time_zone", value, problems),
            _ => unknown(key, &REQUESTS, problems),
        }
    }
    requests
}

pub(super) fn read(fields: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> ApiTable {
    let mut api = ApiTable { at, ..ApiTable::default() };
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "name" => api.name = string("name", value, problems).into(),
            "key" => api.key = strings("key", value, problems).into(),
            "limits" => api.limits = strings("limits", value, problems).into(),
            "algorithm" => api.algorithm = string("algorithm", value, problems),
            "throttle" => api.throttle = string("throttle", value, problems),
            "on_limit" => api.on_limit = string("on_limit", value, problems),
            "sharing" => api.sharing = string("sharing", value, problems),
            "without_store" => api.without_store = string("without_store", value, problems),
            "reserved" => api.reserved = reserved(value, problems),
            "ipv4_prefix" => api.ipv4_prefix = integer("ipv4_prefix", value, problems),
            "ipv6_prefix" => api.ipv6_prefix = integer("ipv6_prefix", value, problems),
            "time_zone" => api.time_zone = string("time_zone", value, problems),
            "plans" => api.plans = lists("plans", value, problems).into(),
            "users" => api.users = lists("users", value, problems).into(),
            "escalate" => api.escalate = escalate(value, problems),
            "preset" => api.preset = string("preset", value, problems).into(),
            "per_ip" => api.per_ip = strings("per_ip", value, problems),
            "per_user_and_ip" => api.per_user_and_ip = strings("per_user_and_ip", value, problems),
            "per_user" => api.per_user = strings("per_user", value, problems),
            "known_for" => api.known_for = string("known_for", value, problems),
            _ => unknown(key, &API, problems),
        }
    }
    api
}

fn lists(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<Lists> {
    let fields = table(key, value, problems)?;
    let mut of = Vec::new();
    for (name, value) in entries(fields, problems) {
        let list = strings(name.get_ref(), value, problems);
        of.extend(list.map(|list| ((name.get_ref().to_string(), name.span()), list)));
    }
    Some(Lists { at: value.span(), of })
}

fn reserved(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<ReservedTable> {
    let mut reserved = ReservedTable { at: value.span(), ..ReservedTable::default() };
    for (key, value) in entries(table("reserved", value, problems)?, problems) {
        match key.get_ref().as_ref() {
            "critical" => reserved.critical = string("critical", value, problems),
            "normal" => reserved.normal = string("normal", value, problems),
            _ => unknown(key, &RESERVED, problems),
        }
    }
    Some(reserved)
}

fn escalate(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Option<EscalateTable> {
    let mut escalate = EscalateTable { at: value.span(), ..EscalateTable::default() };
    for (key, value) in entries(table("escalate", value, problems)?, problems) {
        match key.get_ref().as_ref() {
            "above" => escalate.above = string("above", value, problems).into(),
            "for" => escalate.lasting = string("for", value, problems).into(),
            "block" => escalate.block = string("block", value, problems).into(),
            "ipv4_prefix" => escalate.ipv4_prefix = integer("ipv4_prefix", value, problems),
            "ipv6_prefix" => escalate.ipv6_prefix = integer("ipv6_prefix", value, problems),
            _ => unknown(key, &ESCALATE, problems),
        }
    }
    Some(escalate)
}
