//! What requests are limited by: APIs, by whom they are counted, and what happens above a limit. Valid by construction.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ratelimit_common::limit::rate::Rate;

/// Keys that are remembered at most, of each size, unless the policy says otherwise.
pub const DEFAULT_KEYS: u64 = 1_000_000;

/// The API that stands for all that have no table of their own.
pub const ANY_API: &str = "*";

/// The plan of users that the policy does not name.
pub const DEFAULT_PLAN: &str = "default";

/// Everything about requests. Cheap to copy: versions of a policy share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPolicy {
    /// All APIs, in the order of the file.
    pub apis: Arc<[Api]>,
    /// Keys that are remembered at most, of each size of state.
    pub keys: u64,
    /// Threads that answer; one per CPU unless given.
    pub threads: Option<u32>,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self { apis: Arc::default(), keys: DEFAULT_KEYS, threads: None }
    }
}

/// One API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Its name, or [`ANY_API`].
    pub name: String,
    /// What requests are counted by: those that are alike in all of these share the limits.
    pub key: Vec<KeyPart>,
    /// What each key may have.
    pub limits: Vec<RequestLimit>,
    /// Instead of that, for users on a plan.
    pub by_plan: BTreeMap<String, Vec<RequestLimit>>,
    /// Instead of that, for one user.
    pub by_user: BTreeMap<String, Vec<RequestLimit>>,
    /// What happens above a limit.
    pub on_limit: OnRefusal,
    /// How hosts count together.
    pub sharing: Sharing,
    /// What a host does that cannot reach the store.
    pub without_store: Alone,
    /// Parts of each limit that less important requests leave alone.
    pub reserved: Reserved,
    /// Addresses are counted by prefixes of this length.
    pub ipv4_prefix: u8,
    /// The same for IPv6.
    pub ipv6_prefix: u8,
    /// Whether it counts failed logins: per address, per user and address, and per user, so that a stranger cannot lock a user out.
    pub login: Option<Login>,
    /// When a caller that stays above its limit is blocked in the packet path.
    pub escalation: Option<Escalation>,
}

/// A limit of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    /// Its rate; the meter has no meaning.
    pub rate: Rate,
    /// The time zone whose days and months its windows are, if they are the calendar's.
    pub zone: Option<String>,
}

/// Something that a request is counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyPart {
    /// Who asks.
    User,
    /// The address that it comes from.
    Ip,
    /// The API; of use for [`ANY_API`].
    Api,
    /// Something else that the caller names.
    Other(String),
}

/// What happens to a request above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// It is refused.
    Refuse,
    /// It waits for its turn, if that comes within this time.
    Delay(Duration),
    /// It passes, and is to be served after others.
    Deprioritise,
}

/// How hosts count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The store decides every request.
    Strict,
    /// Hosts decide from leases, and the store when there are none.
    Lease,
    /// Every host counts for itself.
    Local,
}

/// What a host does that cannot reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It gives its even part of the limit, at least 1: twice the limit at most, in all.
    Share,
    /// It gives its part of what the store never gives out: never above the limit.
    Reserve,
    /// It gives the whole limit.
    Local,
    /// It refuses.
    Refuse,
}

/// Parts of a limit, in percent, that less important requests leave alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Only critical requests get it.
    pub critical: u32,
    /// Only critical and normal ones get it.
    pub normal: u32,
}

/// The limits of an API that counts failed logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Failures from one address, whoever was meant.
    pub per_ip: Vec<RequestLimit>,
    /// Failures of one user from one address.
    pub per_user_and_ip: Vec<RequestLimit>,
    /// Failures of one user from addresses that it has never logged in from.
    pub per_user: Vec<RequestLimit>,
    /// For how long an address that a user has logged in from counts as known.
    pub known_for: Duration,
}

/// When a caller that stays above its limit is blocked in the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// More refusals than this.
    pub above: Rate,
    /// For this long.
    pub lasting: Duration,
    /// Are answered with a block of this lifetime.
    pub block_for: Duration,
    /// Of the prefix of this length around the address.
    pub ipv4_prefix: u8,
    /// The same for IPv6.
    pub ipv6_prefix: u8,
}
