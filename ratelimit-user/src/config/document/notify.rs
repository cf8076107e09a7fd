//! The shape of `[attacks]` and `[[notify]]`.

use std::ops::Range;

use toml::de::DeTable;

use crate::config::{
    keys::{ATTACKS, NOTIFY, unknown},
    problem::Problems,
    value::{At, Strings, entries, string, strings},
};

/// `[attacks]`.
#[derive(Debug, Default)]
pub(in crate::config) struct AttacksTable {
    pub(in crate::config) begin: Option<At<String>>,
    pub(in crate::config) begin_requests: Option<At<String>>,
    pub(in crate::config) end_after: Option<At<String>>,
}

/// `[[notify]]`.
#[derive(Debug, Default)]
pub(in crate::config) struct NotifyTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) name: Option<At<String>>,
    pub(in crate::config) webhook: Option<At<String>>,
    pub(in crate::config) secret_file: Option<At<String>>,
    pub(in crate::config) ca_file: Option<At<String>>,
    pub(in crate::config) command: Option<Strings>,
    pub(in crate::config) on: Option<Strings>,
}

pub(super) fn attacks(fields: &DeTable<'_>, problems: &mut Problems<'_>) -> AttacksTable {
    let mut attacks = AttacksTable::default();
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "begin" => attacks.begin = string("begin", value, problems),
            "begin_requests" => attacks.begin_requests = string("begin_requests", value, problems),
            "end_after" => attacks.end_after = string("end_after", value, problems),
            _ => unknown(key, &ATTACKS, problems),
        }
    }
    attacks
}

pub(super) fn read(fields: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> NotifyTable {
    let mut notify = NotifyTable { at, ..NotifyTable::default() };
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "name" => notify.name = string("name", value, problems),
            "webhook" => notify.webhook = string("webhook", value, problems),
            "secret_file" => notify.secret_file = string("secret_file", value, problems),
            "ca_file" => notify.ca_file = string("ca_file", value, problems),
            "command" => notify.command = strings("command", value, problems),
            "on" => notify.on = strings("on", value, problems),
            _ => unknown(key, &NOTIFY, problems),
        }
    }
    notify
}
