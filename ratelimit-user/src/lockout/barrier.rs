//! Barriers: blocks and limits that stop the packets of an address that must not be cut off, and which of them are new.
//!
//! One rule holds for every order: an address that gets through under the rules in force, and would not under the new rules, is cut off. A policy or service
//! that drops nothing (on trial, or marking) is no barrier, before or after.

use std::fmt;

use ratelimit_common::{
    abi::{
        list::ALLOWED,
        policy::Mode,
        service::{OnLimit, Protocol},
    },
    limit::rate::Rate,
};

use super::{LockoutRole, SSH_PORT, Vital, session};
use crate::{
    compile::lists::{Lists, Outlook, Prefix},
    policy::{NamedLimit, Policy, Service, User},
};

/// The rules that judge packets: a policy and the lists.
#[derive(Clone, Copy, Debug)]
pub struct PacketRules<'r> {
    /// The policy that judges packets.
    pub policy: &'r Policy,
    /// The block and allow lists.
    pub lists: &'r Outlook<'r>,
}

/// The kind of a limit. Two limits of one kind are compared by their rate alone, whichever service or user they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitOf {
    Source,
    HostTotal,
    ServicePerSource,
    ServiceTotal,
    User,
}

/// A block or limit that stops the packets of an address that must not be cut off.
#[derive(Clone, Debug)]
enum Barrier {
    /// A block until a moment. No limit is reached behind it.
    Block { until_ns: u64 },
    /// A limit below what a session needs.
    Limit { of: LimitOf, name: String, rate: Rate, need: String },
}

/// An address that would be cut off, and the barrier that does it.
#[derive(Clone, Debug)]
pub struct CutOff<'v> {
    who: &'v Vital,
    barrier: Barrier,
}

impl<'v> CutOff<'v> {
    /// The address that would be cut off.
    pub fn who(&self) -> &'v Vital {
        self.who
    }

    /// Whether the sentence about `other` covers this one as well: a limit is named once, however many sessions it starves.
    fn is_said_by(&self, other: &Self) -> bool {
        match (&self.barrier, &other.barrier) {
            (Barrier::Limit { name, rate, .. }, Barrier::Limit { name: said, rate: other, .. }) => {
                name == said && rate == other
            }
            _ => false,
        }
    }
}

impl fmt::Display for CutOff<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.who;
        match &self.barrier {
            Barrier::Block { .. } => write!(f, "{} would be blocked, and {who}", who.address),
            Barrier::Limit { name, rate, need, .. } => {
                write!(f, "{name} \"{rate}\" is below {need}, and {who}")
            }
        }
    }
}

/// Returns those of `vital` whose address is inside a prefix.
pub fn inside<'v>(
    prefix: &Prefix,
    vital: impl IntoIterator<Item = &'v Vital>,
) -> impl Iterator<Item = &'v Vital> {
    let prefix = *prefix;
    vital.into_iter().filter(move |one| prefix.covers(&Prefix::masked(one.address, u8::MAX)))
}

/// Returns the addresses that a new policy or new lists would cut off. A limit that cuts off several is listed once.
pub fn cut_off<'v>(
    before: PacketRules<'_>,
    after: PacketRules<'_>,
    now_ns: u64,
    vital: impl IntoIterator<Item = &'v Vital>,
) -> Vec<CutOff<'v>> {
    let mut found: Vec<CutOff<'v>> = Vec::new();
    for who in vital {
        let barriers = barriers(after, who, now_ns);
        if barriers.is_empty() {
            continue;
        }
        let known = self::barriers(before, who, now_ns);
        let new = barriers.into_iter().filter(|barrier| !known.iter().any(|known| known.covers(barrier)));
        for cut in new.map(|barrier| CutOff { who, barrier }) {
            if !found.iter().any(|said| cut.is_said_by(said)) {
                found.push(cut);
            }
        }
    }
    found
}

