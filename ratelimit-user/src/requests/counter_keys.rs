//! The keys that one request is counted under.

use std::net::IpAddr;

use super::{
    allowance::Allowance,
    api_rules::{ApiRules, Prefixes},
    key::{Hash, KeyWriter, MAX_COUNTER_KEYS},
    request::{BadRequest, Request},
};
use crate::policy::KeyPart;

/// One key of one request.
#[derive(Clone, Copy, Debug)]
pub struct CounterKey<'r> {
    /// What the key may have.
    pub allowance: &'r Allowance,
    /// The hash of the key's parts.
    pub hash: Hash,
    /// The parts of the request that the key is made of.
    pub subject: Subject<'r>,
}

/// The parts of a request that a key is made of.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'r> {
    /// The parts that the API names.
    Api(&'r ApiRules),
    /// The user, over all APIs. Requests without a user name count as one user.
    User,
    /// The address, for logins.
    Ip(&'r ApiRules),
    /// The user and the address, for logins.
    UserAndIp(&'r ApiRules),
}

/// All counter keys of one request.
#[derive(Debug)]
pub struct CounterKeys<'r> {
    /// The API that the request is for.
    pub api: &'r ApiRules,
    /// The keys, followed by `None`.
    list: [Option<CounterKey<'r>>; MAX_COUNTER_KEYS],
    count: usize,
    /// For a login, the key that remembers whether the user has logged in from this address.
    pub known: Option<KnownAddress<'r>>,
}

/// A user and an address it may have logged in from.
#[derive(Clone, Copy, Debug)]
pub struct KnownAddress<'r> {
    /// The hash of user and address.
    pub hash: Hash,
    /// For how many microseconds a login makes the address known.
    pub for_us: u64,
    /// The allowance that all addresses share from which this user has not logged in.
    pub of_other_addresses: &'r Allowance,
}

impl<'r> CounterKeys<'r> {
    /// Makes an empty list of keys, for a request for this API.
    pub(super) fn of(api: &'r ApiRules) -> Self {
        Self { api, list: [None; MAX_COUNTER_KEYS], count: 0, known: None }
    }

    /// Adds a counter key, unless its allowance has no limits.
    #[inline]
    pub(super) fn push(&mut self, counter: CounterKey<'r>) {
        if counter.allowance.limits.is_empty() {
            return;
        }
        if let Some(place) = self.list.get_mut(self.count) {
            *place = Some(counter);
            self.count += 1;
        }
    }

    /// Returns the counter keys. Most requests have one key, and places behind it are not looked at.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &CounterKey<'r>> {
        self.list.iter().take(self.count).flatten()
    }

    /// Returns the counter keys that `is_meant` selects.
    pub fn only(&self, mut is_meant: impl FnMut(&CounterKey<'r>) -> bool) -> Self {
        let mut some = Self { known: self.known, ..Self::of(self.api) };
        self.iter().filter(|counter| is_meant(counter)).for_each(|counter| some.push(*counter));
        some
    }

    /// Leaves out the counter key that is shared by addresses from which the user has not logged in.
    pub fn forget_other_addresses(&mut self) {
        let Some(known) = self.known else { return };
        *self = self.only(|counter| !std::ptr::eq(counter.allowance, known.of_other_addresses));
    }
}

/// Writes the parts of a request that a key is made of.
#[inline]
pub fn write(
    subject: Subject<'_>,
    request: &Request<'_>,
    key: &mut impl KeyWriter,
) -> Result<(), BadRequest> {
    let missing = |part: &str| BadRequest::Missing { part: part.to_owned(), api: shortened(request.api) };
    let ip = |api: &ApiRules| request.ip.map(|ip| network(ip, api.prefixes)).ok_or_else(|| missing("ip"));
    match subject {
        Subject::User => name(request.user, key),
        Subject::Ip(api) => key.address(ip(api)?),
        Subject::UserAndIp(api) => {
            name(request.user, key);
            key.address(ip(api)?);
        }
        Subject::Api(api) => {
            for part in &api.key {
                match part {
                    KeyPart::User => name(request.user, key),
                    KeyPart::Ip => key.address(ip(api)?),
                    KeyPart::Api => key.text(request.api),
                    KeyPart::Other(part) => {
                        let given = request.parts.iter().find(|(given, _)| given == part);
                        name(given.map_or("", |(_, value)| value), key);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Writes a name. Requests without a name count under one key: without a key they would have no limit.
fn name(text: &str, key: &mut impl KeyWriter) {
    if text.is_empty() { key.nobody() } else { key.text(text) }
}

/// Returns as much of a name as fits into a sentence.
pub(super) fn shortened(name: &str) -> String {
    const SHOWN: usize = 64;
    name.chars().take(SHOWN).collect()
}

/// Returns the network that an address is counted as. IPv4 in IPv6 is IPv4.
fn network(ip: IpAddr, prefixes: Prefixes) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefixes.ipv4.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefixes.ipv6.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}
