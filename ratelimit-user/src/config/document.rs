//! The shape of a policy file: which keys it has, where, and of which type.

mod api;
mod cluster;
mod host;
mod listen;
mod notify;

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    keys::{AGGREGATION, MATCH, PLAN, SERVICE, SOURCE, TOP, USER, unknown},
    problem::Problems,
    value::{At, KeyLookup, Strings, boolean, entries, integer, kind, string, strings, table, tables},
};

pub(super) use api::{ApiTable, EscalateTable, Lists, RequestsTable, ReservedTable};
pub(super) use cluster::ClusterTable;
pub(super) use host::{HostTable, LinkWord};
pub(super) use listen::{ListenTable, TlsTable};
pub(super) use notify::{AttacksTable, NotifyTable};

/// What a policy file says, each value with its place, nothing judged yet.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) interfaces: Option<Strings>,
    pub(super) source: KeyLookup<SourceSection>,
    pub(super) mode: Option<At<String>>,
    pub(super) host: KeyLookup<HostTable>,
    pub(super) services: Vec<ServiceTable>,
    pub(super) plans: Vec<PlanTable>,
    pub(super) users: Vec<UserSection>,
    pub(super) listen: KeyLookup<ListenTable>,
    pub(super) cluster: KeyLookup<ClusterTable>,
    pub(super) requests: Option<RequestsTable>,
    pub(super) apis: Vec<ApiTable>,
    pub(super) attacks: Option<AttacksTable>,
    pub(super) notify: Vec<NotifyTable>,
}

/// `[[service]]`.
#[derive(Debug, Default)]
pub(super) struct ServiceTable {
    pub(super) at: Range<usize>,
    pub(super) name: Option<At<String>>,
    pub(super) protocol: Option<At<Term>>,
    pub(super) ports: Vec<At<Term>>,
    pub(super) destinations: KeyLookup<Strings>,
    pub(super) total: Option<Strings>,
    pub(super) syn_cookies: Option<At<String>>,
    pub(super) per_source: Option<Strings>,
    pub(super) on_limit: Option<At<String>>,
    pub(super) dscp: Option<At<Term>>,
}

/// `[[user]]`.
#[derive(Debug, Default)]
pub(super) struct UserSection {
    pub(super) at: Range<usize>,
    pub(super) name: Option<At<String>>,
    pub(super) plan: Option<At<String>>,
    pub(super) sources: Option<Strings>,
    pub(super) network: Option<Strings>,
    pub(super) limits: Option<Strings>,
}

/// `[plan.<name>]`.
#[derive(Debug)]
pub(super) struct PlanTable {
    pub(super) at: Range<usize>,
    pub(super) name: String,
    pub(super) network: Option<Strings>,
    pub(super) limits: Option<Strings>,
}

/// Something that is written as a number, or as text in quotes.
#[derive(Debug)]
pub(super) enum Term {
    Number(i64),
    Text(String),
}

/// `[source]`.
#[derive(Debug, Default)]
pub(super) struct SourceSection {
    pub(super) at: Range<usize>,
    pub(super) limits: KeyLookup<Strings>,
    pub(super) ipv4_prefix: Option<At<i64>>,
    pub(super) ipv6_prefix: Option<At<i64>>,
    pub(super) table_entries: Option<At<i64>>,
    pub(super) prefilter: Option<At<bool>>,
    pub(super) new_sources_per_cpu: Option<At<i64>>,
    pub(super) aggregation: AggregationWord,
}

/// `ladder`: a switch, or what it consists of.
#[derive(Debug, Default)]
pub(super) enum AggregationWord {
    #[default]
    Absent,
    Switch(bool),
    Levels {
        ipv4: Option<Strings>,
        ipv6: Option<Strings>,
    },
}

/// Reads what can be read of a text.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Document {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.syntax(&error.span().unwrap_or_default(), format!("not TOML: {}", error.message()));
    }
    let mut document = Document::default();
    for (key, value) in entries(root.get_ref(), problems) {
        match key.get_ref().as_ref() {
            "interfaces" => document.interfaces = strings("interfaces", value, problems),
            "source" => {
                let table = table("source", value, problems);
                document.source = table.map(|table| source(table, value.span(), problems)).into();
            }
            "mode" => document.mode = string("mode", value, problems),
            "host" => {
                let table = table("host", value, problems);
                document.host = table.map(|table| host::read(table, value.span(), problems)).into();
            }
            "service" => {
                document.services = tables("service", value, problems, service);
            }
            "user" => document.users = tables("user", value, problems, user),
            "plan" => {
                if let Some(table) = table("plan", value, problems) {
                    document.plans = plans(table, problems);
                }
            }
            "listen" => {
                let table = table("listen", value, problems);
                document.listen = table.map(|table| listen::read(table, problems)).into();
            }
            "cluster" => {
                let table = table("cluster", value, problems);
                document.cluster = table.map(|table| cluster::read(table, value.span(), problems)).into();
            }
            "requests" => {
                document.requests =
                    table("requests", value, problems).map(|table| api::requests(table, problems));
            }
            "attacks" => {
                document.attacks =
                    table("attacks", value, problems).map(|table| notify::attacks(table, problems));
            }
            "notify" => document.notify = tables("notify", value, problems, notify::read),
            "api" => document.apis = tables("api", value, problems, api::read),
            _ => unknown(key, &TOP, problems),
        }
    }
    document
}