/// Whether a policy could cut off an address that gets through now. Only then has the host to be searched for such addresses.
pub fn could_cut_off(before: &Policy, after: &Policy, lists: &Lists) -> bool {
    if after.mode() == Mode::Monitor {
        return false;
    }
    // Blocks are no part of a policy, but they take effect only where the policy is enforced.
    let blocks_begin = before.mode() == Mode::Monitor && !lists.is_empty();
    let biting = after.services().iter().filter(|service| !passes_all(service));
    let of_services = biting.flat_map(|service| service.per_source().iter().chain(service.totals()));
    let of_users = after.users().iter().flat_map(User::network);
    let of_sources = after.source().limits().iter().map(NamedLimit::rate);
    let mut rates = of_sources.chain(of_services).chain(of_users).chain(after.host().totals());
    blocks_begin || rates.any(|rate| session::shortfall(rate).is_some())
}

impl Barrier {
    /// Whether `other` stops no packet that this barrier does not stop. A block that lasts longer stops more.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Block { until_ns }, Self::Block { until_ns: other }) => until_ns >= other,
            (Self::Limit { of, rate, .. }, Self::Limit { of: other, rate: smaller, .. }) => {
                of == other && rate == smaller
            }
            _ => false,
        }
    }
}

/// Returns every barrier that stops an address under these rules.
fn barriers(PacketRules { policy, lists }: PacketRules<'_>, who: &Vital, now_ns: u64) -> Vec<Barrier> {
    if policy.mode() == Mode::Monitor {
        return Vec::new();
    }
    if let Some(entry) = lists.longest(who.address) {
        if entry.allowed == ALLOWED {
            return Vec::new();
        }
        if entry.blocked_until_ns > now_ns {
            return vec![Barrier::Block { until_ns: entry.blocked_until_ns }];
        }
    }
    // Only sessions need a rate: the host itself and its gateway have none.
    if !matches!(who.role, LockoutRole::SshSession { .. } | LockoutRole::Operator) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut look_at = |of: LimitOf, name: &dyn Fn() -> String, rate: &Rate| {
        if let Some(need) = session::shortfall(rate) {
            found.push(Barrier::Limit { of, name: name(), rate: *rate, need });
        }
    };
    for rate in policy.host().totals() {
        look_at(LimitOf::HostTotal, &|| "[host] total".to_owned(), rate);
    }
    let services = services_of(policy, who);
    for service in services.iter().filter(|service| !passes_all(service)) {
        for rate in service.per_source() {
            look_at(LimitOf::ServicePerSource, &|| format!("service {}: per_source", service.name()), rate);
        }
        for rate in service.totals() {
            look_at(LimitOf::ServiceTotal, &|| format!("service {}: total", service.name()), rate);
        }
    }
    // The service also decides what happens to packets over the limits of their source and user.
    if !services.is_empty() && services.iter().all(|service| passes_all(service)) {
        return found;
    }
    for limit in policy.source().limits() {
        look_at(LimitOf::Source, &|| format!("limit {}", limit.name()), limit.rate());
    }
    if let Some(user) = policy.users().of(&Prefix::masked(who.address, u8::MAX)) {
        for rate in user.network() {
            look_at(LimitOf::User, &|| format!("user {}: network", user.name()), rate);
        }
    }
    found
}

/// Whether a service lets packets over its limits pass.
fn passes_all(service: &Service) -> bool {
    match service.on_limit() {
        OnLimit::Monitor | OnLimit::Mark => true,
        OnLimit::Drop | OnLimit::Reject => false,
    }
}

/// Returns the services that the packets of a session may be for. The address that an operator is connected to is not known, so every service on the SSH port counts.
fn services_of<'p>(policy: &'p Policy, who: &Vital) -> Vec<&'p Service> {
    match who.role {
        LockoutRole::SshSession { local, port } => {
            policy.services().of(Protocol::Tcp, port, local).into_iter().collect()
        }
        LockoutRole::Operator | LockoutRole::Own { .. } | LockoutRole::Gateway => {
            policy.services().iter().filter(|service| service.has_port(Protocol::Tcp, SSH_PORT)).collect()
        }
    }
}
