//! Link types: what the bytes of captured packets begin with.

use std::fmt;

/// A link type, by its number in the registry of tcpdump.org.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkType {
    /// An Ethernet header, perhaps with tags.
    Ethernet,
    /// An IP header, as on tunnels.
    Ip,
    /// The header that Linux writes for interfaces of all kinds (`tcpdump -i any`), in its first form.
    Cooked,
    /// The header that Linux writes for interfaces of all kinds, in its second form.
    Cooked2,
}

/// The numbers of supported link types. Raw IP has three: one in files, and two that programs wrote which did not know that one; IPv4 and IPv6 alone
/// have one each.
const NUMBERS: [(u32, LinkType); 8] = [
    (1, LinkType::Ethernet),
    (12, LinkType::Ip),
    (14, LinkType::Ip),
    (101, LinkType::Ip),
    (228, LinkType::Ip),
    (229, LinkType::Ip),
    (113, LinkType::Cooked),
    (276, LinkType::Cooked2),
];

impl LinkType {
    /// The link type of a number, or a sentence if the number is not supported.
    pub(super) fn numbered(number: u32) -> Result<Self, String> {
        let known = NUMBERS.iter().find(|(known, _)| *known == number);
        known.map(|(_, link_type)| *link_type).ok_or_else(|| {
            format!(
                "link type {number} is none that can be replayed; capture on an Ethernet interface, on a tunnel (raw IP), or with tcpdump -i any"
            )
        })
    }

    /// The number of the link type in capture files.
    pub fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Ip => 101,
            Self::Cooked => 113,
            Self::Cooked2 => 276,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Ip => "raw IP",
            Self::Cooked => "Linux cooked v1",
            Self::Cooked2 => "Linux cooked v2",
        })
    }
}
