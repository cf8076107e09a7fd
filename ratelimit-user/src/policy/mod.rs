//! The policy: what the operator wants, valid by construction. No positions, no files, no kernel.

pub mod address;
mod aggregation;
mod api;
mod attacks;
mod carrier;
pub mod changes;
mod cluster;
mod fields;
mod host;
mod interface_name;
mod leases;
mod limit_list;
mod listen;
mod notify;
mod prefilter;
mod prefix;
mod request_limit;
mod service;
mod services;
mod setting;
mod shadow;
mod sharing;
mod source;
mod sources;
pub mod terms;
mod user;
mod windows;

use ratelimit_common::{abi::Mode, limit::manner::Throttle};

use crate::policy::address::StoreAddress;

pub use aggregation::{AggregationError, AggregationFamily, AggregationLevel, AggregationPolicy};
pub use api::{
    ANY_API, Alone, Api, DEFAULT_KEYS, DEFAULT_PLAN, Escalation, KeyPart, Login, MAX_KEYS, MAX_NAME,
    MAX_THREADS, OnRefusal, RequestPolicy, Reserved, Sharing, is_api_name,
};
pub use attacks::{AttackPolicy, AttackPolicyError};
pub use carrier::{Carrier, CarrierPlace};
pub use cluster::{
    ClusterError, ClusterPolicy, ClusterWords, DEFAULT_HOSTS, DEFAULT_NAME, MAX_HOSTS, Reserve, WithoutStore,
    is_leased,
};
pub use fields::{NONE, words};
pub use host::{HostError, HostPolicy};
pub use interface_name::{InterfaceName, InterfaceNameError};
pub use leases::Uncountable;
pub use limit_list::LimitList;
pub use listen::{Listen, ListenEndpoint, ListenTls, MAX_METRICS_TOP, SocketRights};
pub use notify::{Notifier, NotifyWay, Occasion, WebhookUrl, WebhookUrlError};
pub use prefilter::{DEFAULT_NEW_SOURCES, PrefilterError, PrefilterPolicy};
pub use prefix::{Prefix, PrefixError, TrieKey};
pub use request_limit::{
    MAX_LOG, MAX_REQUEST_LIMITS, MAX_REQUESTS, RequestLimit, RequestLimitError, is_calendar, largest_burst,
    log_bytes,
};
pub use service::{DEFAULT_DSCP, Service, ServiceError};
pub use services::Services;
pub use setting::{OF_PLAN, Setting, SettingError, pieces};
pub use shadow::{Shadow, ShadowOrder};
pub(crate) use sharing::claims;
pub use sharing::{PortGroup, Unmet};
pub use source::{DEFAULT_TABLE_ENTRIES, MAX_TABLE_ENTRIES, NamedLimit, SourceError, SourcePolicy};
pub use sources::{Chunk, Difference, Sources};
pub use user::{Plan, User, UserError, Users};
pub use windows::TooManyWindows;

/// Everything the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    interfaces: Vec<InterfaceName>,
    mode: Mode,
    source: SourcePolicy,
    prefilter: PrefilterPolicy,
    aggregation: AggregationPolicy,
    host: HostPolicy,
    services: Services,
    users: Users,
    listen: Listen,
    cluster: Option<ClusterPolicy>,
    requests: RequestPolicy,
    attacks: AttackPolicy,
    notifiers: Vec<Notifier>,
}

impl Policy {
    /// Builds a policy from parts that are valid by themselves.
    pub fn new(
        interfaces: Vec<InterfaceName>,
        source: SourcePolicy,
        prefilter: PrefilterPolicy,
        aggregation: AggregationPolicy,
        services: Services,
        listen: Listen,
    ) -> Self {
        let users = Users::default();
        let requests = RequestPolicy::default();
        Self {
            interfaces,
            mode: Mode::Enforce,
            source,
            prefilter,
            aggregation,
            host: HostPolicy::default(),
            services,
            users,
            listen,
            cluster: None,
            requests,
            attacks: AttackPolicy::default(),
            notifiers: Vec::new(),
        }
    }

