//! Replies of the daemon.

use serde::{Deserialize, Serialize};

use super::{
    known::{KnownClient, KnownPage, KnownSummary},
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
    stats::{Snapshot, history::SecondOfTraffic, view::StatsView},
};

/// All counters, and the earlier counters from which rates are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// The counters at the time of the answer.
    pub snapshot: Snapshot,
    /// The counters of the previous `stats`, if this daemon has answered one.
    #[serde(default)]
    pub before: Option<EarlierStats>,
    /// The users, and how much is left of their limits.
    #[serde(default)]
    pub users: Vec<UserInfo>,
}

/// The counters at an earlier time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierStats {
    /// Milliseconds since that time.
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
    /// The first answer to `watch`: refused packets follow.
    Watching,
    /// A line for `watch`: a packet was refused.
    Dropped(Dropped),
    /// A line for `watch` with frames: a packet was refused, with its first bytes.
    Frame(Box<RefusedFrame>),
    /// A line for `watch`: the number of refused packets left out, because the caller did not read in time.
    Lost(u64),
    /// A line for `watch`: why no packets may come for now.
    Notice(String),
    /// The answer to [`super::Order::Lists`].
    Lists(Box<FirstListed>),
    /// The answer to [`super::Order::History`], oldest second first.
    History(Vec<SecondOfTraffic>),
    /// The answer to `block list`.
    Blocks(Vec<Block>),
    /// The answer to `test`.
    Decision(DecisionInfo),
    /// The answer to `cluster`.
    Cluster {
        /// This host's part.
        status: Box<ClusterStatus>,
        /// All hosts, as the store last listed them.
        hosts: Vec<Member>,
    },
    /// The answer to `allow list`.
    Allows(Vec<String>),
    /// The answer to `limit list` and `limit get`.
    Limits(Vec<LimitInfo>),
    /// The answer to `user list` and `user get`.
    Users(Vec<UserInfo>),
    /// The answer to `diff`.
    Changes {
        /// The changes that the policy would make.
        changes: Vec<PolicyChange>,
        /// Warnings about what is probably not meant.
        warnings: Vec<String>,
    },
    /// The answer to `apply`.
    Applied {
        /// A sentence about the change.
        message: String,
        /// Entries of the lists that were written.
        list_entries_written: u64,
        /// Microseconds that the daemon took.
        microseconds: u64,
        /// Warnings about what is probably not meant.
        warnings: Vec<String>,
    },
    /// The answer to `attacks list`, newest attack first.
    Attacks(Vec<AttackSummary>),
    /// The answer to `attacks show`.
    Attack(Box<AttackReport>),
    /// The answer to `known show` with an address.
    KnownClient(KnownClient),
    /// The answer to `known show` without an address.
    KnownSummary(KnownSummary),
    /// The answer to `known export`.
    KnownPage(KnownPage),
    /// An order was carried out; a sentence about it.
    Done(String),
    /// An order was not carried out, and why.
    Failed(Failure),
}
