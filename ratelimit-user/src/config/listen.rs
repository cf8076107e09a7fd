//! `[listen]`: its keys, and what they mean.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use super::{
    lists::prefixes,
    problem::Problems,
    table::{one, policy_table},
    value::{At, KeyLookup, Strings, integer, one_or_more, string, strings},
};
use crate::policy::{Listen, ListenEndpoint, ListenTls, MAX_METRICS_TOP, SocketRights};

policy_table! {
    /// The table `[listen]`.
    ListenTable {
        "http" => http: Vec<At<String>> = one_or_more,
        "grpc" => grpc: Vec<At<String>> = one_or_more,
        "resp" => resp: Vec<At<String>> = one_or_more,
        "metrics" => metrics: Option<At<String>> = string,
        "metrics_top" => metrics_top: Option<At<i64>> = integer,
        "token_file" => token_file: Option<At<String>> = string,
        "operator_token_file" => operator_token_file: Option<At<String>> = string,
        "tls" => tls: Option<TlsTable> = one::<TlsTable>,
        "trusted_proxies" => trusted_proxies: Option<Strings> = strings,
        "socket_mode" => socket_mode: Option<At<String>> = string,
        "socket_group" => socket_group: Option<At<String>> = string,
    }
}

policy_table! {
    /// `tls = { … }`.
    TlsTable {
        at,
        "certificate" => certificate: Option<At<String>> = string,
        "key" => key: Option<At<String>> = string,
        "client_ca" => client_ca: Option<At<String>> = string,
    }
}

/// The sentence about an operator's token that is also the token of programs.
pub const OPERATORS_ARE_OTHERS: &str = "operator_token_file has the token of token_file: every program that asks could change the lists; name a file with another token";

/// The listeners of the daemon, if the table is valid.
pub(super) fn resolve(table: &KeyLookup<ListenTable>, problems: &mut Problems<'_>) -> Option<Listen> {
    let table = match table {
        KeyLookup::Absent => return Some(Listen::default()),
        KeyLookup::Unreadable => return None,
        KeyLookup::Read(table) => table,
    };
    let mut taken: Vec<(&str, ListenEndpoint)> = Vec::new();
    let mut listen = Listen::new(metrics(table.metrics.as_ref(), &mut taken, problems));
    listen.metrics_top = metrics_top(table, problems);
    listen.tls = table.tls.as_ref().and_then(|tls| certificates(tls, problems));
    listen.token_file = table.token_file.as_ref().and_then(|text| file("token_file", text, problems));
    listen.operator_token_file = operator_token(table, problems);
    // Whether callers prove who they are, judged by the keys alone: unusable certificates are reported already.
    let shown = table.token_file.is_some() || table.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    listen.http = endpoints("http", &table.http, shown, &mut taken, problems);
    listen.grpc = endpoints("grpc", &table.grpc, shown, &mut taken, problems);
    listen.resp = endpoints("resp", &table.resp, shown, &mut taken, problems);
    listen.socket_rights = socket_rights(table, problems);
    let proxies =
        table.trusted_proxies.as_ref().map_or_else(|| Some(Vec::new()), |list| prefixes(list, problems));
    listen.trusted_proxies = proxies?;
    Some(listen)
}

/// The file with the operators' token. The token must be unreadable on the way: it can change the lists.
fn operator_token(table: &ListenTable, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let written = table.operator_token_file.as_ref()?;
    let at = &written.1;
    if table.http.is_empty() {
        problems
            .warning(at, "operator_token_file does nothing: the dashboard is on http, which is not named");
    }
    let mut open = table.http.iter().filter_map(|(text, _)| text.parse::<SocketAddr>().ok());
    if let (None, Some(address)) = (&table.tls, open.find(|address| !address.ip().is_loopback())) {
        let message = format!(
            "operator_token_file: what operators type on {address} can be read on the way; name tls, or listen on loopback and come through SSH"
        );
        problems.warning(at, message);
    }
    let named = file("operator_token_file", written, problems)?;
    let of_programs = table.token_file.as_ref().map(|(text, _)| PathBuf::from(text));
    if of_programs.as_ref() == Some(&named) {
        problems.error(at, OPERATORS_ARE_OTHERS);
        return None;
    }
    Some(named)
}

/// How many sources have metric series of their own.
fn metrics_top(table: &ListenTable, problems: &mut Problems<'_>) -> u32 {
    let Some((number, at)) = &table.metrics_top else { return 0 };
    if table.metrics.is_none() {
        problems.warning(at, "metrics_top does nothing: metrics is not named");
    }
    let top = u32::try_from(*number).ok().filter(|top| *top <= MAX_METRICS_TOP);
    top.unwrap_or_else(|| {
        problems.error(at, format!("metrics_top = {number} is out of range; use 0 to {MAX_METRICS_TOP}"));
        0
    })
}