    /// Replaces the limits of the host as a whole.
    pub fn with_host(self, host: HostPolicy) -> Self {
        Self { host, ..self }
    }

    /// The limits of the host as a whole.
    pub fn host(&self) -> &HostPolicy {
        &self.host
    }

    /// Replaces the thresholds of attacks and the notifiers.
    pub fn with_attacks(self, attacks: AttackPolicy, notifiers: Vec<Notifier>) -> Self {
        Self { attacks, notifiers, ..self }
    }

    /// The thresholds of attacks.
    pub fn attacks(&self) -> &AttackPolicy {
        &self.attacks
    }

    /// The notifiers of attacks.
    pub fn notifiers(&self) -> &[Notifier] {
        &self.notifiers
    }

    /// Replaces the users and plans.
    pub fn with_users(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Replaces the limits of requests.
    pub fn with_requests(self, requests: RequestPolicy) -> Self {
        Self { requests, ..self }
    }

    /// The limits of requests.
    pub fn requests(&self) -> &RequestPolicy {
        &self.requests
    }

    /// Whether the policy has any limits of requests.
    pub fn limits_requests(&self) -> bool {
        !self.requests.apis.is_empty()
            || self.users.plans().any(|plan| !plan.requests().is_empty())
            || self.users.iter().any(|user| user.requests().is_some())
    }

    /// Whether the store has counts of requests that matter for more than an hour.
    pub fn counts_for_long_in_store(&self) -> bool {
        let apis = self.requests.apis.iter().filter(|api| api.sharing != Sharing::Local);
        let of_plans = self.users.plans().map(Plan::requests);
        let of_users = self.users.iter().filter_map(User::requests);
        let mut limits = apis.flat_map(Api::lists).chain(of_plans).chain(of_users).flatten();
        self.cluster.is_some() && limits.any(RequestLimit::counts_for_long)
    }

    /// Replaces the cluster.
    pub fn with_cluster(self, cluster: Option<ClusterPolicy>) -> Self {
        Self { cluster, ..self }
    }

    /// Moves the cluster to the store that the command line names, if it names one.
    pub fn moved_to(self, redis: Option<&StoreAddress>) -> Self {
        let Some(redis) = redis.cloned() else { return self };
        let cluster = match self.cluster {
            Some(cluster) => cluster.moved_to(redis),
            None => ClusterPolicy::on(redis),
        };
        Self { cluster: Some(cluster), ..self }
    }

    /// The cluster of this host, if it has one.
    pub fn cluster(&self) -> Option<&ClusterPolicy> {
        self.cluster.as_ref()
    }

    /// Replaces the mode.
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Whether refused packets are dropped or only counted.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The users and plans.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The interfaces to guard; the command line can name others instead.
    pub fn interfaces(&self) -> &[InterfaceName] {
        &self.interfaces
    }

    /// The limits of each source.
    pub fn source(&self) -> &SourcePolicy {
        &self.source
    }

    /// The prefilter: which sources get an entry of their own.
    pub fn prefilter(&self) -> &PrefilterPolicy {
        &self.prefilter
    }

    /// Prefix aggregation: limits on the prefixes around sources.
    pub fn aggregation(&self) -> &AggregationPolicy {
        &self.aggregation
    }

    /// The services.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Whether some limit is elastic: it gives a margin while the host has headroom.
    pub fn is_elastic(&self) -> bool {
        self.every_rate().any(|rate| matches!(rate.manner.throttle, Throttle::Elastic(_)))
    }

    /// The listeners of the daemon.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}

/// The names of a list in a sentence, shortened after twenty.
pub(crate) fn some(names: &[String]) -> String {
    const SHOWN: usize = 20;
    match names.len() {
        0 => NONE.to_owned(),
        1..=SHOWN => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}
