//! The shape of a policy file: the tables and keys at its top level. Each table is declared in the file with its meaning.

use toml::de::DeTable;

use super::{
    apis::{ApiTable, RequestsTable},
    cluster::ClusterTable,
    host::HostTable,
    listen::ListenTable,
    notify::{AttacksTable, NotifyTable},
    problem::{KeyHome, Problems},
    services::ServiceTable,
    source::SourceSection,
    table::{PolicyTable, each, one, policy_table},
    users::{PlanTable, UserSection, plans},
    value::{At, KeyLookup, Strings, string, strings},
};

policy_table! {
    /// The content of a policy file, each value with its place, not checked yet.
    Document {
        "interfaces" => interfaces: Option<Strings> = strings,
        "mode" => mode: Option<At<String>> = string,
        "source" => source: KeyLookup<SourceSection> = one::<SourceSection>,
        "host" => host: KeyLookup<HostTable> = one::<HostTable>,
        "service" => services: Vec<ServiceTable> = each::<ServiceTable>,
        "plan" => plans: Vec<PlanTable> = plans,
        "user" => users: Vec<UserSection> = each::<UserSection>,
        "requests" => requests: Option<RequestsTable> = one::<RequestsTable>,
        "api" => apis: Vec<ApiTable> = each::<ApiTable>,
        "listen" => listen: KeyLookup<ListenTable> = one::<ListenTable>,
        "cluster" => cluster: KeyLookup<ClusterTable> = one::<ClusterTable>,
        "attacks" => attacks: Option<AttacksTable> = one::<AttacksTable>,
        "notify" => notify: Vec<NotifyTable> = each::<NotifyTable>,
    }
}

/// Keys that are often written below the wrong `[table]` line, and where they belong.
pub(super) const HOMES: [KeyHome; 2] = [
    KeyHome { keys: Document::KEYS, place: "above the first [table]" },
    KeyHome { keys: SourceSection::KEYS, place: "in [source]" },
];

/// Reads as much of a text as possible, and reports the rest.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Document {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.syntax(&error.span().unwrap_or_default(), format!("not TOML: {}", error.message()));
    }
    Document::read(root.get_ref(), &(0..text.len()), problems)
}
