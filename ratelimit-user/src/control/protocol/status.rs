//! The status of the daemon, of its interfaces, and of its part in the cluster.

use serde::{Deserialize, Serialize};

use crate::{
    attacks::{AttackKind, AttackNow, AttackTarget, Unusual, UsualMeasure},
    headroom::HeadroomReading,
    notify::NotifierStatus,
    policy::changes::PolicyChange,
    requests::status::RequestsStatus,
    stats::known_packets::KnownPackets,
};

/// The status of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Build of the daemon. Daemons named this field `version` before JSON answers had a version of their own.
    #[serde(alias = "version")]
    pub build: String,
    /// Version of the map layouts.
    pub abi: u32,
    /// Process id of the daemon.
    pub pid: u32,
    /// `enforce`, or `monitor` if nothing is dropped.
    #[serde(default)]
    pub mode: String,
    /// Services whose limits drop nothing, although limits of other services do.
    #[serde(default)]
    pub services_on_trial: Vec<String>,
    /// Whether there are guarded interfaces and our program runs on all of them. `mode` says whether the program drops packets there.
    #[serde(default)]
    pub protected: bool,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// The interfaces that are guarded.
    pub interfaces: Vec<InterfaceStatus>,
    /// The file that the policy in force came from.
    pub policy: String,
    /// How many policies have been in force since the maps were made.
    pub policy_generation: u64,
    /// Whether `limit set` or `user set` changed the policy since it was read from the file.
    pub policy_changed: bool,
    /// The policy that a restart of the daemon goes on with, as a sentence.
    pub policy_after_restart: String,
    /// The policy that `rollback` goes back to, if no apply waits for confirmation.
    pub policy_before: Option<String>,
    /// An apply that waits for confirmation.
    pub unconfirmed: Option<Unconfirmed>,
    /// Sources in the table.
    pub table_entries: u64,
    /// Sources the table has room for.
    pub table_capacity: u64,
    /// Prefilter cells that have a tracked source.
    #[serde(rename = "hot_cells")]
    pub tracked_cells: u64,
    /// Known clients: sources that were served while no total was spent, once for each service.
    #[serde(default)]
    pub known_clients: u64,
    /// What known clients are served on average, all together, in packets each second.
    #[serde(default)]
    pub known_packets_per_second: u64,
    /// Packets of known clients that came while a total was spent.
    #[serde(flatten)]
    pub known_packets: KnownPackets,
    /// What the total that leaves known clients least leaves them, as a sentence; `None` without such a total, or without known clients.
    #[serde(default)]
    pub known_tightest: Option<String>,
    /// Sources that were ever entered into the table.
    pub promotions: u64,
    /// Sources that were entered into the table in the last second.
    pub promotions_per_second: u64,
    /// Prefixes around sources that ever got a bucket of their own.
    #[serde(default)]
    pub prefix_promotions: u64,
    /// Drop events that were lost because there was no room for them.
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
    /// Attacks that were recognised, and the notifiers.
    #[serde(default)]
    pub attacks: AttacksStatus,
    /// Whether the host has headroom.
    #[serde(flatten)]
    pub headroom: HeadroomStatus,
    /// The express lane, which ends packets that are known to be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub express_lane: Option<LaneStatus>,
    /// Prefixes on the block list.
    pub blocked_prefixes: u64,
    /// Prefixes on the allow list.
    pub allowed_prefixes: u64,
    /// The file that both lists are kept in.
    #[serde(default)]
    pub lists_kept_in: String,
    /// The decision service for requests.
    #[serde(default)]
    pub requests: RequestsStatus,
    /// This host's part in its cluster, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// The directory in which links and maps are pinned.
    pub pin: String,
    /// Warnings about what does not work as the policy wants it, as sentences.
    pub warnings: Vec<String>,
    /// All warnings, those of the cluster and of each interface included, each with a kind that scripts can look for.
    #[serde(default)]
    pub warning_details: Vec<StatusWarning>,
}

/// A warning in the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusWarning {
    /// One of [`Self::KINDS`].
    pub kind: String,
    /// What is wrong, and what to do about it.
    pub sentence: String,
}

impl StatusWarning {
    /// The kinds of warnings.
    pub const KINDS: [&str; 15] = [
        "not_protected",
        "generic_mode",
        "monitor",
        "service_on_trial",
        "policy_not_read",
        "host_settings",
        "nobody_answered",
        "listeners",
        "lists_not_on_disk",
        "known_clients",
        "pins_gone",
        "attack_reports_not_on_disk",
        "notify",
        "sampling",
        "store",
    ];

    /// Makes warnings of one kind from sentences.
    pub fn of(kind: &'static str, sentences: impl IntoIterator<Item = String>) -> Vec<Self> {
        debug_assert!(Self::KINDS.contains(&kind), "{kind} is in no list");
        sentences.into_iter().map(|sentence| Self { kind: kind.to_owned(), sentence }).collect()
    }
}

impl Status {
    /// Returns this status with the numbers of the table of sources from an earlier one, because counting its entries takes a while.
    #[must_use]
    pub fn with_table_of(self, earlier: &Self) -> Self {
        Self {
            table_entries: earlier.table_entries,
            table_capacity: earlier.table_capacity,
            tracked_cells: earlier.tracked_cells,
            known_clients: earlier.known_clients,
            known_packets_per_second: earlier.known_packets_per_second,
            known_packets: earlier.known_packets,
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
    /// Whether the lane is open to IPv4.
    pub ipv4: LaneState,
    /// Whether the lane is open to IPv6.
    pub ipv6: LaneState,
    /// Why the lane is not open to both families, as a sentence.
    pub why: Option<String>,
}

/// Whether the express lane is open to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// The lane is open.
    Open,
    /// The lane opens within a second.
    OpensSoon,
    /// The lane stays closed for as long as policy and lists are what they are.
    Closed,
}

impl LaneState {
    /// The state in words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::OpensSoon => "opens in a moment",
            Self::Closed => "closed",
        }
    }
}