/// Reads mode and group of the socket files.
fn socket_rights(table: &ListenTable, problems: &mut Problems<'_>) -> SocketRights {
    let mut rights = SocketRights::default();
    if let Some((text, at)) = &table.socket_mode {
        match mode(text) {
            Some(mode) => rights.mode = mode,
            None => problems.error(
                at,
                format!("socket_mode = {text:?} is no mode of a socket; use \"0660\" for owner and group, \"0600\" or \"0666\""),
            ),
        }
        if rights.mode & 0o002 != 0 {
            let message =
                format!("socket_mode = {text:?}: everybody on this host may ask and reset, without a token");
            problems.warning(at, message);
        }
    }
    if let Some((text, at)) = &table.socket_group {
        if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == ':') {
            problems.error(
                at,
                format!("socket_group = {text:?} is no name of a group; use one such as \"www-data\""),
            );
        }
        rights.group = Some(text.clone());
    }
    rights
}

/// Parses a file mode of octal digits: rights to read and write, and the owner must have both.
fn mode(text: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal)?;
    (mode & !0o666 == 0 && mode & 0o600 == 0o600).then_some(mode)
}

fn metrics(
    written: Option<&At<String>>,
    taken: &mut Vec<(&str, ListenEndpoint)>,
    problems: &mut Problems<'_>,
) -> Option<SocketAddr> {
    let (text, at) = written?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let message =
            format!("metrics = {text:?} is not an address with a port; use one such as \"127.0.0.1:9464\"");
        problems.error(at, message);
        return None;
    };
    if !address.ip().is_loopback() {
        problems.warning(at, format!("metrics on {address} can be read by anybody who reaches it"));
    }
    taken.push(("metrics", ListenEndpoint::Tcp(address)));
    Some(address)
}

fn endpoints<'k>(
    key: &'k str,
    written: &[At<String>],
    shown: bool,
    taken: &mut Vec<(&'k str, ListenEndpoint)>,
    problems: &mut Problems<'_>,
) -> Vec<ListenEndpoint> {
    let mut endpoints = Vec::new();
    for (text, at) in written {
        let endpoint = match endpoint(text) {
            Ok(endpoint) => endpoint,
            Err(why) => {
                problems.error(at, format!("{key} = {text:?} {why}"));
                continue;
            }
        };
        if let ListenEndpoint::Tcp(address) = endpoint
            && !address.ip().is_loopback()
            && !shown
        {
            let message = format!(
                "{key} on {address} would answer anybody who reaches it; name a token_file or tls.client_ca, or listen on loopback"
            );
            problems.error(at, message);
        }
        if let Some((other, _)) = taken.iter().find(|(_, other)| overlap(other, &endpoint)) {
            problems.error(at, format!("{key} on {endpoint}: {other} listens there already; use another"));
        }
        taken.push((key, endpoint.clone()));
        endpoints.push(endpoint);
    }
    endpoints
}

fn endpoint(text: &str) -> Result<ListenEndpoint, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        if path.is_absolute() {
            return Ok(ListenEndpoint::Unix(path));
        }
        return Err("is no absolute path; use one such as \"unix:/run/ratelimit/http.sock\"");
    }
    text.parse().map(ListenEndpoint::Tcp).map_err(|_| {
        "is not an address with a port, nor a socket; use one such as \"127.0.0.1:8080\" or \"unix:/run/ratelimit/http.sock\""
    })
}

/// Whether two endpoints cannot be bound at the same time. Port 0 stands for any free port.
fn overlap(one: &ListenEndpoint, other: &ListenEndpoint) -> bool {
    match (one, other) {
        (ListenEndpoint::Tcp(one), ListenEndpoint::Tcp(other)) => {
            // A socket on all addresses of IPv6 takes those of IPv4 too.
            let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
            let (ip, other_ip) = (one.ip(), other.ip());
            one.port() == other.port()
                && one.port() != 0
                && (ip == other_ip || covers(ip, other_ip) || covers(other_ip, ip))
        }
        (ListenEndpoint::Unix(one), ListenEndpoint::Unix(other)) => one == other,
        _ => false,
    }
}

fn certificates(table: &TlsTable, problems: &mut Problems<'_>) -> Option<ListenTls> {
    let mut path = |key: &str, written: &Option<At<String>>| match written {
        Some(text) => file(key, text, problems),
        None => {
            problems
                .missing(&table.at, format!("tls has no {key}; write {key} = \"/etc/ratelimit/{key}.pem\""));
            None
        }
    };
    let (certificate, key) = (path("certificate", &table.certificate), path("key", &table.key));
    let client_ca = match &table.client_ca {
        Some(text) => Some(file("client_ca", text, problems)?),
        None => None,
    };
    Some(ListenTls { certificate: certificate?, key: key?, client_ca })
}

fn file(key: &str, (text, at): &At<String>, problems: &mut Problems<'_>) -> Option<PathBuf> {
    if text.is_empty() {
        problems.error(at, format!("{key} is empty; name a file"));
    }
    (!text.is_empty()).then(|| PathBuf::from(text))
}
