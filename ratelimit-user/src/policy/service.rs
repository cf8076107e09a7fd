//! One service: its protocol, ports, destinations and limits.

use std::{
    collections::BTreeSet,
    ops::{Range, RangeInclusive},
};

use ratelimit_common::{
    abi::{
        self, MAX_LIMITS, Meter,
        destination::MAX_DESTINATIONS,
        service::{Challenge, KNOWN_PARTS, MAX_SERVICES, OnLimit, PORT_SLOTS, Protocol, port_slot},
    },
    limit::{
        manner::Throttle,
        rate::{Rate, RateError},
    },
};

use super::{
    Prefix,
    carrier::{Carrier, CarrierPlace},
    fields::{Fields, followed, words},
};

/// One service: a protocol, ports if it has any, and limits on everything that is sent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    name: String,
    carrier: Carrier,
    ports: Vec<RangeInclusive<u16>>,
    destinations: Vec<Prefix>,
    totals: Vec<Rate>,
    syn_cookies: Option<Rate>,
    per_source: Vec<Rate>,
    on_limit: OnLimit,
    dscp: u8,
    challenge: Challenge,
    remembers_clients: bool,
    known_parts: u64,
}

/// Why services are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A service without a name, or with a name that is hard to type.
    #[error("service name {name:?} is not one; use letters, digits, - and _, at most 32")]
    Name {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        name: String,
    },
    /// Two services of one name.
    #[error("service {name:?} is there twice; give one another name")]
    Twice {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// The rejected value, as the policy file has it.
        name: String,
    },
    /// More services than the maps hold.
    #[error("{count} services are more than there can be; use at most {MAX_SERVICES}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A service that matches no packet.
    #[error("service {name:?} has no ports; write match = {{ protocol = \"udp\", ports = [53] }}")]
    NoPorts {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
    },
    /// Ports of a protocol that has none.
    #[error(
        "service {name:?}: {carrier} has no ports; leave out ports, or use protocol = \"tcp\" or \"udp\""
    )]
    NotForPorts {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The protocol of the service.
        carrier: Carrier,
    },
    /// A port or a protocol that two services claim.
    #[error("{place} of service {name:?} belongs to service {other:?} already; name it in one of them")]
    Overlap {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The port or protocol.
        place: CarrierPlace,
        /// The service that claims the place already.
        other: String,
    },
    /// A destination that two services claim at one port.
    #[error(
        "destination {prefix} at {place} of service {name:?} belongs to service {other:?} already; name it in one of them"
    )]
    SameDestination {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Place of the destination among the destinations of the service.
        destination: usize,
        /// Name of the service.
        name: String,
        /// The first port, or the protocol.
        place: CarrierPlace,
        /// The destination that two services have.
        prefix: Prefix,
        /// The service that has the destination already.
        other: String,
    },
    /// More destinations than the map holds.
    #[error(
        "{count} destinations of services that share ports are more than there can be; use at most {MAX_DESTINATIONS}"
    )]
    TooManyDestinations {
        /// Number of destinations, counted once for each group of ports with equal services.
        count: usize,
    },
    /// A total in a meter other than packets and bytes.
    #[error("service {name:?}: a total in {} is not possible; use packets or bytes", .meter.name())]
    Meter {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The rejected value, as the policy file has it.
        meter: Meter,
    },
    /// A total or a threshold that is not a hard token bucket.
    #[error(
        "service {name:?}: \"{rate}\" cannot be the limit of a total or of cookies, which are hard token buckets; leave out all behind the burst"
    )]
    Manner {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The rejected value, as the policy file has it.
        rate: Rate,
    },
    /// A threshold that does not count SYNs.
    #[error("service {name:?}: syn_cookies in {} is not possible; write it in syns, \"1000 syns/s\"", .meter.name())]
    CookieMeter {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The rejected value, as the policy file has it.
        meter: Meter,
    },
    /// A SYN threshold for a service that is not spoken over TCP.
    #[error("service {name:?}: only TCP has SYNs; remove syn_cookies or use protocol = \"tcp\"")]
    CookieProtocol {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
    },
    /// A threshold that cannot be held.
    #[error("service {name:?}: syn_cookies: {error}")]
    CookieRate {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// Why the limit cannot be held.
        error: RateError,
    },
    /// More limits per source than a bucket has words.
    #[error(
        "service {name:?}: {count} limits per source are more than there can be; use at most {MAX_LIMITS}, a soft or elastic one counts as two"
    )]
    TooManyLimits {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// How many words the limits take.
        count: usize,
    },
    /// A limit that cannot be held.
    #[error("service {name:?}: limit \"{rate}\": {error}")]
    Rate {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The rejected value, as the policy file has it.
        rate: Rate,
        /// Why the limit cannot be held.
        error: RateError,
    },
    /// Two totals of one meter.
    #[error("service {name:?} has two totals in {}; use one", .meter.name())]
    TwoTotals {
        /// Place of the service in the list of the file, from 0.
        index: usize,
        /// Name of the service.
        name: String,
        /// The meter that two totals have.
        meter: Meter,
    },
}