/// Attacks that were recognised, and the notifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttacksStatus {
    /// Attacks that go on.
    pub active: Vec<ActiveAttack>,
    /// Attacks that began since the daemon started.
    pub begun: u64,
    /// Number of the last attack, across restarts; 0 before the first.
    pub last_number: u64,
    /// Attacks that `attacks list` shows.
    pub kept: u64,
    /// The state of each notifier.
    pub notifiers: Vec<NotifierStatus>,
}

/// An attack that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveAttack {
    /// Number of the attack.
    pub number: u64,
    /// The target of the attack.
    #[serde(flatten)]
    pub target: AttackTarget,
    /// The kind of the attack.
    pub kind: AttackKind,
    /// Packets, or requests of an API, refused so far.
    pub refused_packets: u64,
    /// The last second of the attack.
    #[serde(flatten)]
    pub now: AttackNow,
    /// How the attack differs from what usually passes, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusual: Option<Unusual>,
}

impl ActiveAttack {
    /// Returns one sentence about the attack: `attack 7: one_source on service dns, is contained: ...`.
    pub fn words(&self) -> String {
        let unusual = match &self.unusual {
            // What passes is in the words about the last second.
            Some(unusual) if unusual.measure == UsualMeasure::Packets => format!(", {}", unusual.usually()),
            Some(unusual) => format!(", {}", unusual.words()),
            None => String::new(),
        };
        let (kind, now) = (self.kind.name(), self.now.words(self.target.unit()));
        format!("attack {}: {kind} on {}, {now}{unusual}", self.number, self.target)
    }
}

/// One host's part in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The address of the store, without a password.
    pub store: String,
    /// Whether the store answered when it was last asked.
    pub store_up: bool,
    /// Why the store did not answer.
    pub problem: Option<String>,
    /// Seconds for which the store has not answered.
    pub failing_seconds: Option<u64>,
    /// The name of this start of this host in the store.
    pub host: String,
    /// Limits that hold on all hosts together.
    pub limits: u64,
    /// Limits of which this host holds a lease.
    pub leases: u64,
    /// Units that this host holds of all leases together.
    pub lease_units: u64,
    /// Lease batches that the store answered.
    pub exchanges: u64,
    /// Limits that were in the lease batches that the store answered.
    pub lines: u64,
    /// Lease batches without a good answer.
    pub failures: u64,
    /// How often this host gave up on the store.
    pub given_up: u64,
    /// Round trip of the last lease batch in microseconds.
    pub round_trip_us: u64,
    /// Hosts that the store has heard lately.
    #[serde(default)]
    pub hosts_seen: u64,
    /// Changes of blocks for all hosts that the store has not confirmed yet.
    #[serde(default)]
    pub changes_waiting: u64,
    /// The most that all hosts together can admit, as a sentence.
    pub bound: String,
    /// The most that all hosts together can admit, as a multiple of a limit.
    pub bound_times_limit: u32,
    /// Limits of which another host has another rate or burst in its policy.
    #[serde(default)]
    pub limits_disputed: u64,
    /// Whether the store accepts this host's edits of blocks; it does not if another host has the same name.
    #[serde(default)]
    pub is_heard: bool,
    /// How often the store's clock was set back.
    #[serde(default)]
    pub clock_steps: u64,
    /// Warnings about the store and the cluster, as sentences.
    pub warnings: Vec<String>,
}

/// Whether the host has headroom, and the readings that say so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadroomStatus {
    /// [`Self::YES`] or [`Self::NO`].
    pub headroom: String,
    /// Seconds since headroom was lost or came back, or since the daemon started.
    pub headroom_seconds: u64,
    /// Why there is no headroom.
    pub headroom_reason: Option<String>,
    /// How often headroom was lost or came back.
    pub headroom_changes: u64,
    /// The last reading of the host's load.
    pub headroom_readings: HeadroomReading,
    /// Sentences about the values that are not measured, and why.
    pub headroom_notes: Vec<String>,
}

impl HeadroomStatus {
    /// There is headroom.
    pub const YES: &str = "yes";
    /// There is no headroom.
    pub const NO: &str = "no";
}

/// An apply that waits for confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// Seconds until the apply is rolled back.
    pub seconds_left: u64,
    /// The policy that is in force after the rollback.
    pub back_to: String,
    /// The changes that the apply made.
    pub changes: Vec<PolicyChange>,
}

/// One guarded interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Name of the interface.
    pub name: String,
    /// `native` or `generic`; `detached` if our program is gone, `foreign` if another program has its place.
    pub mode: String,
    /// How frames of the interface are read: `ethernet`, or `ip` on tunnels and other links without a header of their own.
    #[serde(default)]
    pub link: String,
    /// Why the mode is not `native`, if it is not.
    pub note: Option<String>,
}

impl InterfaceStatus {
    /// Whether our program runs on the interface.
    pub fn is_protected(&self) -> bool {
        ["native", "generic"].contains(&self.mode.as_str())
    }
}

/// Whether there are interfaces and our program runs on all of them.
pub fn all_protected(interfaces: &[InterfaceStatus]) -> bool {
    !interfaces.is_empty() && interfaces.iter().all(InterfaceStatus::is_protected)
}
