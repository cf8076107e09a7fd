//! `[attacks]` and `[[notify]]`: their keys, and what they mean.

use std::path::{Path, PathBuf};

use super::{
    problem::Problems,
    table::policy_table,
    value::{At, Strings, string, strings},
};
use crate::policy::{AttackPolicy, AttackPolicyError, Notifier, NotifyWay, Occasion, WebhookUrl};

/// The most notifiers; each has a queue of its own.
const MOST: usize = 16;
const EXAMPLE: &str =
    "write webhook = \"https://alerts.example/ratelimit\" or command = [\"/usr/local/bin/on-attack\"]";

policy_table! {
    /// The table `[attacks]`.
    AttacksTable {
        "begin" => begin: Option<At<String>> = string,
        "begin_requests" => begin_requests: Option<At<String>> = string,
        "unusual" => unusual: Option<At<String>> = string,
        "end_after" => end_after: Option<At<String>> = string,
    }
}

policy_table! {
    /// The table `[[notify]]`.
    NotifyTable {
        at,
        "name" => name: Option<At<String>> = string,
        "webhook" => webhook: Option<At<String>> = string,
        "secret_file" => secret_file: Option<At<String>> = string,
        "ca_file" => ca_file: Option<At<String>> = string,
        "command" => command: Option<Strings> = strings,
        "on" => on: Option<Strings> = strings,
    }
}

/// Reads the thresholds of attacks.
pub(super) fn attacks(table: Option<&AttacksTable>, problems: &mut Problems<'_>) -> AttackPolicy {
    let mut policy = AttackPolicy::default();
    let Some(table) = table else { return policy };
    type With = fn(AttackPolicy, &str) -> Result<AttackPolicy, AttackPolicyError>;
    let keys: [(&Option<At<String>>, With); 4] = [
        (&table.begin, AttackPolicy::with_begin),
        (&table.begin_requests, AttackPolicy::with_begin_requests),
        (&table.unusual, AttackPolicy::with_unusual),
        (&table.end_after, AttackPolicy::with_end_after),
    ];
    for (written, with) in keys {
        let Some((text, at)) = written else { continue };
        match with(policy, text) {
            Ok(next) => policy = next,
            Err(error) => problems.error(at, error),
        }
    }
    policy
}

/// Reads the notifiers, if all tables are valid.
pub(super) fn resolve(tables: &[NotifyTable], problems: &mut Problems<'_>) -> Vec<Notifier> {
    if let Some(first_too_many) = tables.get(MOST) {
        let message = format!("{} are more than can be told; use at most {MOST}", tables.len());
        problems.error(&first_too_many.at, message);
    }
    let mut notifiers: Vec<Notifier> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let name = name(index, table, &notifiers, problems);
        let (way, on) = (way(table, problems), occasions(table.on.as_ref(), problems));
        notifiers.extend(way.map(|way| Notifier { name, way, on }));
    }
    notifiers
}

fn name(index: usize, table: &NotifyTable, others: &[Notifier], problems: &mut Problems<'_>) -> String {
    let Some((name, at)) = &table.name else { return (index + 1).to_string() };
    let is_plain =
        !name.is_empty() && name.len() <= 64 && !name.contains(|c: char| c.is_control() || c == '"');
    if !is_plain {
        problems.error(at, format!("name = {name:?} is no name; use up to 64 plain letters"));
    }
    if others.iter().any(|other| other.name == *name) {
        problems.error(at, format!("notify {name:?} is there twice; use another name"));
    }
    name.clone()
}

fn way(table: &NotifyTable, problems: &mut Problems<'_>) -> Option<NotifyWay> {
    match (&table.webhook, &table.command) {
        (Some((text, at)), None) => {
            let url = WebhookUrl::parse(text).map_err(|error| problems.error(at, error)).ok();
            let secret_file = table.secret_file.as_ref().and_then(|file| path("secret_file", file, problems));
            let ca_file = table.ca_file.as_ref().and_then(|file| path("ca_file", file, problems));
            let url = url?;
            if let (Some((_, at)), false) = (&table.ca_file, url.tls) {
                problems.error(at, "ca_file is for https://; leave it out, or speak TLS");
            }
            if !url.tls && !is_near(&url.host) {
                problems.warning(
                    at,
                    format!("webhook on {url} is not encrypted: everybody on the way can read of attacks"),
                );
            }
            Some(NotifyWay::Webhook { url, secret_file, ca_file })
        }
        (None, Some(command)) => {
            for (key, written) in [("secret_file", &table.secret_file), ("ca_file", &table.ca_file)] {
                if let Some((_, at)) = written {
                    problems.error(at, format!("{key} is for a webhook; a command needs none"));
                }
            }
            words(command, problems).map(NotifyWay::Command)
        }
        (Some(_), Some(command)) => {
            problems.error(
                &command.at,
                "a notify has a webhook or a command, not both; write another [[notify]]",
            );
            None
        }
        (None, None) => {
            problems.missing(&table.at, format!("notify has neither a webhook nor a command; {EXAMPLE}"));
            None
        }
    }
}

/// Whether the host is this machine, so that nobody can read what is sent to it.
fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn words(command: &Strings, problems: &mut Problems<'_>) -> Option<Vec<String>> {
    let words: Option<Vec<String>> = command.entries.iter().map(|(word, _)| word.clone()).collect();
    let words = words?;
    match words.first() {
        Some(program)
            if Path::new(program).is_absolute() && words.iter().all(|word| !word.contains('\0')) =>
        {
            Some(words)
        }
        Some(program) => {
            problems.error(
                &command.at,
                format!(
                    "command {program:?} is no absolute path; write the whole of it, no shell looks for it"
                ),
            );
            None
        }
        None => {
            problems.error(&command.at, "command is empty; name a program and its arguments");
            None
        }
    }
}

fn path(key: &str, (text, at): &At<String>, problems: &mut Problems<'_>) -> Option<PathBuf> {
    if text.is_empty() {
        problems.error(at, format!("{key} is empty; name a file"));
    }
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn occasions(list: Option<&Strings>, problems: &mut Problems<'_>) -> Vec<Occasion> {
    let Some(list) = list else { return Occasion::USUAL.to_vec() };
    let mut occasions = Vec::new();
    for (text, at) in &list.entries {
        let Some(text) = text else { continue };
        match Occasion::ALL.into_iter().find(|occasion| occasion.name() == text) {
            Some(occasion) if occasions.contains(&occasion) => {}
            Some(occasion) => occasions.push(occasion),
            None => {
                let known = Occasion::ALL.map(Occasion::name).join(", ");
                problems.error(at, format!("on: {text:?} is nothing that happens; use {known}"));
            }
        }
    }
    if list.entries.is_empty() {
        problems
            .error(&list.at, "on is empty: nobody would be told anything; leave it out, or name an occasion");
    }
    occasions.sort();
    occasions
}
