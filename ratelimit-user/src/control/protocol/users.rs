//! Orders and replies about users and their limits.

use serde::{Deserialize, Serialize};

/// A change of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserOrder {
    /// The name of the user.
    pub name: String,
    /// The plan that the user is to be on, if it changes.
    pub plan: Option<String>,
    /// Limits that replace those of the plan, as they are typed.
    pub network: Vec<String>,
    /// Whether the user gets the limits of its plan again.
    pub inherit: bool,
    /// Whether the change is also written into the file that the policy came from.
    pub save: bool,
}

/// One limit of the running policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// The name of the limit.
    pub name: String,
    /// The rate, as it is typed.
    pub rate: String,
    /// The meter of the limit.
    pub meter: String,
    /// Units per period.
    pub amount: u64,
    /// The period of the limit.
    pub period: String,
    /// Units that an idle source may send at once.
    pub burst: u64,
    /// The list that the limit comes from, if it is another list: a user may have the limits of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// One user of the running policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// The name of the user.
    pub name: String,
    /// The plan that the user is on.
    pub plan: Option<String>,
    /// Whether the user has limits of its own instead of those of its plan.
    pub own: bool,
    /// The prefixes of the user.
    pub sources: Vec<String>,
    /// The limits that all addresses of the user share, as they are typed.
    pub network: Vec<String>,
    /// How much is left of each of these limits, if the order asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<UserBucket>>,
}

/// How much is left of one limit of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBucket {
    /// The limit, as it is typed.
    pub limit: String,
    /// Units that may come at once now.
    pub left: u64,
    /// Units that may come at once after a while of silence.
    pub burst: u64,
    /// Units that this host holds as a lease, for a limit that holds on all hosts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
    /// The part of a limit on all hosts together that was lately spent on this host, in percent; the host's part of the reserve is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u64>,
}
