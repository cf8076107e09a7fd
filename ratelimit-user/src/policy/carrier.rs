//! The protocol of a service: one with ports, one without, or fragments of any protocol.

use std::{fmt, ops::Range};

use ratelimit_common::abi::service::{PORT_SLOTS, PROTOCOL_SLOTS, Protocol, protocol_slot};

/// What carries the packets of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// TCP or UDP: the port determines the service.
    Ports(Protocol),
    /// The IP protocol of this number, whose ports, if it has any, are not read.
    Number(u8),
    /// Fragments without a transport header whose protocol has no service of its own.
    Fragments,
}

/// Protocols with a name in the policy, other than TCP and UDP.
const NAMED: [(&str, u8); 13] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("sit", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];
const FRAGMENTS: &str = "fragments";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The slot of the first protocol: in one row of slots, protocols follow the ports.
const PROTOCOLS_AT: u32 = PORT_SLOTS as u32;
/// The first slot after the row of ports and protocols.
pub(super) const END: u32 = PROTOCOLS_AT + PROTOCOL_SLOTS as u32;

impl Carrier {
    /// The carrier of this name in the policy.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "tcp" => Some(Self::Ports(Protocol::Tcp)),
            "udp" => Some(Self::Ports(Protocol::Udp)),
            FRAGMENTS => Some(Self::Fragments),
            _ => NAMED.iter().find(|(name, _)| *name == word).map(|(_, number)| Self::Number(*number)),
        }
    }

    /// The carrier for an IP protocol number.
    pub fn numbered(number: u8) -> Self {
        match number {
            TCP => Self::Ports(Protocol::Tcp),
            UDP => Self::Ports(Protocol::Udp),
            number => Self::Number(number),
        }
    }

    /// All names of carriers, for an error sentence.
    pub fn names() -> String {
        let others = NAMED.iter().map(|(name, _)| *name);
        let all: Vec<&str> = ["tcp", "udp"].into_iter().chain(others).chain([FRAGMENTS]).collect();
        all.join(", ")
    }

    /// Whether the carrier has ports.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::Ports(_))
    }

    /// The slots at which packets of this carrier are looked up; none for carriers with ports. `taken` are the protocol numbers of other services.
    pub(super) fn slots(self, taken: &[u8]) -> Vec<Range<u32>> {
        let one = |number: u8, later: bool| {
            let slot = PROTOCOLS_AT + protocol_slot(number, later);
            slot..slot + 1
        };
        match self {
            Self::Ports(_) => Vec::new(),
            Self::Number(number) => vec![one(number, false), one(number, true)],
            Self::Fragments => (0..=u8::MAX)
                .filter(|number| !taken.contains(number))
                .map(|number| one(number, true))
                .collect(),
        }
    }
}

impl Carrier {
    /// A slot among protocols that no other carrier can use. TCP's slot is free for fragments, because TCP only has services by port.
    pub(super) fn surest_slot(self) -> u32 {
        PROTOCOLS_AT
            + match self {
                Self::Number(number) => protocol_slot(number, false),
                Self::Ports(_) | Self::Fragments => protocol_slot(TCP, true),
            }
    }
}

impl From<Protocol> for Carrier {
    fn from(protocol: Protocol) -> Self {
        Self::Ports(protocol)
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(Protocol::Tcp) => f.write_str("tcp"),
            Self::Ports(Protocol::Udp) => f.write_str("udp"),
            Self::Fragments => f.write_str(FRAGMENTS),
            Self::Number(number) => match NAMED.iter().find(|(_, known)| known == number) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{number}"),
            },
        }
    }
}

/// A slot that services can claim; its display names the port or the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierPlace(pub(super) u32);

impl fmt::Display for CarrierPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(PROTOCOLS_AT) {
            None => write!(f, "port {}", self.0 as u16),
            // A protocol has two slots: the first is named by the protocol, the second is for its fragments.
            Some(slot) if slot <= u32::from(u8::MAX) => write!(f, "protocol {}", Carrier::Number(slot as u8)),
            Some(_) => f.write_str(FRAGMENTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_a_number_and_is_said_of_it() {
        for (name, number) in NAMED {
            assert_eq!(Carrier::named(name), Some(Carrier::Number(number)));
            assert_eq!(Carrier::numbered(number).to_string(), name);
        }
        assert_eq!(Carrier::numbered(6), Carrier::Ports(Protocol::Tcp));
        assert_eq!(Carrier::numbered(17).to_string(), "udp");
        assert_eq!(Carrier::numbered(99).to_string(), "99");
        assert_eq!(Carrier::named("GRE"), None);
    }

    #[test]
    fn fragments_are_whatever_no_protocol_has_and_never_whole_packets() {
        let slots = Carrier::Fragments.slots(&[47]);
        assert_eq!(slots.len(), 255);
        assert!(slots.iter().all(|slot| slot.start >= PROTOCOLS_AT + 256 && slot.end <= END));
        let gre = Carrier::Number(47).slots(&[]);
        assert!(slots.iter().all(|slot| !gre.contains(slot)));
    }
}
