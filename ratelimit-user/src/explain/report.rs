//! The answer of `explain`. Scripts read it as JSON: fields are added, never renamed. Times are in milliseconds, rounded up.

use serde::{Deserialize, Serialize};

use crate::drops::Dropped;

/// Everything about one address at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The address, in its shortest form.
    pub address: String,
    /// The moment that the answer is about: UTC, RFC 3339.
    pub at: String,
    /// The source that the address belongs to: the address, cut to the prefix length of a source.
    pub source: String,
    /// `enforce` or `monitor`.
    pub mode: String,
    /// The verdict on the next packet of the address, of the smallest size and for no service: `pass`, `drop`, or `would_drop` on trial.
    pub verdict: String,
    /// The reason of the verdict, by its name in `stats`.
    pub reason: String,
    /// Everything that refuses some packets of the address now, in the order in which the packet path checks it.
    pub refusals: Vec<ExplainedRefusal>,
    /// Entries of the allow list around the address, longest prefix first.
    pub allowed_by: Vec<String>,
    /// Blocks around the address that hold, longest prefix first.
    pub blocked_by: Vec<BlockMatch>,
    /// The user whose address this is.
    pub user: Option<UserState>,
    /// The source under the limits that every source has.
    pub own: SourceState,
    /// The prefixes around the address, narrowest first.
    pub prefixes: Vec<PrefixState>,
    /// What is left of the totals of the host, as far as this source may use it.
    #[serde(default)]
    pub host: Vec<LimitState>,
    /// Services that have limits.
    pub services: Vec<ServiceState>,
    /// What the source may have while a total is spent, at each service that has a total and remembers clients.
    #[serde(default)]
    pub known: Vec<ClientPrecedence>,
    /// Packets of the source that were refused lately, newest first: some of them, and none from before the daemon started.
    #[serde(default)]
    pub last_drops: Vec<LastDrop>,
}

/// What a source may have of a spent total.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientPrecedence {
    /// The name of the service; `None` for packets of no service.
    pub service: Option<String>,
    /// The part of the total that sources which are not known share: `1/8`.
    pub newcomers: String,
    /// What is remembered of the source; `None` if nothing.
    pub client: Option<RememberedClient>,
}

/// What is remembered of a client at one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RememberedClient {
    /// [`Self::KNOWN`] or [`Self::CANDIDATE`].
    pub state: String,
    /// Seconds since the client was last served, exact to 69 s.
    pub seconds_since_served: u64,
    /// What the client was served on average, in packets each second.
    pub packets_per_second: f64,
    /// What the client may have of a spent total before others, in packets each second; 0 for a candidate.
    pub claim_packets_per_second: f64,
    /// The part of its claim that the client uses, in percent.
    pub claim_used_percent: u64,
}

impl RememberedClient {
    /// The client is known.
    pub const KNOWN: &str = "known";
    /// The client was not served often enough to be known.
    pub const CANDIDATE: &str = "candidate";
}

/// A packet that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDrop {
    /// How long ago the packet was refused.
    pub ms_ago: u64,
    /// Everything else that is known about the packet.
    #[serde(flatten)]
    pub packet: Dropped,
}

/// A refusal of packets that holds now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRefusal {
    /// The reason, by its name in `stats`.
    pub reason: String,
    /// The packets that are refused: `packets`, all of them; `syns`, packets that open a connection; `fragments`, pieces of larger packets.
    pub applies_to: String,
    /// Kinds of `packets` that pass all the same: `syns`, `fragments`. A source that has limits for these alone has state with them, and without state with others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
    /// Whether only packets that arrive on some CPUs are refused: CPUs that hold nothing of a total.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub some_cpus: bool,
    /// The service, if only packets for one service are refused.
    pub service: Option<String>,
    /// Milliseconds until the first packet may pass, if no other packet does before; absent if the refusal has no end.
    pub for_ms: Option<u64>,
    /// Whether refused packets pass anyway, because the policy or the service is on trial.
    pub waived: bool,
}

/// A block that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockMatch {
    /// The prefix, as CIDR.
    pub prefix: String,
    /// When the block ends: UTC, RFC 3339; absent if it has no end.
    pub until: Option<String>,
    /// Seconds until the block ends; absent if it has no end.
    pub seconds_left: Option<u64>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
}

