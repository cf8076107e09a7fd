//! What is said over the control socket: one JSON request per line, one JSON reply per line; to `watch` many. The text of a policy may
//! follow its request as it is.

mod requests;

pub use self::requests::{DecisionInfo, TestQuestion};

use std::{net::IpAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    cluster::members::Member, drops::Dropped, explain::Explanation, failure::Failure, headroom::Reading,
    policy::changes::Change, requests::status::RequestsStatus, stats::Snapshot,
};

/// Who gives an order that can cut somebody off, and how much they mean it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operator {
    /// Where they sit, if they came over SSH and the shell knows it.
    pub origin: Option<IpAddr>,
    /// Do it also if somebody is cut off.
    pub force: bool,
}

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// Is it working?
    Status,
    /// What was counted?
    Stats,
    /// Why is this address treated as it is?
    Explain {
        /// The address.
        address: IpAddr,
        /// Only this service; all that have limits when absent.
        #[serde(default)]
        service: Option<String>,
    },
    /// Which packets are refused, from now on until the caller hangs up?
    Watch {
        /// CIDR; only sources that have addresses in it.
        #[serde(default)]
        source: Option<String>,
        /// Only this reason.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Put a prefix on the block list, or change its lifetime and reason.
    BlockAdd {
        /// CIDR.
        prefix: String,
        /// Lifetime; for good when absent.
        for_ns: Option<u64>,
        /// Why.
        reason: Option<String>,
        /// On all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Take a prefix off the block list.
    BlockDel {
        /// CIDR.
        prefix: String,
        /// On all hosts of the cluster.
        #[serde(default)]
        cluster: bool,
    },
    /// May this user call this API now?
    Test(TestQuestion),
    /// Which hosts are in the cluster?
    Cluster,
    /// Show the block list.
    BlockList,
    /// Put a prefix on the allow list.
    AllowAdd {
        /// CIDR.
        prefix: String,
    },
    /// Take a prefix off the allow list.
    AllowDel {
        /// CIDR.
        prefix: String,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Show the allow list.
    AllowList,
    /// Show all limits.
    LimitList,
    /// Show one limit.
    LimitGet {
        /// Its name.
        name: String,
    },
    /// Change one limit of the running policy, or all of a list.
    LimitSet {
        /// Its name.
        name: String,
        /// The new rate, as in the policy file; those of a list with commas between them.
        rate: String,
        /// Also write it into the file that the policy came from.
        #[serde(default)]
        save: bool,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Show all users.
    UserList,
    /// Show one user, and how much is left of its limits.
    UserGet {
        /// Its name.
        name: String,
    },
    /// Change one user of the running policy.
    UserSet {
        /// Who, and what.
        #[serde(flatten)]
        user: UserOrder,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Give a user its whole burst again.
    UserReset {
        /// Its name.
        name: String,
    },
    /// What would this policy change?
    Diff {
        /// Where the text was read, for messages.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line instead.
        #[serde(default)]
        text_follows: Option<u64>,
    },
    /// Put this policy in force.
    Apply {
        /// Where the text was read.
        file: PathBuf,
        /// The text of the policy.
        #[serde(default)]
        text: String,
        /// How many bytes of text follow the line instead.
        #[serde(default)]
        text_follows: Option<u64>,
        /// Roll back unless confirmed within this time.
        confirm_ns: Option<u64>,
        /// Who says so.
        #[serde(default)]
        operator: Operator,
    },
    /// Keep what was applied.
    Confirm,
    /// Back to the policy before the last change.
    Rollback,
    /// Take the program off an interface, or off all.
    Detach {
        /// One interface; all when absent.
        interface: Option<String>,
    },
}

impl Request {
    /// The line to send and the text to send behind it: a policy is long, and quoting it in JSON costs more than the change it makes.
    pub fn into_message(mut self) -> serde_json::Result<Vec<u8>> {
        let mut behind = String::new();
        if let Some((text, follows)) = self.text() {
            behind = std::mem::take(text);
            *follows = Some(behind.len() as u64);
        }
        let mut message = serde_json::to_vec(&self)?;
        message.push(b'\n');
        message.extend_from_slice(behind.as_bytes());
        Ok(message)
    }

    /// The text in it, and how much of it follows, if it is a request with a text.
    pub(super) fn text(&mut self) -> Option<(&mut String, &mut Option<u64>)> {
        match self {
            Self::Diff { text, text_follows, .. } | Self::Apply { text, text_follows, .. } => {
                Some((text, text_follows))
            }
            _ => None,
        }
    }
}

/// What is to become of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserOrder {
    /// Its name.
    pub name: String,
    /// Another plan.
    pub plan: Option<String>,
    /// Limits of its own, instead of its plan's.
    pub network: Vec<String>,
    /// Its plan's limits again.
    pub inherit: bool,
    /// Also write it into the file that the policy came from.
    pub save: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "kebab-case")]
pub enum Reply {
    /// To `status`.
    Status(Box<Status>),
    /// To `stats`.
    Stats(Snapshot),
    /// To `explain`.
    Explanation(Box<Explanation>),
    /// To `watch`: from now on.
    Watching,
    /// To `watch`: a packet was refused.
    Dropped(Dropped),
    /// To `watch`: so many packets were not told of, because the caller did not read them in time.
    Lost(u64),
    /// To `block list`.
    Blocks(Vec<Block>),
    /// To `test`.
    Decision(DecisionInfo),
    /// To `cluster`.
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
    /// To `diff`.
    Changes {
        /// What would change.
        changes: Vec<Change>,
        /// What is probably not meant.
        warnings: Vec<String>,
    },
    /// To `apply`.
    Applied {
        /// A sentence about it.
        message: String,
        /// Entries of the lists that were written.
        list_entries_written: u64,
        /// How long the daemon took.
        microseconds: u64,
        /// What is probably not meant.
        warnings: Vec<String>,
    },
    /// An order was carried out; a sentence about it.
    Done(String),
    /// It was not.
    Failed(Failure),
}

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// Version of the map layouts.
    pub abi: u32,
    /// Process id of the daemon.
    pub pid: u32,
    /// `enforce`, or `monitor`: nothing is dropped.
    #[serde(default)]
    pub mode: String,
    /// Services whose limits drop nothing, although others' do.
    #[serde(default)]
    pub services_on_trial: Vec<String>,
    /// Whether there are guarded interfaces and our program runs on all of them. What it does there is the mode's.
    #[serde(default)]
    pub protected: bool,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Kernel release.
    pub kernel: String,
    /// Guarded interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// The file that the policy in force came from.
    pub policy: String,
    /// Counts policies since the maps were made.
    pub policy_generation: u64,
    /// Whether `limit set` or `user set` changed the policy since it was read from the file.
    pub policy_changed: bool,
    /// What a restart does, as a sentence.
    pub policy_after_restart: String,
    /// What `rollback` goes back to, when nothing waits for confirmation.
    pub policy_before: Option<String>,
    /// An apply that waits for confirmation.
    pub unconfirmed: Option<Unconfirmed>,
    /// Sources in the table.
    pub table_entries: u64,
    /// Sources the table has room for.
    pub table_capacity: u64,
    /// Prefilter cells that have a tracked source.
    pub hot_cells: u64,
    /// Sources that were ever entered into the table.
    pub promotions: u64,
    /// Sources that were entered into the table in the last second.
    pub promotions_per_second: u64,
    /// Prefixes around sources that ever got a bucket of their own.
    #[serde(default)]
    pub prefix_promotions: u64,
    /// Drop events that found no room.
    #[serde(default)]
    pub drop_reports_lost: u64,
    /// Sources that the table had to forget. Each may come back with a fresh burst.
    pub evictions: u64,
    /// Attack state: `normal`, `elevated` or `flood`.
    #[serde(rename = "posture")]
    pub attack_state: String,
    /// How often the attack state changed.
    #[serde(rename = "posture_changes")]
    pub attack_state_changes: u64,
    /// Whether the host could take more.
    #[serde(flatten)]
    pub headroom: HeadroomStatus,
    /// Prefixes on the block list.
    pub blocked_prefixes: u64,
    /// Prefixes on the allow list.
    pub allowed_prefixes: u64,
    /// The file that both lists are kept in.
    #[serde(default)]
    pub lists_kept_in: String,
    /// Requests.
    #[serde(default)]
    pub requests: RequestsStatus,
    /// This host's part in its cluster, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// Where links and maps are pinned.
    pub pin: String,
    /// What does not work as the policy wants it, as sentences.
    pub warnings: Vec<String>,
}

/// One host's part in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Where the store is, without a password.
    pub store: String,
    /// Whether it answered when last asked.
    pub store_up: bool,
    /// Why not.
    pub problem: Option<String>,
    /// For how long nothing has worked.
    pub failing_seconds: Option<u64>,
    /// What this start of this host is called in the store.
    pub host: String,
    /// Limits that hold on all hosts together.
    pub limits: u64,
    /// Of these, how many this host holds something of.
    pub leases: u64,
    /// Units that it holds.
    pub lease_units: u64,
    /// Letters that the store answered.
    pub exchanges: u64,
    /// Limits that were in them.
    pub lines: u64,
    /// Letters without a good answer.
    pub failures: u64,
    /// How often the store was given up.
    pub given_up: u64,
    /// How long the last letter took.
    pub round_trip_us: u64,
    /// Hosts that the store has heard of lately.
    #[serde(default)]
    pub hosts_seen: u64,
    /// Changes of blocks for all hosts that the store has not heard of yet.
    #[serde(default)]
    pub changes_waiting: u64,
    /// What all hosts together can admit at most, as a sentence.
    pub bound: String,
    /// How many times the limit that is.
    pub bound_times_limit: u32,
    /// Limits of which another host has another rate or burst in its policy.
    #[serde(default)]
    pub limits_disputed: u64,
    /// Whether the store hears what this host says about blocks: not if another one has its name.
    #[serde(default)]
    pub is_heard: bool,
    /// How often the store's clock was set back.
    #[serde(default)]
    pub clock_steps: u64,
    /// What is wrong with the store or the cluster, as sentences.
    pub warnings: Vec<String>,
}

