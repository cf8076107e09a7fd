//! How the daemon is, its interfaces, and its part in the cluster.

use serde::{Deserialize, Serialize};

use crate::{
    attacks::{AttackKind, AttackTarget},
    headroom::HeadroomReading,
    notify::NotifierStatus,
    policy::changes::PolicyChange,
    requests::status::RequestsStatus,
};

/// How the daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Build of the daemon. `version` is what daemons called it before JSON answers had a version of their own.
    #[serde(alias = "version")]
    pub build: String,
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
    /// Attacks that were recognised, and who is told of them.
    #[serde(default)]
    pub attacks: AttacksStatus,
    /// Whether the host could take more.
    #[serde(flatten)]
    pub headroom: HeadroomStatus,
    /// Where what is known to be refused ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub express_lane: Option<LaneStatus>,
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
    /// The warnings, those of the cluster and of each interface, with words that scripts can look for.
    #[serde(default)]
    pub warning_details: Vec<StatusWarning>,
}

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusWarning {
    /// One of [`Self::KINDS`].
    pub kind: String,
    /// What is so, and what to do.
    pub sentence: String,
}

impl StatusWarning {
    /// Everything that there are warnings of.
    pub const KINDS: [&str; 14] = [
        "not_protected",
        "generic_mode",
        "monitor",
        "service_on_trial",
        "policy_not_read",
        "host_settings",
        "nobody_answered",
        "listeners",
        "lists_not_on_disk",
        "pins_gone",
        "attack_reports_not_on_disk",
        "notify",
        "sampling",
        "store",
    ];

    /// Sentences about one kind of thing.
    pub fn of(kind: &'static str, sentences: impl IntoIterator<Item = String>) -> Vec<Self> {
        debug_assert!(Self::KINDS.contains(&kind), "{kind} is in no list");
        sentences.into_iter().map(|sentence| Self { kind: kind.to_owned(), sentence }).collect()
    }
}

impl Status {
    /// This status with the table of an earlier one: to count the entries of the table takes a while.
    #[must_use]
    pub fn with_table_of(self, earlier: &Self) -> Self {
        Self {
            table_entries: earlier.table_entries,
            table_capacity: earlier.table_capacity,
            hot_cells: earlier.hot_cells,
            promotions: earlier.promotions,
            prefix_promotions: earlier.prefix_promotions,
            drop_reports_lost: earlier.drop_reports_lost,
            evictions: earlier.evictions,
            ..self
        }
    }
}

/// The express lane, by family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// For IPv4.
    pub ipv4: LaneState,
    /// For IPv6.
    pub ipv6: LaneState,
    /// Why it is not open to both, as a sentence.
    pub why: Option<String>,
}

/// Whether the express lane is open to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It is.
    Open,
    /// Within a second.
    OpensSoon,
    /// As long as policy and lists are what they are.
    Closed,
}

impl LaneState {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::OpensSoon => "opens in a moment",
            Self::Closed => "closed",
        }
    }
}

/// Attacks that were recognised, and who is told of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttacksStatus {
    /// Those that go on.
    pub active: Vec<ActiveAttack>,
    /// Attacks that began since the daemon started.
    pub begun: u64,
    /// Number of the last one, across restarts; 0 before the first.
    pub last_number: u64,
    /// Attacks that `attacks list` shows.
    pub kept: u64,
    /// Who is told of attacks.
    pub notifiers: Vec<NotifierStatus>,
}

/// An attack that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveAttack {
    /// Its number.
    pub number: u64,
    /// What is attacked.
    #[serde(flatten)]
    pub target: AttackTarget,
    /// What it is made of.
    pub kind: AttackKind,
    /// Packets, or requests of an API, refused so far.
    pub refused_packets: u64,
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
    /// Lease batches that the store answered.
    pub exchanges: u64,
    /// Limits that were in them.
    pub lines: u64,
    /// Lease batches without a good answer.
    pub failures: u64,
    /// How often the store was given up.
    pub given_up: u64,
    /// How long the last lease batch took.
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
    pub headroom_readings: HeadroomReading,
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
    pub changes: Vec<PolicyChange>,
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