/// A user, and what is left for all its addresses together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserState {
    /// Name of the user.
    pub name: String,
    /// The plan that the user is on.
    pub plan: Option<String>,
    /// The prefix that makes the address one of the user.
    pub prefix: Option<String>,
    /// Limits of the user.
    pub limits: Vec<LimitState>,
}

/// One source under one set of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// What holds the state of the source: `entry`, its own; `cell`, one that it shares with others, because it has no entry; `none`,
    /// because its first packet makes an entry.
    pub state: String,
    /// The cell of the source, if there is a prefilter.
    pub cell: Option<CellState>,
    /// The negative entry of the source, if it was over a limit and is refused without a look at its buckets.
    pub denied: Option<NegativeEntry>,
    /// Milliseconds until the source may get the entry that its next packet needs; absent if it needs none, or may get one now.
    #[serde(default)]
    pub no_room_for_ms: Option<u64>,
    /// Milliseconds for which the source still counts as proven: forged packets around it do not concern it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_for_ms: Option<u64>,
    /// Limits of the source. Without an entry, these are the limits as the source would find them.
    pub limits: Vec<LimitState>,
}

/// A cell of the prefilter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellState {
    /// Whether some source of this cell has an entry that may still owe something.
    #[serde(rename = "hot")]
    pub is_tracked: bool,
    /// For how many milliseconds the cell stays tracked, if no source of the cell sends more.
    #[serde(rename = "hot_for_ms")]
    pub tracked_for_ms: u64,
    /// Packets of the smallest size that the cell still vouches for.
    pub left: u64,
    /// Packets of the smallest size that the cell vouches for when nobody has sent for long.
    pub capacity: u64,
}

/// A source that is refused without a look at its buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegativeEntry {
    /// The reason, by the names that `stats` counts under.
    pub reason: String,
    /// Milliseconds for which the source is refused.
    pub for_ms: u64,
}

/// One limit and its bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitState {
    /// The limit as it is typed.
    pub rate: String,
    /// What the limit counts.
    pub meter: String,
    /// The burst in units, as typed.
    pub burst: u64,
    /// The burst in units, less what is kept back for the lag of the clock and for CPUs that charge at the same time.
    pub capacity: u64,
    /// Units that would be admitted now.
    pub left: u64,
    /// Milliseconds until the bucket is full again; 0 if it is full.
    pub full_in_ms: u64,
    /// Milliseconds until this limit admits the next packet, whatever other limits decide; absent if the limit admits one now.
    pub refused_for_ms: Option<u64>,
    /// Units of `left` that this host holds by a lease, for a limit that holds on all hosts together; the other units need no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
}

/// A prefix around the source, and what is left for all its addresses together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixState {
    /// The prefix, as CIDR.
    pub prefix: String,
    /// The prefix may have this many times what one source may have.
    pub multiple: u64,
    /// What holds the state of the prefix: `entry` or `cell`, as for a source.
    pub state: String,
    /// Packets of the smallest size that the prefix may have at once.
    pub capacity: u64,
    /// Packets of the smallest size that would be admitted now.
    pub left: u64,
    /// Milliseconds until the bucket is full again; 0 if it is full.
    pub full_in_ms: u64,
    /// Milliseconds until the next packet is admitted; absent if it is admitted now.
    pub refused_for_ms: Option<u64>,
    /// The fair share of each source of a crowded prefix, in percent of its own limits; absent if the prefix is not crowded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<u64>,
}

/// The state of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    /// Name of the service.
    pub service: String,
    /// `drop` or `monitor`.
    pub on_limit: String,
    /// The state of the source under the service's limits per source.
    pub per_source: Option<SourceState>,
    /// What is left of the service's totals, as far as this source may use it.
    pub totals: Vec<LimitState>,
    /// How SYNs of the service are answered.
    pub syn_cookies: Option<SynCookies>,
}

/// SYNs of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynCookies {
    /// The rate above which SYNs are answered with cookies.
    pub threshold: String,
    /// Milliseconds for which SYNs are still answered with cookies; absent if they are not now.
    pub active_for_ms: Option<u64>,
}
