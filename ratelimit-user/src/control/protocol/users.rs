//! What is said about users and their limits.

use serde::{Deserialize, Serialize};

/// What is to become of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserOrder {
    /// The name of the user.
    pub name: String,
    /// The plan that the user is to be on, if it changes.
    pub plan: Option<String>,
    /// Limits of its own, instead of its plan's.
    pub network: Vec<String>,
    /// The user gets the limits of its plan again.
    pub inherit: bool,
    /// Also write it into the file that the policy came from.
    pub save: bool,
}

/// One limit of the running policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// The name of the limit.
    pub name: String,
    /// As it is typed.
    pub rate: String,
    /// The meter of the limit.
    pub meter: String,
    /// Units per period.
    pub amount: u64,
    /// The period of the limit.
    pub period: String,
    /// Units an idle source may send at once.
    pub burst: u64,
    /// The list that it comes from, if that is another one: a user has the limits of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// One user of the running policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// The name of the user.
    pub name: String,
    /// The plan that it is on.
    pub plan: Option<String>,
    /// Whether its limits are its own and not its plan's.
    pub own: bool,
    /// The prefixes of the user.
    pub sources: Vec<String>,
    /// What all its addresses may send together, as it is typed.
    pub network: Vec<String>,
    /// How much is left of that, if that was asked for.
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
    /// Units of these that this host was given for now, of a limit that holds on all hosts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
    /// The part of such a limit that was spent on this host lately, in percent; what each host always has is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u64>,
}
