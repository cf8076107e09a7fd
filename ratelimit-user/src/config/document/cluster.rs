//! The shape of `[cluster]`.

use std::ops::Range;

use toml::de::DeTable;

use crate::config::{
    keys::{CLUSTER, unknown},
    problem::Problems,
    value::{At, KeyLookup, entries, integer, string},
};

/// `[cluster]`.
#[derive(Debug, Default)]
pub(in crate::config) struct ClusterTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) redis: KeyLookup<At<String>>,
    pub(in crate::config) password_file: Option<At<String>>,
    pub(in crate::config) name: Option<At<String>>,
    pub(in crate::config) host: Option<At<String>>,
    pub(in crate::config) hosts: Option<At<i64>>,
    pub(in crate::config) reserve: Option<At<String>>,
    pub(in crate::config) tick: Option<At<String>>,
    pub(in crate::config) lease: Option<At<String>>,
    pub(in crate::config) without_store: Option<At<String>>,
}

pub(super) fn read(table: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> ClusterTable {
    let mut cluster = ClusterTable { at, ..ClusterTable::default() };
    for (key, value) in entries(table, problems) {
        match key.get_ref().as_ref() {
            "redis" => cluster.redis = string("redis", value, problems).into(),
            "password_file" => cluster.password_file = string("password_file", value, problems),
            "name" => cluster.name = string("name", value, problems),
            "host" => cluster.host = string("host", value, problems),
            "hosts" => cluster.hosts = integer("hosts", value, problems),
            "reserve" => cluster.reserve = string("reserve", value, problems),
            "tick" => cluster.tick = string("tick", value, problems),
            "lease" => cluster.lease = string("lease", value, problems),
            "without_store" => cluster.without_store = string("without_store", value, problems),
            _ => unknown(key, &CLUSTER, problems),
        }
    }
    cluster
}
