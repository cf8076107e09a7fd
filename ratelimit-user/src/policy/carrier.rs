//! What the packets of a service are carried by: a protocol with ports, one without, or fragments of whatever it is.

use std::{fmt, ops::Range};

use ratelimit_common::abi::service::{PORT_SLOTS, PROTOCOL_SLOTS, Protocol, protocol_slot};

/// What a service is spoken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// TCP or UDP: the port says whose a packet is.
    Ports(Protocol),
    /// The IP protocol of this number, which has no ports that we know.
    Number(u8),
    /// Pieces of packets that have no transport header, and no other service is for.
    Fragments,
}

/// Protocols that have names: those that hosts meet.
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
/// Where protocols are in one row with ports.
const PROTOCOLS_AT: u32 = PORT_SLOTS as u32;
/// The end of the row.
pub(super) const END: u32 = PROTOCOLS_AT + PROTOCOL_SLOTS as u32;

impl Carrier {
    /// The protocol of this name.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "tcp" => Some(Self::Ports(Protocol::Tcp)),
            "udp" => Some(Self::Ports(Protocol::Udp)),
            FRAGMENTS => Some(Self::Fragments),
            _ => NAMED.iter().find(|(name, _)| *name == word).map(|(_, number)| Self::Number(*number)),
        }
    }

    /// The protocol of this number.
    pub fn numbered(number: u8) -> Self {
        match number {
            TCP => Self::Ports(Protocol::Tcp),
            UDP => Self::Ports(Protocol::Udp),
            number => Self::Number(number),
        }
    }

    /// Every name there is, for a sentence.
    pub fn names() -> String {
        let others = NAMED.iter().map(|(name, _)| *name);
        let all: Vec<&str> = ["tcp", "udp"].into_iter().chain(others).chain([FRAGMENTS]).collect();
        all.join(", ")
    }

    /// Whether ports say whose a packet is.
    pub fn has_ports(self) -> bool {
        matches!(self, Self::Ports(_))
    }

    /// Where packets without ports are looked up, in one row with ports. `taken` are numbers that other services are for.
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
    /// The place among protocols that no other carrier ever has: TCP has no service but by its ports.
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

/// A place that services can be for, in the words of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierPlace(pub(super) u32);

impl fmt::Display for CarrierPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(PROTOCOLS_AT) {
            None => write!(f, "port {}", self.0 as u16),
            // A protocol is at two places, and the first is named.
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
