//! The answer. Scripts read it as JSON: fields are added, never renamed. Times are in milliseconds, rounded up.

use serde::{Deserialize, Serialize};

use crate::drops::Dropped;

/// Everything about one address at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The address, in its shortest form.
    pub address: String,
    /// When this was so: UTC, RFC 3339.
    pub at: String,
    /// What the policy takes for one source: the address, cut to its prefix length.
    pub source: String,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// What becomes of its next packet, of the smallest size and for no service: `pass`, `drop`, or `would_drop` on trial.
    pub verdict: String,
    /// Why, by the names that `stats` counts under.
    pub reason: String,
    /// Everything that refuses some of its packets now, in the order in which it is asked.
    pub refusals: Vec<ExplainedRefusal>,
    /// Entries of the allow list around it, longest first.
    pub allowed_by: Vec<String>,
    /// Blocks around it that hold, longest prefix first.
    pub blocked_by: Vec<BlockMatch>,
    /// Whose address it is.
    pub user: Option<UserState>,
    /// The limits of every source.
    pub own: SourceState,
    /// The prefixes around it, narrowest first.
    pub prefixes: Vec<PrefixState>,
    /// What everybody together has left of the total of the host, as far as this source may take it.
    #[serde(default)]
    pub host: Vec<LimitState>,
    /// Services that have limits.
    pub services: Vec<ServiceState>,
    /// Packets of the source that were refused lately, newest first: some of them, and none from before the daemon started.
    #[serde(default)]
    pub last_drops: Vec<LastDrop>,
}

/// A packet that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDrop {
    /// How long ago.
    pub ms_ago: u64,
    /// Everything else.
    #[serde(flatten)]
    pub packet: Dropped,
}

/// Something that refuses packets now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRefusal {
    /// By the names that `stats` counts under.
    pub reason: String,
    /// `packets`: all of them; `syns`: those that open a connection; `fragments`: pieces of larger packets.
    pub applies_to: String,
    /// Of `packets`, those that pass all the same: `syns`, `fragments`. A source that has limits for these alone has state with them, and without state with others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
    /// Only packets that come in on some CPUs, which have nothing left of what they took from a total.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub some_cpus: bool,
    /// Only packets for this service.
    pub service: Option<String>,
    /// Until the first may pass, if no other one does before; for good when absent.
    pub for_ms: Option<u64>,
    /// Whether they pass anyway, because the policy or the service is on trial.
    pub waived: bool,
}

/// A block that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockMatch {
    /// CIDR.
    pub prefix: String,
    /// When it ends: UTC, RFC 3339; for good when absent.
    pub until: Option<String>,
    /// Seconds left; for good when absent.
    pub seconds_left: Option<u64>,
    /// What the operator said.
    pub reason: Option<String>,
}

/// A user, and what all its addresses together have left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserState {
    /// Its name.
    pub name: String,
    /// The plan it is on.
    pub plan: Option<String>,
    /// The prefix that makes the address its own.
    pub prefix: Option<String>,
    /// Its limits.
    pub limits: Vec<LimitState>,
}

/// One source under one set of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Who answers for it: `entry`, its own; `cell`, one that it shares with others, because it has no entry; `none`,
    /// because its first packet makes an entry.
    pub state: String,
    /// Its cell, if there is a prefilter.
    pub cell: Option<CellState>,
    /// That it was over a limit and is refused without a look at its buckets.
    pub denied: Option<NegativeEntry>,
    /// Until it may get the entry that its next packet needs; absent if it needs none, or may get it now.
    #[serde(default)]
    pub no_room_for_ms: Option<u64>,
    /// For how long it still counts as real, because it showed a connection: what others forge around it does not concern it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_for_ms: Option<u64>,
    /// Its limits. Without an entry: what it would find.
    pub limits: Vec<LimitState>,
}

/// A cell of the prefilter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellState {
    /// Whether some source of this cell has an entry that may still owe something.
    pub hot: bool,
    /// For how long, if no source of the cell sends more.
    pub hot_for_ms: u64,
    /// Packets of the smallest size that it still vouches for.
    pub left: u64,
    /// Packets of the smallest size that the cell vouches for when nobody has sent for long.
    pub capacity: u64,
}

/// A source that is refused without a look at its buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegativeEntry {
    /// By the names that `stats` counts under.
    pub reason: String,
    /// For how long.
    pub for_ms: u64,
}

/// One limit and its bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitState {
    /// As it is typed.
    pub rate: String,
    /// What it counts.
    pub meter: String,
    /// Units it may have at once, as typed.
    pub burst: u64,
    /// The same less what is kept back for the lag of the clock and for CPUs that charge at once.
    pub capacity: u64,
    /// Units that would be admitted now.
    pub left: u64,
    /// Until the bucket is full again; 0 if it is.
    pub full_in_ms: u64,
    /// Until the next unit is admitted, if nothing is left; absent if something is.
    pub refused_for_ms: Option<u64>,
    /// Units of these that this host was given for now, of a limit that holds on all hosts together; the rest it has without that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
}

/// A prefix around the source, and what all its addresses together have left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixState {
    /// CIDR.
    pub prefix: String,
    /// How many sources' worth it may have.
    pub multiple: u64,
    /// `entry` or `cell`, as for a source.
    pub state: String,
    /// Packets of the smallest size that it may have at once.
    pub capacity: u64,
    /// Those that would be admitted now.
    pub left: u64,
    /// Until the bucket is full again; 0 if it is.
    pub full_in_ms: u64,
    /// Until the next one is admitted; absent if it is now.
    pub refused_for_ms: Option<u64>,
    /// The part of its own limits that each source of it may have, in percent, because together they want too much; absent if it is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u64>,
}

/// What holds for one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    /// Its name.
    pub service: String,
    /// `drop` or `monitor`.
    pub on_limit: String,
    /// What the source may have of it.
    pub per_source: Option<SourceState>,
    /// What everybody together has left, as far as this source may take it.
    pub totals: Vec<LimitState>,
    /// How its SYNs are answered.
    pub syn_cookies: Option<SynCookies>,
}

/// SYNs of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynCookies {
    /// Above this rate they are answered with cookies.
    pub threshold: String,
    /// For how long they still are; absent if they are not now.
    pub active_for_ms: Option<u64>,
}