/// Whether the host could take more, and how that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadroomStatus {
    /// [`Self::YES`] or [`Self::NO`].
    pub headroom: String,
    /// Since it changed, or since the daemon started.
    pub headroom_seconds: u64,
    /// Why there is none.
    pub headroom_reason: Option<String>,
    /// How often it was lost or came back.
    pub headroom_changes: u64,
    /// What was measured last.
    pub headroom_readings: Reading,
    /// What is not measured and why, as sentences.
    pub headroom_notes: Vec<String>,
}

impl HeadroomStatus {
    /// There is some.
    pub const YES: &str = "yes";
    /// There is none.
    pub const NO: &str = "no";
}

/// An apply that waits for confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// Until it is rolled back.
    pub seconds_left: u64,
    /// To which policy.
    pub back_to: String,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// One guarded interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `native` or `generic`; `detached` if our program is gone, `foreign` if another one has its place.
    pub mode: String,
    /// What its frames are read as: `ethernet`, or `ip` on tunnels and other links without a header of their own.
    #[serde(default)]
    pub link: String,
    /// Why not native, if it is not.
    pub note: Option<String>,
}

impl InterfaceStatus {
    /// Whether our program runs on it.
    pub fn is_protected(&self) -> bool {
        ["native", "generic"].contains(&self.mode.as_str())
    }
}

/// Whether there are interfaces and our program runs on all of them.
pub fn all_protected(interfaces: &[InterfaceStatus]) -> bool {
    !interfaces.is_empty() && interfaces.iter().all(InterfaceStatus::is_protected)
}

/// One blocked prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// CIDR.
    pub prefix: String,
    /// Seconds left; for good when absent.
    pub seconds_left: Option<u64>,
    /// Why.
    pub reason: Option<String>,
    /// The host that blocked it on all of them; absent for a block of this host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Why it does not hold here, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One limit of the running policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Its name.
    pub name: String,
    /// As it is typed.
    pub rate: String,
    /// What it counts.
    pub meter: String,
    /// Units per period.
    pub amount: u64,
    /// The period.
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
    /// Its name.
    pub name: String,
    /// The plan that it is on.
    pub plan: Option<String>,
    /// Whether its limits are its own and not its plan's.
    pub own: bool,
    /// Its prefixes.
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
}
