//! `[host]`: its keys, and what they mean.

use ratelimit_common::limit::{rate::Rate, text::parse_limit};
use toml::{Spanned, de::DeValue};

use super::{
    lists::{inside, rates},
    problem::Problems,
    table::policy_table,
    value::{At, KeyLookup, Strings, kind, strings},
};
use crate::policy::HostPolicy;

policy_table! {
    /// The table `[host]`.
    HostTable {
        at,
        "total" => total: Option<Strings> = strings,
        "link" => link: LinkWord = link_word,
    }
}

/// The value of `link`: a switch, or a rate.
#[derive(Debug, Default)]
pub(super) enum LinkWord {
    #[default]
    Absent,
    Switch(bool),
    Rate(At<String>),
}

fn link_word(_key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> LinkWord {
    match value.get_ref() {
        DeValue::Boolean(on) => LinkWord::Switch(*on),
        DeValue::String(text) => LinkWord::Rate((text.to_string(), value.span())),
        other => {
            let message =
                format!("link is {}; write link = \"20000 packets/s\", or link = false", kind(other));
            problems.error(&value.span(), message);
            LinkWord::Absent
        }
    }
}

/// The limits of the host, if the table is valid.
pub(super) fn resolve(table: &KeyLookup<HostTable>, problems: &mut Problems<'_>) -> Option<HostPolicy> {
    let table = match table {
        KeyLookup::Absent => return Some(HostPolicy::default()),
        KeyLookup::Unreadable => return None,
        KeyLookup::Read(table) => table,
    };
    let host = with_link(HostPolicy::default(), &table.link, problems);
    let Some(total) = &table.total else { return host };
    let read = rates(total, problems);
    if read.len() != total.entries.len() {
        return None;
    }
    let totals: Vec<Rate> = read.iter().map(|(rate, _)| *rate).collect();
    // The error belongs to the first total that makes the list invalid: the totals before it are valid together.
    let alone = |end: usize| HostPolicy::default().with_totals(totals[..end].to_vec());
    match (1..=totals.len()).find_map(|end| Some((end, alone(end).err()?))) {
        Some((end, error)) => {
            problems.error(&read[end - 1].1, error);
            None
        }
        None => host?.with_totals(totals).map_err(|error| problems.error(&table.at, error)).ok(),
    }
}

fn with_link(host: HostPolicy, word: &LinkWord, problems: &mut Problems<'_>) -> Option<HostPolicy> {
    match word {
        LinkWord::Absent | LinkWord::Switch(true) => Some(host),
        LinkWord::Switch(false) => host.with_link(None).ok(),
        LinkWord::Rate(text) => {
            let rate = link(text, problems)?;
            host.with_link(Some(rate)).map_err(|error| problems.error(&text.1, error)).ok()
        }
    }
}

fn link((text, at): &At<String>, problems: &mut Problems<'_>) -> Option<Rate> {
    match parse_limit(text) {
        Ok((rate, _)) => Some(rate),
        Err(error) => {
            let place = inside(error.text(), error.offset(), at, problems);
            problems.error(&place, error);
            None
        }
    }
}
