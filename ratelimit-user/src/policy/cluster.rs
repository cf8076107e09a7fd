//! The cluster: what holds on all hosts together, and what a host may do when it hears nothing of the others.

use std::{fmt, time::Duration};

use ratelimit_common::{
    abi::Limit,
    limit::{manner::Throttle, rate::Rate},
};

use super::fields::{Fields, restarted};
use crate::policy::address::StoreAddress;

/// Hosts that the cluster is sized for, unless the policy says otherwise.
pub const DEFAULT_HOSTS: u32 = 16;
/// The most hosts that a policy may name.
pub const MAX_HOSTS: u32 = 10_000;
/// The reserve in thousandths of each limit, unless the policy says otherwise.
const DEFAULT_RESERVE_PERMILLE: u32 = 50;
/// The tick, unless the policy says otherwise.
const DEFAULT_TICK: Duration = Duration::from_millis(50);
/// How long a lease may be spent, unless the policy says otherwise.
const DEFAULT_LEASE: Duration = Duration::from_secs(1);
/// The prefix of all keys in the store, unless the policy says otherwise.
pub const DEFAULT_NAME: &str = "ratelimit";

/// The cluster as the operator wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPolicy {
    redis: StoreAddress,
    name: String,
    host: Option<String>,
    hosts: u32,
    reserve_permille: u32,
    tick: Duration,
    lease: Duration,
    without_store: WithoutStore,
}

/// What a host does while it cannot reach the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutStore {
    /// The host spends its lease, then its part of the reserve: the limit holds.
    Reserve,
    /// The host continues at its last rate: all traffic is served, and the limit holds on each host by itself.
    LastRate,
}

impl WithoutStore {
    /// The word users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::LastRate => "last-rate",
        }
    }
}

/// The part of a limit that one host may spend without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The reserve of all hosts together, in thousandths of a limit.
    permille: u32,
    hosts: u32,
}

impl Reserve {
    /// A reserve of `permille` thousandths of a limit, divided among `hosts`.
    pub fn new(permille: u32, hosts: u32) -> Self {
        Self { permille, hosts: hosts.max(1) }
    }

    /// One host's part of a limit.
    pub fn of(self, limit: &Limit) -> Limit {
        Rate::part(limit, self.permille, self.hosts.saturating_mul(1_000))
    }

    /// The reserve of all hosts together, in thousandths of a limit.
    pub fn permille(self) -> u32 {
        self.permille
    }

    /// One host's part of a burst, in whole units.
    pub fn units(self, burst: u64) -> u64 {
        (u128::from(burst) * u128::from(self.permille) / (u128::from(self.hosts) * 1_000)) as u64
    }
}

/// Whether the store can share a user's limit among hosts. Each host counts windows and margins by itself.
pub fn is_leased(rate: &Rate) -> bool {
    !rate.manner.algorithm.is_window() && rate.manner.throttle == Throttle::Hard
}

/// Why a cluster cannot be as the policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterError {
    /// Too few hosts, or too many.
    Hosts(i64),
    /// A reserve that is more than a limit has.
    Reserve(String),
    /// A tick that is too short, too long, or not a time.
    Tick(String),
    /// A lease that is shorter than the exchange that renews it, or too long.
    Lease { lease: String, tick: Duration },
    /// A name that cannot be part of a key of the store.
    Name { key: &'static str, value: String },
    /// A word for `without_store` that is not known.
    WithoutStore(String),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hosts(hosts) => write!(f, "hosts = {hosts} is not possible; use 1 to {MAX_HOSTS}"),
            Self::Reserve(text) => {
                write!(
                    f,
                    "reserve = {text:?} is not a part of a limit; use \"0%\" to \"50%\", at most one decimal"
                )
            }
            Self::Tick(text) => write!(f, "tick = {text:?} is not possible; use 10ms to 1s"),
            Self::Lease { lease, tick } => write!(
                f,
                "lease = {lease:?} is not possible with a tick of {} ms; use {} ms to 60s",
                tick.as_millis(),
                4 * tick.as_millis()
            ),
            Self::Name { key, value } => write!(
                f,
                "{key} = {value:?} is not possible; use 1 to 64 letters, digits, dots, dashes and underscores"
            ),
            Self::WithoutStore(word) => {
                write!(f, "without_store = {word:?} is not known; use \"reserve\" or \"last-rate\"")
            }
        }
    }
}

