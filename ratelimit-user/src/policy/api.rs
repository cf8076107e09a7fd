//! APIs: what requests are counted by, their limits, and what happens above a limit. Valid by construction.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ratelimit_common::limit::rate::Rate;

use super::{
    RequestLimit,
    fields::{Fields, followed, restarted},
    request_limit::{given, in_order},
};

/// Counter keys that are remembered at most, for each size of state, unless the policy says otherwise.
pub const DEFAULT_KEYS: u64 = 1_000_000;

/// The name of the API that stands for all APIs without a table of their own.
pub const ANY_API: &str = "*";

/// The longest name of an API, and the longest word of a key.
pub const MAX_NAME: usize = 64;

/// Whether `name` is a valid name of an API.
pub fn is_api_name(name: &str) -> bool {
    let typeable = |c: char| c.is_ascii_alphanumeric() || "-_.@/:".contains(c);
    name == ANY_API || (!name.is_empty() && name.len() <= MAX_NAME && name.chars().all(typeable))
}

/// The plan of users that the policy does not mention.
pub const DEFAULT_PLAN: &str = "default";

/// Everything the policy says about requests. Cheap to copy: versions of a policy share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPolicy {
    /// All APIs, in the order of the file.
    pub apis: Arc<[Api]>,
    /// Counter keys that are remembered at most, for each size of state.
    pub keys: u64,
    /// Threads that answer questions; `None` for one per CPU.
    pub threads: Option<u32>,
}

/// The most counter keys that a policy may ask for; more would need more memory than hosts have.
pub const MAX_KEYS: u64 = 100_000_000;
/// The most threads that a policy may ask for.
pub const MAX_THREADS: u32 = 1_024;

impl Default for RequestPolicy {
    fn default() -> Self {
        Self { apis: Arc::default(), keys: DEFAULT_KEYS, threads: None }
    }
}

impl RequestPolicy {
    /// The settings of all APIs together in words, for `diff`. A change needs a restart, because the tables are allocated at start.
    pub(super) fn fields(&self) -> Fields {
        let threads = self.threads.map_or_else(|| "one per CPU".to_owned(), |threads| threads.to_string());
        restarted([("keys", self.keys.to_string()), ("threads", threads)])
    }
}

impl Api {
    /// The API in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = followed([
            ("on_limit", on_limit(self.on_limit)),
            ("sharing", self.sharing.name().to_owned()),
            ("without_store", self.without_store.name().to_owned()),
            ("ipv4_prefix", self.ipv4_prefix.to_string()),
            ("ipv6_prefix", self.ipv6_prefix.to_string()),
        ]);
        match &self.login {
            None => {
                let key: Vec<&str> = self.key.iter().map(KeyPart::name).collect();
                fields.extend(followed([("key", key.join(", ")), ("limits", in_order(&self.limits))]));
            }
            Some(login) => fields.extend(followed([
                ("preset", "login".to_owned()),
                ("per_ip", in_order(&login.per_ip)),
                ("per_user_and_ip", in_order(&login.per_user_and_ip)),
                ("per_user", in_order(&login.per_user)),
                ("known_for", time(login.known_for)),
            ])),
        }
        for (whose, lists) in [("plans", &self.by_plan), ("users", &self.by_user)] {
            for (name, limits) in lists {
                fields.insert(format!("{whose}.{name}").into(), (given(limits), false));
            }
        }
        if self.reserved != Reserved::default() {
            let Reserved { critical, normal } = self.reserved;
            fields.extend(followed([("reserved", format!("critical {critical}%, normal {normal}%"))]));
        }
        if let Some(escalation) = &self.escalation {
            fields.extend(followed([("escalate", escalate(escalation))]));
        }
        fields
    }

    /// Iterates over every list of limits of the API.
    pub fn lists(&self) -> impl Iterator<Item = &[RequestLimit]> {
        let login =
            self.login.iter().flat_map(|login| [&login.per_ip, &login.per_user_and_ip, &login.per_user]);
        let lists = [&self.limits].into_iter().chain(self.by_plan.values()).chain(self.by_user.values());
        lists.chain(login).map(Vec::as_slice)
    }
}

/// An API of the policy, with its key and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The name of the API, or [`ANY_API`].
    pub name: String,
    /// The parts of the counter key: requests with equal values in all parts share the limits.
    pub key: Vec<KeyPart>,
    /// The limits of each counter key.
    pub limits: Vec<RequestLimit>,
    /// Limits by plan; they replace `limits` for users on that plan.
    pub by_plan: BTreeMap<String, Vec<RequestLimit>>,
    /// Limits by user; they replace `limits` for that user.
    pub by_user: BTreeMap<String, Vec<RequestLimit>>,
    /// What happens above a limit.
    pub on_limit: OnRefusal,
    /// How hosts share the counts.
    pub sharing: Sharing,
    /// What a host does while it cannot reach the store.
    pub without_store: Alone,
    /// Parts of each limit that are kept for more important requests.
    pub reserved: Reserved,
    /// Length in bits of the prefix that IPv4 addresses are counted by.
    pub ipv4_prefix: u8,
    /// Length in bits of the prefix that IPv6 addresses are counted by.
    pub ipv6_prefix: u8,
    /// Limits on failed logins, for an API that counts them: per address, per user and address, and per user, so that nobody else can lock a user out.
    pub login: Option<Login>,
    /// When a caller that stays above its limit is blocked in the packet path.
    pub escalation: Option<Escalation>,
}

