//! A refused packet that was sampled: who sent it, from and to which port, and how many packets it stands for.

use crate::policy::Prefix;

/// Source ports of UDP services whose answers are larger than their questions, so that floods are reflected from them.
const REFLECTORS: [u16; 26] = [
    17, 19, 53, 69, 111, 123, 137, 161, 389, 427, 520, 623, 1434, 1900, 3283, 3389, 3478, 3702, 5353, 5683,
    10_001, 11_211, 27_960, 32_414, 33_848, 37_810,
];

/// A refused packet that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The source that sent the packet.
    pub source: Prefix,
    /// The destination port of the packet; 0 without one.
    pub port: u16,
    /// The source port that the packet came from.
    pub origin: OriginPort,
    /// How many packets this sample stands for.
    pub weight: u64,
}

/// A source port of a protocol; port 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginPort {
    /// Whether the protocol is UDP, and not TCP.
    pub is_udp: bool,
    /// The source port.
    pub port: u16,
}

impl OriginPort {
    /// Whether floods are known to be reflected from this port.
    pub(super) fn is_reflector(self) -> bool {
        self.is_udp && REFLECTORS.binary_search(&self.port).is_ok()
    }

    /// Returns the port as reports write it: `udp 53`.
    pub(super) fn text(self) -> String {
        format!("{} {}", if self.is_udp { "udp" } else { "tcp" }, self.port)
    }

    /// Reads the port from the text of a report: `udp 53`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (protocol, port) = text.split_once(' ')?;
        Some(Self { is_udp: protocol == "udp", port: port.parse().ok()? })
    }
}

/// Packets for one service, or for none, that were sampled at one time.
#[derive(Clone, Debug)]
pub struct SampledPart {
    /// The service that the packets were for, if any.
    pub service: Option<String>,
    /// Whether these packets passed within every limit; otherwise they were refused.
    pub has_passed: bool,
    /// The sampled packets.
    pub witnesses: Vec<Witness>,
    /// What each weight is multiplied with, because samples were lost.
    pub scale: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflector_is_a_port_of_udp_and_survives_being_written() {
        assert!(REFLECTORS.is_sorted(), "it is searched");
        for (is_udp, port, expected) in [
            (true, 53, true),
            (false, 53, false),
            (true, 123, true),
            (true, 11_211, true),
            (true, 40_000, false),
        ] {
            let origin = OriginPort { is_udp, port };
            assert_eq!(origin.is_reflector(), expected, "{origin:?}");
            assert_eq!(OriginPort::read(&origin.text()), Some(origin));
        }
        assert_eq!(OriginPort::read("53"), None);
    }
}
