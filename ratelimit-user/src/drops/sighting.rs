//! A drop event with names for its numbers.

use std::net::IpAddr;

use ratelimit_common::abi::{DropEvent, Reason, SourceKey, counter::Fate, service::NO_SERVICE};
use serde::{Deserialize, Serialize};

use crate::{
    compile::Places,
    moment,
    policy::{Policy, Prefix},
};

/// A refused packet that the kernel program has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When the packet was refused: nanoseconds of the kernel's monotonic clock.
    pub time_ns: u64,
    /// When the packet was refused, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The source that sent the packet, as a prefix.
    pub source: Prefix,
    /// The reason that the packet was refused for.
    pub reason: Reason,
    /// The fate of the packet.
    pub fate: Fate,
    /// The name of the packet's service.
    pub service: Option<String>,
    /// Destination port; 0 if the packet has none.
    pub port: u16,
    /// Length of the frame in bytes.
    pub len: u32,
}

/// What is needed to name the numbers of an event.
#[derive(Clone, Copy, Debug)]
pub struct Telling<'t> {
    /// The policy in force.
    pub policy: &'t Policy,
    /// The names of services by index.
    pub services: &'t Places,
    /// Now, in nanoseconds of the kernel's monotonic clock.
    pub now_ns: u64,
    /// Now, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// A refused packet for people and scripts: fields are added, never renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// When the packet was refused: UTC, RFC 3339.
    pub at: String,
    /// The source that sent the packet: an address, or the prefix of a source.
    pub source: String,
    /// The reason, by its name in `stats`.
    pub reason: String,
    /// What happened to the packet: `dropped`, `would_drop` on trial, `marked` or `rejected`.
    pub fate: String,
    /// The name of the packet's service.
    pub service: Option<String>,
    /// The protocol, by its name in policies; in `watch` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Source port, if the packet has one; in `watch` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The address that the packet was sent to; in `watch` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Destination port, if the packet has one.
    pub port: Option<u16>,
    /// Length of the frame in bytes.
    pub bytes: u32,
}

impl Sighting {
    /// The sighting of an event.
    pub fn of(event: &DropEvent, telling: &Telling<'_>) -> Self {
        let octets = SourceKey { hi: event.hi, lo: event.lo }.octets();
        let address = match event.family {
            0 => IpAddr::from([octets[12], octets[13], octets[14], octets[15]]),
            _ => IpAddr::from(octets),
        };
        let service = telling.services.iter().find(|(index, _)| {
            event.service != NO_SERVICE && event.service.checked_sub(1) == u32::try_from(*index).ok()
        });
        Self {
            time_ns: event.time_ns,
            unix_ms: telling.unix_ms.saturating_sub(telling.now_ns.saturating_sub(event.time_ns) / 1_000_000),
            source: telling.policy.source().around(address),
            reason: Reason::from_code(event.reason),
            fate: Fate::ALL.get(event.fate as usize).copied().unwrap_or(Fate::Decided),
            service: service.map(|(_, name)| name.to_owned()),
            port: event.port as u16,
            len: event.len,
        }
    }

    /// The packet for people and scripts.
    pub fn dropped(&self) -> Dropped {
        Dropped {
            at: moment::utc_ms(self.unix_ms),
            source: self.source.shown(),
            reason: self.reason.name().to_owned(),
            fate: fate(self.fate).to_owned(),
            service: self.service.clone(),
            protocol: None,
            source_port: None,
            destination: None,
            port: (self.port != 0).then_some(self.port),
            bytes: self.len,
        }
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Decided => "dropped",
        Fate::Waived => "would_drop",
        Fate::Marked => "marked",
        Fate::Rejected => "rejected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const POLICY: &str = "[source]\nlimits = [\"10 packets/s\"]\nipv4_prefix = 24\n\
        [[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\n\
        [[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\ntotal = [\"10 packets/s\"]\n";

    fn dropped(event: &DropEvent) -> Dropped {
        let policy = config::parse(POLICY, "policy.toml").unwrap().policy;
        let services = Places::after(&Places::default(), ["web", "dns"].into_iter(), 2);
        let telling = Telling {
            policy: &policy,
            services: &services,
            now_ns: 9_000_000_000,
            unix_ms: 1_709_210_096_500,
        };
        Sighting::of(event, &telling).dropped()
    }

    fn event(octets: [u8; 16], family: u32) -> DropEvent {
        let key = SourceKey::from_octets(octets);
        DropEvent {
            time_ns: 8_750_000_000,
            hi: key.hi,
            lo: key.lo,
            reason: Reason::ServiceTotal as u32,
            fate: Fate::Rejected as u32,
            // One more than the service's index; names get indices in alphabetical order.
            service: 1,
            port: 53,
            len: 60,
            family,
        }
    }

    #[test]
    fn numbers_become_names_and_the_time_is_that_of_the_packet_and_not_of_its_reading() {
        let v4 = event([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 203, 0, 113, 0], 0);
        let expected = Dropped {
            at: "2024-02-29T12:34:56.250Z".to_owned(),
            source: "203.0.113.0/24".to_owned(),
            reason: "service_total".to_owned(),
            fate: "rejected".to_owned(),
            service: Some("dns".to_owned()),
            protocol: None,
            source_port: None,
            destination: None,
            port: Some(53),
            bytes: 60,
        };
        assert_eq!(dropped(&v4), expected);
        let v6 = event([0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1);
        assert_eq!(dropped(&v6).source, "2001:db8:0:1::/64");
    }

    #[test]
    fn what_is_for_no_service_and_has_no_port_says_so() {
        let none = DropEvent { service: NO_SERVICE, port: 0, ..event([9; 16], 1) };
        assert_eq!((dropped(&none).service, dropped(&none).port), (None, None));
        // A service that was removed before the event was read.
        let gone = DropEvent { service: 7, ..event([9; 16], 1) };
        assert_eq!(dropped(&gone).service, None);
    }
}