const MAX_NAME: usize = 32;
/// The DSCP class of marked packets unless the policy says otherwise: CS1, which networks treat as less than best effort.
pub const DEFAULT_DSCP: u8 = 8;

impl Service {
    /// A service, not checked yet: [`Services::new`](super::Services::new) checks it.
    pub fn new(
        name: String,
        carrier: impl Into<Carrier>,
        ports: Vec<RangeInclusive<u16>>,
        totals: Vec<Rate>,
    ) -> Self {
        Self {
            name,
            carrier: carrier.into(),
            ports,
            destinations: Vec::new(),
            totals,
            syn_cookies: None,
            per_source: Vec::new(),
            on_limit: OnLimit::Drop,
            dscp: DEFAULT_DSCP,
            challenge: Challenge::None,
            remembers_clients: true,
            known_parts: KNOWN_PARTS,
        }
    }

    /// Sets the rate of SYNs above which SYNs are answered with cookies.
    pub fn with_syn_cookies(self, syn_cookies: Option<Rate>) -> Self {
        Self { syn_cookies, ..self }
    }

    /// Replaces the limits on all packets to the service together.
    pub fn with_totals(self, totals: Vec<Rate>) -> Self {
        Self { totals, ..self }
    }

    /// Restricts the service to packets to these prefixes; with an empty list it gets the packets that no other service of its ports claims.
    pub fn with_destinations(self, destinations: Vec<Prefix>) -> Self {
        Self { destinations, ..self }
    }

    /// Replaces the limits on what one source may send to the service.
    pub fn with_per_source(self, per_source: Vec<Rate>) -> Self {
        Self { per_source, ..self }
    }

    /// Replaces what happens to packets that a limit refuses.
    pub fn with_on_limit(self, on_limit: OnLimit) -> Self {
        Self { on_limit, ..self }
    }

    /// Replaces the DSCP class of marked packets.
    pub fn with_dscp(self, dscp: u8) -> Self {
        Self { dscp, ..self }
    }

    /// Replaces the answer to queries that a spent total refuses.
    pub fn with_challenge(self, challenge: Challenge) -> Self {
        Self { challenge, ..self }
    }

    /// The answer to queries that a spent total refuses.
    pub fn challenge(&self) -> Challenge {
        self.challenge
    }

    /// Replaces whether known clients come first under the total, and how many parts of it they may have for one of newcomers.
    pub fn with_known_clients(self, remembers_clients: bool, known_parts: u64) -> Self {
        Self { remembers_clients, known_parts, ..self }
    }

    /// Whether known clients come first under the total.
    pub fn remembers_clients(&self) -> bool {
        self.remembers_clients
    }

    /// How many parts of the total known clients may have for one of newcomers.
    pub fn known_parts(&self) -> u64 {
        self.known_parts
    }