/// One part of a counter key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyPart {
    /// The user who makes the request.
    User,
    /// The address that the request comes from.
    Ip,
    /// The name of the API; useful for [`ANY_API`].
    Api,
    /// A further part: callers give its value under this name.
    Other(String),
}

impl KeyPart {
    /// The sentence about valid names of further parts, for errors.
    pub const NAMES: &str =
        "its name is of small letters, digits, - and _, at most 64, and none of user, ip and api";

    /// Whether a word is a valid name of a further part of a counter key.
    pub fn is_further(word: &str) -> bool {
        matches!(Self::new(word), Some(Self::Other(_)))
    }

    /// Parses a word of the policy; `None` if the word is not a valid name.
    pub fn new(word: &str) -> Option<Self> {
        let typeable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        match word {
            "user" => Some(Self::User),
            "ip" => Some(Self::Ip),
            "api" => Some(Self::Api),
            other => (!other.is_empty() && other.len() <= MAX_NAME && other.chars().all(typeable))
                .then(|| Self::Other(other.to_owned())),
        }
    }

    /// The word for the part in the policy file.
    pub fn name(&self) -> &str {
        match self {
            Self::User => "user",
            Self::Ip => "ip",
            Self::Api => "api",
            Self::Other(word) => word,
        }
    }
}

/// What happens to a request above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// The request is refused.
    Refuse,
    /// The request waits for its turn, if the turn comes within this time.
    Delay(Duration),
    /// The request passes, and is to be served after others.
    Deprioritise,
}

/// How hosts share the counts of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The store decides every request.
    Strict,
    /// Hosts decide from leases, and ask the store where they have no lease.
    Lease,
    /// Every host counts for itself.
    Local,
}

impl Sharing {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Lease, Self::Local];

    /// The word users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lease => "lease",
            Self::Local => "local",
        }
    }
}

/// What a host does while it cannot reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// The host gives its even part of the limit, at least 1: all hosts together give twice the limit at most.
    Share,
    /// The host gives its part of the reserve: all hosts together stay within the limit.
    Reserve,
    /// The host gives the whole limit.
    Local,
    /// The host refuses all requests.
    Refuse,
}

impl Alone {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Share, Self::Reserve, Self::Local, Self::Refuse];

    /// The word users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Reserve => "reserve",
            Self::Local => "local",
            Self::Refuse => "refuse",
        }
    }
}

/// Parts of a limit, in percent, that are kept for more important requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Percent of the limit for critical requests only.
    pub critical: u32,
    /// Percent of the limit for critical and normal requests only.
    pub normal: u32,
}

/// The limits of an API that counts failed logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Limits on failures from one address, for all users together.
    pub per_ip: Vec<RequestLimit>,
    /// Limits on failures of one user from one address.
    pub per_user_and_ip: Vec<RequestLimit>,
    /// Limits on failures of one user from addresses that the user has never logged in from.
    pub per_user: Vec<RequestLimit>,
    /// How long an address stays known after the user has logged in from it.
    pub known_for: Duration,
}

/// When a caller that stays above its limit is blocked in the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// The rate of refusals above which the escalation counts.
    pub above: Rate,
    /// How long refusals must stay above the rate.
    pub lasting: Duration,
    /// Lifetime of the block.
    pub block_for: Duration,
    /// Length in bits of the IPv4 prefix that is blocked around the address.
    pub ipv4_prefix: u8,
    /// Length in bits of the IPv6 prefix that is blocked around the address.
    pub ipv6_prefix: u8,
}

fn on_limit(on_limit: OnRefusal) -> String {
    match on_limit {
        OnRefusal::Refuse => "refuse".to_owned(),
        OnRefusal::Delay(most) => format!("delay {}", time(most)),
        OnRefusal::Deprioritise => "deprioritise".to_owned(),
    }
}

fn escalate(escalation: &Escalation) -> String {
    let Escalation { above, lasting, block_for, ipv4_prefix, ipv6_prefix } = escalation;
    let (amount, period) = (above.amount, above.period.name());
    let (lasting, block_for) = (time(*lasting), time(*block_for));
    format!("above {amount}/{period} for {lasting}: block {block_for} of /{ipv4_prefix} or /{ipv6_prefix}")
}

/// A duration as users type it, in the largest unit that it is a whole number of.
fn time(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(length, _)| ms.is_multiple_of(*length));
    unit.map_or_else(|| format!("{ms}ms"), |(length, name)| format!("{}{name}", ms / length))
}