fn source(table: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> SourceSection {
    let mut source = SourceSection { at, ..SourceSection::default() };
    for (key, value) in entries(table, problems) {
        match key.get_ref().as_ref() {
            "limits" => source.limits = strings("limits", value, problems).into(),
            "ipv4_prefix" => source.ipv4_prefix = integer("ipv4_prefix", value, problems),
            "ipv6_prefix" => source.ipv6_prefix = integer("ipv6_prefix", value, problems),
            "table_entries" => source.table_entries = integer("table_entries", value, problems),
            "ladder" => source.aggregation = aggregation(value, problems),
            "gate" => source.prefilter = boolean("gate", value, problems),
            "new_sources_per_cpu" => {
                source.new_sources_per_cpu = integer("new_sources_per_cpu", value, problems);
            }
            _ => unknown(key, &SOURCE, problems),
        }
    }
    source
}

fn aggregation(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> AggregationWord {
    match value.get_ref() {
        DeValue::Boolean(on) => AggregationWord::Switch(*on),
        DeValue::Table(fields) => {
            let (mut ipv4, mut ipv6) = (None, None);
            for (key, value) in entries(fields, problems) {
                match key.get_ref().as_ref() {
                    "ipv4" => ipv4 = strings("ipv4", value, problems),
                    "ipv6" => ipv6 = strings("ipv6", value, problems),
                    _ => unknown(key, &AGGREGATION, problems),
                }
            }
            AggregationWord::Levels { ipv4, ipv6 }
        }
        other => {
            let message = format!(
                "ladder is {}; write ladder = false, or ladder = {{ ipv4 = [\"/24 x32\"], ipv6 = [\"/48 x64\"] }}",
                kind(other)
            );
            problems.error(&value.span(), message);
            AggregationWord::Absent
        }
    }
}

fn user(fields: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> UserSection {
    let mut user = UserSection { at, ..UserSection::default() };
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "name" => user.name = string("name", value, problems),
            "plan" => user.plan = string("plan", value, problems),
            "sources" => user.sources = strings("sources", value, problems),
            "network" => user.network = strings("network", value, problems),
            "limits" => user.limits = strings("limits", value, problems),
            _ => unknown(key, &USER, problems),
        }
    }
    user
}

fn plans(fields: &DeTable<'_>, problems: &mut Problems<'_>) -> Vec<PlanTable> {
    let mut plans = Vec::new();
    for (name, value) in entries(fields, problems) {
        let Some(table) = table("a plan", value, problems) else { continue };
        let mut plan =
            PlanTable { at: name.span(), name: name.get_ref().to_string(), network: None, limits: None };
        for (key, value) in entries(table, problems) {
            match key.get_ref().as_ref() {
                "network" => plan.network = strings("network", value, problems),
                "limits" => plan.limits = strings("limits", value, problems),
                _ => unknown(key, &PLAN, problems),
            }
        }
        plans.push(plan);
    }
    plans
}

fn service(fields: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> ServiceTable {
    let mut service = ServiceTable { at, ..ServiceTable::default() };
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "name" => service.name = string("name", value, problems),
            "total" => service.total = strings("total", value, problems),
            "per_source" => service.per_source = strings("per_source", value, problems),
            "on_limit" => service.on_limit = string("on_limit", value, problems),
            "dscp" => service.dscp = term("dscp", value, problems),
            "syn_cookies" => service.syn_cookies = string("syn_cookies", value, problems),
            "match" => {
                if let Some(matching) = table("match", value, problems) {
                    read_match(matching, &mut service, problems);
                }
            }
            _ => unknown(key, &SERVICE, problems),
        }
    }
    service
}

fn read_match(fields: &DeTable<'_>, service: &mut ServiceTable, problems: &mut Problems<'_>) {
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "protocol" => service.protocol = term("protocol", value, problems),
            "ports" => service.ports = ports(value, problems),
            "destinations" => service.destinations = strings("destinations", value, problems).into(),
            _ => unknown(key, &MATCH, problems),
        }
    }
}

fn ports(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> Vec<At<Term>> {
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
