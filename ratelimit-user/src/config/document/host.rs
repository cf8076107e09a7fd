//! The shape of `[host]`.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::config::{
    keys::{HOST, unknown},
    problem::Problems,
    value::{At, Strings, entries, kind, strings},
};

/// `[host]`.
#[derive(Debug, Default)]
pub(in crate::config) struct HostTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) total: Option<Strings>,
    pub(in crate::config) link: LinkWord,
}

/// `link`: a switch, or a rate.
#[derive(Debug, Default)]
pub(in crate::config) enum LinkWord {
    #[default]
    Absent,
    Switch(bool),
    Rate(At<String>),
}

pub(super) fn read(table: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> HostTable {
    let mut host = HostTable { at, ..HostTable::default() };
    for (key, value) in entries(table, problems) {
        match key.get_ref().as_ref() {
            "total" => host.total = strings("total", value, problems),
            "link" => host.link = link(value, problems),
            _ => unknown(key, &HOST, problems),
        }
    }
    host
}

fn link(value: &Spanned<DeValue<'_>>, problems: &mut Problems<'_>) -> LinkWord {
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