    /// What of the service sends packets, in words: cookies, rejections, challenges.
    pub fn answers(&self) -> impl Iterator<Item = &'static str> {
        let answers = [
            (self.syn_cookies.is_some(), "SYN cookies"),
            (self.on_limit == OnLimit::Reject, "on_limit = \"reject\""),
            (self.challenge != Challenge::None, "challenge"),
        ];
        answers.into_iter().filter_map(|(is_set, key)| is_set.then_some(key))
    }

    /// The DSCP class of marked packets, 0 to 63.
    pub fn dscp(&self) -> u8 {
        self.dscp
    }

    /// Limits on what one source may send to the service.
    pub fn per_source(&self) -> &[Rate] {
        &self.per_source
    }

    /// What happens to a packet that a limit refuses.
    pub fn on_limit(&self) -> OnLimit {
        self.on_limit
    }

    /// The rate of SYNs above which SYNs are answered with cookies.
    pub fn syn_cookies(&self) -> Option<&Rate> {
        self.syn_cookies.as_ref()
    }

    /// Name of the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The protocol of the service.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Ports of the service, as in the policy.
    pub fn ports(&self) -> &[RangeInclusive<u16>] {
        &self.ports
    }

    /// The destinations of the service, as in the policy; an empty list means every destination that no other service of its ports claims.
    pub fn destinations(&self) -> &[Prefix] {
        &self.destinations
    }

    /// Whether the service has this port, for whatever destination.
    pub fn has_port(&self, protocol: Protocol, port: u16) -> bool {
        self.carrier == Carrier::Ports(protocol) && self.ports.iter().any(|range| range.contains(&port))
    }

    /// Totals: limits on all packets to the service together.
    pub fn totals(&self) -> &[Rate] {
        &self.totals
    }

    /// The service in words, for `diff`.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = followed([("match", matching(self))]);
        for rate in &self.totals {
            let field = match rate.meter {
                Meter::Bytes => "total in bytes",
                _ => "total in packets",
            };
            fields.insert(field.into(), (rate.to_string(), false));
        }
        if let Some(rate) = &self.syn_cookies {
            fields.insert("syn_cookies".into(), (rate.to_string(), false));
        }
        if !self.per_source.is_empty() {
            fields.insert("per_source".into(), (words(&self.per_source), false));
        }
        if self.on_limit != OnLimit::Drop {
            fields.insert("on_limit".into(), (self.on_limit.name().to_owned(), false));
        }
        if self.on_limit == OnLimit::Mark {
            fields.insert("dscp".into(), (self.dscp.to_string(), false));
        }
        if !self.remembers_clients {
            fields.insert("known".into(), ("false".to_owned(), false));
        }
        if self.known_parts != KNOWN_PARTS {
            fields.insert("newcomers".into(), (format!("1/{}", self.known_parts + 1), false));
        }
        if self.challenge != Challenge::None {
            fields.insert("challenge".into(), (self.challenge.name().to_owned(), false));
        }
        fields
    }

    /// The slots at which packets of the service are looked up: ports first, all protocols behind them. `taken` are the protocol numbers of other services.
    pub(super) fn slots(&self, taken: &[u8]) -> Vec<Range<u32>> {
        let Carrier::Ports(protocol) = self.carrier else { return self.carrier.slots(taken) };
        let slots = |range: &RangeInclusive<u16>| {
            port_slot(protocol, *range.start())..port_slot(protocol, *range.end()) + 1
        };
        self.ports.iter().map(slots).collect()
    }

    /// The entries of a policy in force at the slots that only this service could have.
    pub fn entries_in(&self, in_force: &abi::Policy) -> Vec<u32> {
        let entry = |slot: u32| match (slot as usize).checked_sub(PORT_SLOTS) {
            None => in_force.ports[slot as usize],
            Some(slot) => in_force.protocols[slot],
        };
        let slots: Vec<u32> = match self.carrier {
            Carrier::Ports(_) => self.slots(&[]).into_iter().flatten().collect(),
            // Fragments of this protocol may have been counted for the service for fragments, or the reverse, so only the surest slot counts.
            Carrier::Number(_) | Carrier::Fragments => vec![self.carrier.surest_slot()],
        };
        slots.into_iter().map(|slot| u32::from(entry(slot))).collect()
    }

    pub(super) fn problem(&self, index: usize) -> Option<ServiceError> {
        let typeable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.chars().all(typeable) {
            return Some(ServiceError::Name { index, name: self.name.clone() });
        }
        match (self.carrier.has_ports(), self.ports.is_empty()) {
            (true, true) => return Some(ServiceError::NoPorts { index, name: self.name.clone() }),
            (false, false) => {
                let (name, carrier) = (self.name.clone(), self.carrier);
                return Some(ServiceError::NotForPorts { index, name, carrier });
            }
            _ => {}
        }
        if let Some(rate) =
            self.totals.iter().find(|rate| !matches!(rate.meter, Meter::Packets | Meter::Bytes))
        {
            return Some(ServiceError::Meter { index, name: self.name.clone(), meter: rate.meter });
        }
        let count = Rate::places(&self.per_source);
        if count > MAX_LIMITS {
            return Some(ServiceError::TooManyLimits { index, name: self.name.clone(), count });
        }
        let is_plain =
            |rate: &&Rate| !rate.manner.algorithm.is_window() && rate.manner.throttle == Throttle::Hard;
        if let Some(rate) = self.totals.iter().chain(&self.syn_cookies).find(|rate| !is_plain(rate)) {
            return Some(ServiceError::Manner { index, name: self.name.clone(), rate: *rate });
        }
        for rate in self.per_source.iter().chain(&self.totals) {
            if let Err(error) = rate.limit() {
                return Some(ServiceError::Rate { index, name: self.name.clone(), rate: *rate, error });
            }
        }
        if let Some(rate) = &self.syn_cookies {
            let name = self.name.clone();
            if self.carrier != Carrier::Ports(Protocol::Tcp) {
                return Some(ServiceError::CookieProtocol { index, name });
            }
            if rate.meter != Meter::Syns {
                return Some(ServiceError::CookieMeter { index, name, meter: rate.meter });
            }
            if let Err(error) = rate.limit() {
                return Some(ServiceError::CookieRate { index, name, error });
            }
        }
        let repeated =
            |(at, rate): (usize, &Rate)| self.totals[..at].iter().any(|other| other.meter == rate.meter);
        let twice = self.totals.iter().enumerate().find(|pair| repeated(*pair));
        twice.map(|(_, rate)| ServiceError::TwoTotals { index, name: self.name.clone(), meter: rate.meter })
    }
}

