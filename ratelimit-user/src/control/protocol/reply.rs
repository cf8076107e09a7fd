//! What the daemon answers.

use serde::{Deserialize, Serialize};

use super::{
    lists::{Block, FirstListed},
    requests::DecisionInfo,
    status::{ClusterStatus, Status},
    users::{LimitInfo, UserInfo},
};
use crate::{
    attacks::{AttackReport, AttackSummary},
    cluster::members::Member,
    drops::{Dropped, RefusedFrame},
    explain::Explanation,
    failure::Failure,
    policy::changes::PolicyChange,
    stats::{Snapshot, view::StatsView},
};

/// All counters, and what it takes to tell rates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// The counters at the time of the answer.
    pub snapshot: Snapshot,
    /// When `stats` was asked before, if this daemon was.
    #[serde(default)]
    pub before: Option<EarlierStats>,
    /// Users, with what is left of their limits.
    #[serde(default)]
    pub users: Vec<UserInfo>,
}

/// Counters as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierStats {
    /// How long ago.
    pub ms_ago: u64,
    /// The counters at that time.
    pub snapshot: Snapshot,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "kebab-case")]
pub enum Reply {
    /// The answer to `status`.
    Status(Box<Status>),
    /// The answer to `stats`.
    Stats(Box<StatsReply>),
    /// The answer to `top`.
    View(Box<StatsView>),
    /// The answer to `explain`.
    Explanation(Box<Explanation>),
    /// To `watch`: from now on.
    Watching,
    /// To `watch`: a packet was refused.
    Dropped(Dropped),
    /// To `watch` with frames: a packet was refused, and these are its first bytes.
    Frame(Box<RefusedFrame>),
    /// To `watch`: so many packets were not told of, because the caller did not read them in time.
    Lost(u64),
    /// To `watch`: why nothing may come for now.
    Notice(String),
    /// To a question for the first of both lists.
    Lists(Box<FirstListed>),
    /// To `block list`.
    Blocks(Vec<Block>),
    /// The answer to `test`.
    Decision(DecisionInfo),
    /// The answer to `cluster`.
    Cluster {
        /// This host's part.
        status: Box<ClusterStatus>,
        /// All hosts, as the store last told them.
        hosts: Vec<Member>,
    },
    /// To `allow list`.
    Allows(Vec<String>),
    /// To `limit list` and `limit get`.
    Limits(Vec<LimitInfo>),
    /// To `user list` and `user get`.
    Users(Vec<UserInfo>),
    /// The answer to `diff`.
    Changes {
        /// What would change.
        changes: Vec<PolicyChange>,
        /// Warnings about what is probably not meant.
        warnings: Vec<String>,
    },
    /// The answer to `apply`.
    Applied {
        /// A sentence about it.
        message: String,
        /// Entries of the lists that were written.
        list_entries_written: u64,
        /// How long the daemon took.
        microseconds: u64,
        /// Warnings about what is probably not meant.
        warnings: Vec<String>,
    },
    /// To `attacks list`: newest first.
    Attacks(Vec<AttackSummary>),
    /// To `attacks show`.
    Attack(Box<AttackReport>),
    /// An order was carried out; a sentence about it.
    Done(String),
    /// An order was not carried out, and why.
    Failed(Failure),
}