impl std::error::Error for ClusterError {}

/// The keys of the cluster in a policy file, each as typed.
#[derive(Clone, Debug, Default)]
pub struct ClusterWords {
    /// The prefix of all keys in the store.
    pub name: Option<String>,
    /// The name of this host.
    pub host: Option<String>,
    /// How many hosts there can be.
    pub hosts: Option<i64>,
    /// The part of each limit that is not leased out.
    pub reserve: Option<String>,
    /// Time between two exchanges with the store.
    pub tick: Option<String>,
    /// Lifetime of a lease.
    pub lease: Option<String>,
    /// What a host does while it cannot reach the store.
    pub without_store: Option<String>,
}

impl ClusterPolicy {
    /// A cluster with this store and defaults for everything else.
    pub fn on(redis: StoreAddress) -> Self {
        Self {
            redis,
            name: DEFAULT_NAME.to_owned(),
            host: None,
            hosts: DEFAULT_HOSTS,
            reserve_permille: DEFAULT_RESERVE_PERMILLE,
            tick: DEFAULT_TICK,
            lease: DEFAULT_LEASE,
            without_store: WithoutStore::Reserve,
        }
    }

    /// Applies the keys of a policy file. The error lists every problem with its key.
    pub fn with(self, words: &ClusterWords) -> Result<Self, Vec<(&'static str, ClusterError)>> {
        let mut cluster = self;
        let mut errors = Vec::new();
        let mut set =
            |key: &'static str, error: Option<ClusterError>| errors.extend(error.map(|error| (key, error)));
        if let Some(name) = &words.name {
            set("name", check_name("name", name).err());
            cluster.name = name.clone();
        }
        if let Some(host) = &words.host {
            set("host", check_name("host", host).err());
            cluster.host = Some(host.clone());
        }
        if let Some(hosts) = words.hosts {
            match u32::try_from(hosts).ok().filter(|hosts| (1..=MAX_HOSTS).contains(hosts)) {
                Some(hosts) => cluster.hosts = hosts,
                None => set("hosts", Some(ClusterError::Hosts(hosts))),
            }
        }
        if let Some(text) = &words.reserve {
            match permille(text).filter(|permille| *permille <= 500) {
                Some(permille) => cluster.reserve_permille = permille,
                None => set("reserve", Some(ClusterError::Reserve(text.clone()))),
            }
        }
        if let Some(text) = &words.tick {
            let possible = Duration::from_millis(10)..=Duration::from_secs(1);
            match duration(text).filter(|tick| possible.contains(tick)) {
                Some(tick) => cluster.tick = tick,
                None => set("tick", Some(ClusterError::Tick(text.clone()))),
            }
        }
        let lease = words.lease.as_deref().map_or(Some(cluster.lease), duration);
        match lease.filter(|lease| (cluster.tick * 4..=Duration::from_secs(60)).contains(lease)) {
            Some(lease) => cluster.lease = lease,
            None => {
                let lease =
                    words.lease.clone().unwrap_or_else(|| format!("{} ms", cluster.lease.as_millis()));
                set("lease", Some(ClusterError::Lease { lease, tick: cluster.tick }));
            }
        }
        match words.without_store.as_deref() {
            None | Some("reserve") => {}
            Some("last-rate") => cluster.without_store = WithoutStore::LastRate,
            Some(other) => set("without_store", Some(ClusterError::WithoutStore(other.to_owned()))),
        }
        if errors.is_empty() { Ok(cluster) } else { Err(errors) }
    }

    /// Moves the cluster to another store.
    pub fn moved_to(self, redis: StoreAddress) -> Self {
        Self { redis, ..self }
    }