impl ServiceError {
    /// Place of the service in the list of services, from 0.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Name { index, .. }
            | Self::Twice { index, .. }
            | Self::NoPorts { index, .. }
            | Self::NotForPorts { index, .. }
            | Self::Overlap { index, .. }
            | Self::SameDestination { index, .. }
            | Self::Meter { index, .. }
            | Self::CookieMeter { index, .. }
            | Self::CookieProtocol { index, .. }
            | Self::CookieRate { index, .. }
            | Self::Manner { index, .. }
            | Self::TooManyLimits { index, .. }
            | Self::Rate { index, .. }
            | Self::TwoTotals { index, .. } => Some(*index),
            Self::TooMany { .. } | Self::TooManyDestinations { .. } => None,
        }
    }
}

/// What a service matches, as text: `udp 53, 5300-5399 to 192.0.2.0/24`, `gre`. Services with equal ports and destinations have equal texts, in whatever form
/// the file has them.
fn matching(service: &Service) -> String {
    let carrier = service.carrier();
    let mut ranges: Vec<(u16, u16)> =
        service.ports().iter().map(|range| (*range.start(), *range.end())).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = (*end).max(last),
            _ => merged.push((first, last)),
        }
    }
    let words = merged.iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        },
    );
    let ports = words.collect::<Vec<_>>().join(", ");
    let destinations: BTreeSet<&Prefix> = service.destinations().iter().collect();
    let destinations: Vec<String> = destinations.into_iter().map(ToString::to_string).collect();
    let to = if destinations.is_empty() { "" } else { " to " };
    let space = if ports.is_empty() { "" } else { " " };
    format!("{carrier}{space}{ports}{to}{}", destinations.join(", "))
}
