//! Who must not be cut off from this host, and what would do it.
//!
//! `discover` looks at the host; everything else is pure. What is on the allow list is never cut off: it passes before
//! blocks and limits are asked.

mod discover;
mod routes;
mod session;
mod sockets;

use std::{fmt, net::IpAddr};

use ratelimit_common::{
    abi::{ListEntry, list::ALLOWED, service::Protocol},
    limit::rate::Rate,
};

use crate::{
    compile::lists::{Outlook, Prefix},
    policy::{NamedLimit, Policy, Service, User},
};
pub use discover::{SSH_PORT, discover};

/// An address that matters, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vital {
    /// The address.
    pub address: IpAddr,
    /// Why it matters.
    pub role: LockoutRole,
}

/// Why an address matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockoutRole {
    /// The far end of a connection to this host's sshd.
    SshSession {
        /// This host's address that it is connected to.
        local: IpAddr,
        /// The port of sshd that it is connected to.
        port: u16,
    },
    /// Where the operator who is asking comes from, as their shell knows it.
    Operator,
    /// This host.
    Own {
        /// The interface that has it.
        interface: String,
    },
    /// The way out.
    Gateway,
}

impl Vital {
    /// Where an operator comes from; nobody, if that is this host itself.
    pub fn operator(address: IpAddr) -> Option<Self> {
        let address = address.to_canonical();
        (!address.is_loopback()).then_some(Self { address, role: LockoutRole::Operator })
    }
}

impl fmt::Display for Vital {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match &self.role {
            LockoutRole::SshSession { port, .. } => {
                write!(f, "{address} has a live SSH session (to port {port})")
            }
            LockoutRole::Operator => write!(f, "you are connected from {address}"),
            LockoutRole::Own { interface } => {
                write!(f, "{address} is this host's own address (on {interface})")
            }
            LockoutRole::Gateway => write!(f, "{address} is the default gateway"),
        }
    }
}

/// The addresses of `prefix` that matter and are blocked once the lists are these.
pub fn cut_off<'v>(
    prefix: &Prefix,
    lists: &Outlook<'_>,
    now_ns: u64,
    vital: impl IntoIterator<Item = &'v Vital>,
) -> Vec<&'v Vital> {
    let cut = |one: &&Vital| {
        let blocked = |entry: ListEntry| entry.blocked_until_ns > now_ns && entry.allowed != ALLOWED;
        prefix.covers(&Prefix::masked(one.address, u8::MAX))
            && lists.longest(one.address).is_some_and(blocked)
    };
    vital.into_iter().filter(cut).collect()
}

/// Whether a policy leaves too little for a session, if there is one: only then the host has to be searched for any.
pub fn could_starve(policy: &Policy) -> bool {
    let of_services =
        policy.services().iter().flat_map(|service| service.per_source().iter().chain(service.totals()));
    let of_users = policy.users().iter().flat_map(User::network);
    let mut rates = policy
        .source()
        .limits()
        .iter()
        .map(NamedLimit::rate)
        .chain(of_services)
        .chain(of_users)
        .chain(policy.host().totals());
    rates.any(|rate| session::shortfall(rate).is_some())
}

/// What of a policy leaves too little for somebody's session, as sentences. What `before` has already is no news.
pub fn starved<'p>(
    policy: &'p Policy,
    before: &'p Policy,
    lists: &Outlook<'_>,
    vital: &[Vital],
) -> Vec<String> {
    let remote = |one: &&Vital| {
        matches!(one.role, LockoutRole::SshSession { .. } | LockoutRole::Operator)
            && lists.longest(one.address).is_none_or(|entry| entry.allowed != ALLOWED)
    };
    let sessions: Vec<&Vital> = vital.iter().filter(remote).collect();
    let mut sentences = Vec::new();
    if let Some(first) = sessions.first() {
        for limit in policy.source().limits() {
            let known = before.source().limits().iter().any(|other| other.rate() == limit.rate());
            if let (false, Some(need)) = (known, session::shortfall(limit.rate())) {
                let (name, rate) = (limit.name(), limit.rate());
                sentences.push(format!("limit {name} \"{rate}\" is below {need}, and {first}"));
            }
        }
    }
    if let Some(first) = sessions.first() {
        sentences.extend(too_small("[host] total", policy.host().totals(), before.host().totals(), first));
    }
    let served: Vec<_> =
        sessions.iter().map(|one| (*one, services_of(policy, one), services_of(before, one))).collect();
    for service in policy.services().iter() {
        // Sessions to other addresses may have had other services before: the first one that is worse off is named.
        let worse_off =
            served.iter().filter(|(_, now, _)| now.contains(&service)).find_map(|(one, _, earlier)| {
                let known = |of: fn(&Service) -> &[Rate]| -> Vec<Rate> {
                    earlier.iter().flat_map(|service| of(service)).copied().collect()
                };
                let what = |list: &str| format!("service {}: {list}", service.name());
                let (per_source, total) = (known(Service::per_source), known(Service::totals));
                let mut found = too_small(&what("per_source"), service.per_source(), &per_source, one);
                found.extend(too_small(&what("total"), service.totals(), &total, one));
                (!found.is_empty()).then_some(found)
            });
        sentences.extend(worse_off.unwrap_or_default());
    }
    // Users can have a great many prefixes: each session is looked for once.
    let whose = |policy: &'p Policy, one: &Vital| policy.users().of(&Prefix::masked(one.address, u8::MAX));
    let owned: Vec<(&Vital, &User)> =
        sessions.iter().filter_map(|one| Some((*one, whose(policy, one)?))).collect();
    for user in policy.users().iter() {
        let Some((first, _)) = owned.iter().find(|(_, owner)| std::ptr::eq(*owner, user)) else { continue };
        let known = whose(before, first).map_or(&[][..], User::network);
        sentences.extend(too_small(&format!("user {}: network", user.name()), user.network(), known, first));
    }
    sentences
}

fn too_small(what: &str, rates: &[Rate], known: &[Rate], who: &Vital) -> Vec<String> {
    let new = rates.iter().filter(|rate| !known.contains(rate));
    let below =
        |rate: &Rate| Some(format!("{what} \"{rate}\" is below {}, and {who}", session::shortfall(rate)?));
    new.filter_map(below).collect()
}

/// What the packets of a session are for. Of an operator the address that they are connected to is not known: it may be any service there.
fn services_of<'p>(policy: &'p Policy, one: &Vital) -> Vec<&'p Service> {
    match one.role {
        LockoutRole::SshSession { local, port } => {
            policy.services().of(Protocol::Tcp, port, local).into_iter().collect()
        }
        LockoutRole::Operator | LockoutRole::Own { .. } | LockoutRole::Gateway => {
            policy.services().iter().filter(|service| service.has_port(Protocol::Tcp, SSH_PORT)).collect()
        }
    }
}

#[cfg(test)]
mod tests;
