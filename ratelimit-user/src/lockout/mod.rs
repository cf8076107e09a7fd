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
    abi::{list::ALLOWED, service::Protocol},
    limit::rate::Rate,
};

use crate::{
    compile::lists::{Lists, Prefix},
    policy::{Policy, Service, User},
};
pub use discover::{SSH_PORT, discover};

/// An address that matters, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vital {
    /// The address.
    pub address: IpAddr,
    /// Why it matters.
    pub role: Role,
}

/// Why an address matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The far end of a connection to this host's sshd.
    SshSession {
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

impl fmt::Display for Vital {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match &self.role {
            Role::SshSession { port } => write!(f, "{address} has a live SSH session (to port {port})"),
            Role::Operator => write!(f, "you are connected from {address}"),
            Role::Own { interface } => write!(f, "{address} is this host's own address (on {interface})"),
            Role::Gateway => write!(f, "{address} is the default gateway"),
        }
    }
}

/// The addresses of `prefix` that matter and are blocked once the lists are these.
pub fn cut_off<'v>(prefix: &Prefix, lists: &Lists, now_ns: u64, vital: &'v [Vital]) -> Vec<&'v Vital> {
    let cut = |one: &&Vital| {
        let address = Prefix::masked(one.address, u8::MAX);
        prefix.covers(&address) && is_blocked(&address, lists, now_ns) && !is_allowed(&address, lists)
    };
    vital.iter().filter(cut).collect()
}

/// What of a policy leaves too little for somebody's session, as sentences. What `before` has already is no news.
pub fn starved<'p>(policy: &'p Policy, before: &'p Policy, lists: &Lists, vital: &[Vital]) -> Vec<String> {
    let remote = |one: &&Vital| {
        matches!(one.role, Role::SshSession { .. } | Role::Operator)
            && !is_allowed(&Prefix::masked(one.address, u8::MAX), lists)
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
    let port = |one: &Vital| if let Role::SshSession { port } = one.role { port } else { SSH_PORT };
    let mut further = |what: String, rates: &[Rate], known: &[Rate], who: &Vital| {
        for rate in rates.iter().filter(|rate| !known.contains(rate)) {
            if let Some(need) = session::shortfall(rate) {
                sentences.push(format!("{what} \"{rate}\" is below {need}, and {who}"));
            }
        }
    };
    for service in policy.services().iter() {
        let Some(first) = sessions.iter().find(|one| serves_tcp(service, port(one))) else { continue };
        let same = before.services().iter().find(|other| serves_tcp(other, port(first)));
        let (name, known) = (service.name(), |of: fn(&Service) -> &[Rate]| same.map_or(&[][..], of));
        further(
            format!("service {name}: per_source"),
            service.per_source(),
            known(Service::per_source),
            first,
        );
        further(format!("service {name}: total"), service.totals(), known(Service::totals), first);
    }
    for user in policy.users().iter() {
        let whose =
            |policy: &'p Policy, one: &Vital| policy.users().of(&Prefix::masked(one.address, u8::MAX));
        let Some(first) = sessions.iter().find(|one| whose(policy, one) == Some(user)) else { continue };
        let known = whose(before, first).map_or(&[][..], User::network);
        further(format!("user {}: network", user.name()), user.network(), known, first);
    }
    sentences
}

fn serves_tcp(service: &Service, port: u16) -> bool {
    service.protocol() == Protocol::Tcp && service.ports().iter().any(|range| range.contains(&port))
}

/// The allow list wins over every block, however wide or narrow either is.
fn is_allowed(address: &Prefix, lists: &Lists) -> bool {
    lists.iter().any(|(prefix, entry)| entry.own_allowed == ALLOWED && prefix.covers(address))
}

fn is_blocked(address: &Prefix, lists: &Lists, now_ns: u64) -> bool {
    lists.iter().any(|(prefix, entry)| entry.own_blocked_until_ns > now_ns && prefix.covers(address))
}

#[cfg(test)]
mod tests;
