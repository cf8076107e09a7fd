//! The differences between two policies, as rows that a person can read. Pure, and independent of the order in either file.
//!
//! Each policy is flattened into `subjects` with fields in words; what differs is a row. A new key of the policy is one more
//! field in the `fields` of its type.

mod cluster;
mod limits;
mod subjects;
mod users;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{NONE, Policy, User, fields::Fields};
use cluster::{CLUSTER, other_secret};
use limits::limits;
use subjects::subjects;
use users::{source_rows, sources_in_words, unlike};

/// One difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// `limit source.packets`, `service dns`, `source`, `interfaces`, `listen`.
    pub subject: String,
    /// The property that differs; `None` when the whole subject does.
    pub field: Option<String>,
    /// The value before; `None` when the subject is new.
    pub before: Option<String>,
    /// The value after; `None` when the subject is removed.
    pub after: Option<String>,
    /// Whether the change takes effect only after a restart of the daemon.
    pub needs_restart: bool,
}

impl fmt::Display for PolicyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if let Some(field) = &self.field {
            write!(f, " {field}")?;
        }
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {before} -> {after}")?,
            (None, Some(after)) => write!(f, " added: {after}")?,
            (Some(before), None) => write!(f, " removed: was {before}")?,
            (None, None) => {}
        }
        if self.needs_restart { f.write_str("; takes effect at the next start") } else { Ok(()) }
    }
}

/// All differences in a fixed order: limits first, then the other subjects by name.
pub fn changes(before: &Policy, after: &Policy) -> Vec<PolicyChange> {
    let mut rows = limits(before.source().limits(), after.source().limits());
    let (old_users, new_users) =
        (unlike(before.users(), after.users()), unlike(after.users(), before.users()));
    let other_secret = other_secret(before, after);
    let (before, mut after) = (subjects(before, &old_users), subjects(after, &new_users));
    if other_secret
        && let Some((words, _)) = after.get_mut(CLUSTER).and_then(|fields| fields.get_mut("redis"))
    {
        words.push_str(" with another password or other certificates");
    }
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) => {
                rows.extend(fields(name, before, after));
                if let Some((old, new)) = old_users.get(name).zip(new_users.get(name)) {
                    rows.extend(source_rows(name, old, new));
                }
            }
            (before, after) => rows.push(PolicyChange {
                subject: name.clone(),
                field: None,
                before: before.map(|fields| in_words(fields, old_users.get(name).copied())),
                after: after.map(|fields| in_words(fields, new_users.get(name).copied())),
                needs_restart: [before, after].into_iter().flatten().any(needs_restart),
            }),
        }
    }
    rows
}

fn needs_restart(fields: &Fields) -> bool {
    fields.values().any(|(_, must)| *must)
}

fn fields(subject: &str, before: &Fields, after: &Fields) -> Vec<PolicyChange> {
    let names: BTreeSet<&Cow<'static, str>> = before.keys().chain(after.keys()).collect();
    let differs = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let value = |side: &Fields, name: &str| side.get(name).map_or(NONE.to_owned(), |(text, _)| text.clone());
    differs
        .map(|name| PolicyChange {
            subject: subject.to_owned(),
            field: (!name.is_empty()).then(|| name.to_string()),
            before: Some(value(before, name)),
            after: Some(value(after, name)),
            needs_restart: [before, after].iter().any(|side| side.get(name).is_some_and(|(_, must)| *must)),
        })
        .collect()
}

fn in_words(fields: &Fields, user: Option<&User>) -> String {
    let mut words: Vec<String> = fields.iter().map(|(name, (text, _))| format!("{name} {text}")).collect();
    if let Some(user) = user {
        words.push(format!("sources {}", sources_in_words(user)));
    }
    words.join("; ")
}
