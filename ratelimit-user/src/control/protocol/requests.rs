//! The question of `test` and the decision that answers it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A question about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestQuestion {
    /// The user who makes the request; empty if no user is named.
    #[serde(default)]
    pub user: String,
    /// The API that the request is for.
    pub api: String,
    /// The address that the request comes from.
    #[serde(default)]
    pub ip: Option<IpAddr>,
    /// The units that the request takes.
    pub cost: u64,
    /// The priority of the request, by name.
    #[serde(default)]
    pub priority: Option<String>,
    /// Further parts of the key.
    #[serde(default)]
    pub parts: Vec<(String, String)>,
    /// Whether nothing is to be counted.
    #[serde(default)]
    pub peek: bool,
}

/// The decision on a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionInfo {
    /// Whether the request is to be served.
    pub allowed: bool,
    /// allowed, in_margin, deprioritised, delayed or refused.
    pub outcome: String,
    /// The limit that decided, or is nearest to its end.
    pub policy: Option<String>,
    /// The units per window of that limit.
    pub limit: Option<u64>,
    /// The window of that limit in seconds.
    pub window_seconds: Option<u64>,
    /// The units that are left of that limit.
    pub remaining: Option<u64>,
    /// Milliseconds until that limit is whole again.
    pub reset_ms: Option<u64>,
    /// Milliseconds until a refused request would be allowed; absent if it never will be.
    pub retry_after_ms: Option<u64>,
    /// Milliseconds that a delayed request waits.
    pub delay_ms: Option<u64>,
}