    /// The cluster in words, for `diff`. A running daemon keeps its store and what it agreed on with other hosts, so changes need a restart.
    pub(super) fn fields(&self) -> Fields {
        let permille = self.reserve().permille();
        let reserve = match permille % 10 {
            0 => format!("{}%", permille / 10),
            tenths => format!("{}.{tenths}%", permille / 10),
        };
        let host = self.host().map_or_else(|| "as the system calls it".to_owned(), ToOwned::to_owned);
        restarted([
            ("redis", self.redis().to_string()),
            ("name", self.name().to_owned()),
            ("host", host),
            ("hosts", self.hosts().to_string()),
            ("reserve", reserve),
            ("tick", format!("{} ms", self.tick().as_millis())),
            ("lease", format!("{} ms", self.lease().as_millis())),
            ("without_store", self.without_store().name().to_owned()),
        ])
    }

    /// The address of the store.
    pub fn redis(&self) -> &StoreAddress {
        &self.redis
    }

    /// The prefix of all keys in the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of this host; `None` for the system's host name.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The number of hosts that the cluster is sized for.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// One host's reserve: what it may spend without a lease.
    pub fn reserve(&self) -> Reserve {
        Reserve::new(self.reserve_permille, self.hosts)
    }

    /// Time between exchanges with the store.
    pub fn tick(&self) -> Duration {
        self.tick
    }

    /// How long a host may spend a lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What a host does while it cannot reach the store.
    pub fn without_store(&self) -> WithoutStore {
        self.without_store
    }
}

/// Checks a name that is part of a key in the store. Braces are not allowed: they would move the key to another slot.
fn check_name(key: &'static str, value: &str) -> Result<(), ClusterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if !value.is_empty() && value.len() <= 64 && value.chars().all(fits) {
        Ok(())
    } else {
        Err(ClusterError::Name { key, value: value.to_owned() })
    }
}

/// `5%` or `2.5%` as thousandths.
fn permille(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most: usize| -> Option<u32> {
        let plain = !text.is_empty() && text.len() <= most && text.bytes().all(|c| c.is_ascii_digit());
        plain.then(|| text.parse().ok())?
    };
    Some(digits(whole, 3)? * 10 + digits(tenths, 1)?)
}

fn duration(text: &str) -> Option<Duration> {
    ratelimit_common::limit::lifetime::parse_lifetime(text).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use ratelimit_common::limit::text::parse_rate;

    use super::*;

    #[test]
    fn parts_are_read_with_one_decimal_and_nothing_else_is() {
        for (text, expected) in
            [("5%", Some(50)), ("2.5%", Some(25)), ("0%", Some(0)), ("50 %", Some(500)), ("100%", Some(1000))]
        {
            assert_eq!(permille(text), expected, "{text}");
        }
        for text in ["", "5", "%", "-5%", "1.25%", ".5%", "5.%", "1e1%", "5%%", "1000000000000%"] {
            assert_eq!(permille(text), None, "{text}");
        }
    }

    #[test]
    fn the_parts_of_all_hosts_are_never_more_than_the_reserve() {
        for (text, permille, hosts) in [
            ("20000 packets/s burst 40000", 50, 16),
            ("1 packets/day burst 1", 50, 16),
            ("40 Mbit/s", 50, 3),
            ("2 MB/s burst 10 MB", 1, 1024),
            ("100000000 packets/s burst 1", 500, 1),
        ] {
            let limit = parse_rate(text).unwrap().limit().unwrap();
            let part = Reserve::new(permille, hosts).of(&limit);
            if part.tolerance_q8 == 0 {
                continue;
            }
            // Cost per unit as a fraction: one host's part, times the number of hosts, must not exceed the reserve.
            let price = |limit: &Limit| u128::from(limit.cost_fp) << (16 - limit.frac_bits);
            let all = u128::from(permille) * price(&part);
            assert!(all >= u128::from(hosts) * 1000 * price(&limit), "{text}");
            assert!(part.tolerance_q8 <= limit.tolerance_q8, "{text}");
        }
    }

    #[test]
    fn no_reserve_gives_nothing() {
        let limit = parse_rate("20000 packets/s burst 40000").unwrap().limit().unwrap();
        assert_eq!(Reserve::new(0, 16).of(&limit).tolerance_q8, 0);
    }
}
