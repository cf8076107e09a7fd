//! Which keys each table of a policy file has, and what is said about any other.

use std::borrow::Cow;

use toml::Spanned;

use super::problem::Problems;

/// The keys of one table.
pub(super) struct KnownKeys {
    pub(super) known: &'static [&'static str],
}

pub(super) const TOP: KnownKeys = KnownKeys {
    known: &[
        "interfaces",
        "mode",
        "source",
        "host",
        "service",
        "plan",
        "user",
        "requests",
        "api",
        "listen",
        "cluster",
        "attacks",
        "notify",
    ],
};
pub(super) const SOURCE: KnownKeys = KnownKeys {
    known: &[
        "limits",
        "ipv4_prefix",
        "ipv6_prefix",
        "table_entries",
        "gate",
        "ladder",
        "new_sources_per_cpu",
    ],
};
pub(super) const HOST: KnownKeys = KnownKeys { known: &["total", "link"] };
pub(super) const AGGREGATION: KnownKeys = KnownKeys { known: &["ipv4", "ipv6"] };
pub(super) const SERVICE: KnownKeys =
    KnownKeys { known: &["name", "match", "per_source", "total", "on_limit", "dscp", "syn_cookies"] };
pub(super) const USER: KnownKeys = KnownKeys { known: &["name", "plan", "sources", "network", "limits"] };
pub(super) const PLAN: KnownKeys = KnownKeys { known: &["network", "limits"] };
pub(super) const MATCH: KnownKeys = KnownKeys { known: &["protocol", "ports", "destinations"] };
pub(super) const CLUSTER: KnownKeys = KnownKeys {
    known: &["redis", "password_file", "name", "host", "hosts", "reserve", "tick", "lease", "without_store"],
};
pub(super) const LISTEN: KnownKeys = KnownKeys {
    known: &[
        "http",
        "grpc",
        "resp",
        "metrics",
        "metrics_top",
        "token_file",
        "operator_token_file",
        "tls",
        "trusted_proxies",
        "socket_mode",
        "socket_group",
    ],
};
pub(super) const TLS: KnownKeys = KnownKeys { known: &["certificate", "key", "client_ca"] };
pub(super) const REQUESTS: KnownKeys = KnownKeys { known: &["keys", "threads", "time_zone"] };
pub(super) const API: KnownKeys = KnownKeys {
    known: &[
        "name",
        "key",
        "limits",
        "algorithm",
        "throttle",
        "on_limit",
        "sharing",
        "without_store",
        "reserved",
        "ipv4_prefix",
        "ipv6_prefix",
        "time_zone",
        "plans",
        "users",
        "escalate",
        "preset",
        "per_ip",
        "per_user_and_ip",
        "per_user",
        "known_for",
    ],
};
pub(super) const ATTACKS: KnownKeys = KnownKeys { known: &["begin", "begin_requests", "end_after"] };
pub(super) const NOTIFY: KnownKeys =
    KnownKeys { known: &["name", "webhook", "secret_file", "ca_file", "command", "on"] };
pub(super) const RESERVED: KnownKeys = KnownKeys { known: &["critical", "normal"] };
pub(super) const ESCALATE: KnownKeys =
    KnownKeys { known: &["above", "for", "block", "ipv4_prefix", "ipv6_prefix"] };

pub(super) fn unknown(key: &Spanned<Cow<'_, str>>, keys: &KnownKeys, problems: &mut Problems<'_>) {
    let name = key.get_ref().as_ref();
    let known = keys.known.join(", ");
    let near = keys.known.iter().map(|word| (distance(word, name), word)).min();
    let message = match near {
        // One letter is a slip, also where the word is one of another table.
        Some((1, word)) => format!("key {name:?} is not known; did you mean {word:?}? known here: {known}"),
        // The mistake TOML invites: a key below the wrong [table] line.
        _ if TOP.known.contains(&name) => {
            format!("key {name:?} belongs above the first [table]; move it there")
        }
        _ if SOURCE.known.contains(&name) => format!("key {name:?} belongs in [source]; move it there"),
        Some((distance, word)) if distance <= 2 => {
            format!("key {name:?} is not known; did you mean {word:?}? known here: {known}")
        }
        _ => format!("key {name:?} is not known; known here: {known}"),
    };
    problems.error(&key.span(), message);
}

/// Edits that lead from one word to another (Levenshtein): small for a typing mistake.
fn distance(from: &str, to: &str) -> usize {
    if from.len().abs_diff(to.len()) > from.len() {
        return to.len();
    }
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
