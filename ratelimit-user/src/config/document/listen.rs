//! The shape of `[listen]`.

use std::ops::Range;

use toml::de::DeTable;

use crate::config::{
    keys::{LISTEN, TLS, unknown},
    problem::Problems,
    value::{At, Strings, entries, integer, one_or_more, string, strings, table},
};

/// `[listen]`.
#[derive(Debug, Default)]
pub(in crate::config) struct ListenTable {
    pub(in crate::config) http: Vec<At<String>>,
    pub(in crate::config) grpc: Vec<At<String>>,
    pub(in crate::config) resp: Vec<At<String>>,
    pub(in crate::config) metrics: Option<At<String>>,
    pub(in crate::config) metrics_top: Option<At<i64>>,
    pub(in crate::config) token_file: Option<At<String>>,
    pub(in crate::config) operator_token_file: Option<At<String>>,
    pub(in crate::config) tls: Option<TlsTable>,
    pub(in crate::config) trusted_proxies: Option<Strings>,
    pub(in crate::config) socket_mode: Option<At<String>>,
    pub(in crate::config) socket_group: Option<At<String>>,
}

/// `tls = { … }`.
#[derive(Debug, Default)]
pub(in crate::config) struct TlsTable {
    pub(in crate::config) at: Range<usize>,
    pub(in crate::config) certificate: Option<At<String>>,
    pub(in crate::config) key: Option<At<String>>,
    pub(in crate::config) client_ca: Option<At<String>>,
}

pub(super) fn read(fields: &DeTable<'_>, problems: &mut Problems<'_>) -> ListenTable {
    let mut listen = ListenTable::default();
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "http" => listen.http = one_or_more("http", value, problems),
            "grpc" => listen.grpc = one_or_more("grpc", value, problems),
            "resp" => listen.resp = one_or_more("resp", value, problems),
            "metrics_top" => listen.metrics_top = integer("metrics_top", value, problems),
            "metrics" => listen.metrics = string("metrics", value, problems),
            "token_file" => listen.token_file = string("token_file", value, problems),
            "operator_token_file" => {
                listen.operator_token_file = string("operator_token_file", value, problems);
            }
            "tls" => {
                listen.tls = table("tls", value, problems).map(|fields| tls(fields, value.span(), problems));
            }
            "trusted_proxies" => listen.trusted_proxies = strings("trusted_proxies", value, problems),
            "socket_mode" => listen.socket_mode = string("socket_mode", value, problems),
            "socket_group" => listen.socket_group = string("socket_group", value, problems),
            _ => unknown(key, &LISTEN, problems),
        }
    }
    listen
}

fn tls(fields: &DeTable<'_>, at: Range<usize>, problems: &mut Problems<'_>) -> TlsTable {
    let mut tls = TlsTable { at, ..TlsTable::default() };
    for (key, value) in entries(fields, problems) {
        match key.get_ref().as_ref() {
            "certificate" => tls.certificate = string("certificate", value, problems),
            "key" => tls.key = string("key", value, problems),
            "client_ca" => tls.client_ca = string("client_ca", value, problems),
            _ => unknown(key, &TLS, problems),
        }
    }
    tls
}
