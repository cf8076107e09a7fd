//! A refused packet with its first bytes, for `watch --pcap`.

use serde::{Deserialize, Serialize};

use super::Dropped;

/// A refused packet of which the kernel program made a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFrame {
    /// What is known about the packet.
    pub packet: Dropped,
    /// When the frame arrived, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The interface that the frame came in by.
    pub interface: String,
    /// Whether the frame begins with an IP header instead of an Ethernet header.
    pub is_ip: bool,
    /// One in this many frames was sampled.
    pub one_in: u64,
    /// The first bytes of the frame, two hexadecimal digits each.
    pub hex: String,
}

impl RefusedFrame {
    /// Bytes as hexadecimal digits.
    pub fn digits(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first bytes of the frame; `None` if the text is not made of hexadecimal digits.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let (pairs, rest) = self.hex.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
    }

    /// The reason of the refusal, as a comment in a capture file.
    pub fn comment(&self) -> String {
        let Dropped { reason, fate, service, .. } = &self.packet;
        let service = service.as_ref().map_or(String::new(), |name| format!(", service {name}"));
        let sampled = match self.one_in {
            1 => String::new(),
            one_in => format!("; sampled, one in {one_in}"),
        };
        format!("{}: {reason}{service}{sampled}", fate.replace('_', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_being_written_as_digits_and_the_remark_says_why_and_one_in_how_many() {
        let packet = Dropped {
            at: "2026-11-16T15:00:00.000Z".to_owned(),
            source: "203.0.113.66".to_owned(),
            reason: "limit_packets".to_owned(),
            fate: "would_drop".to_owned(),
            service: Some("dns".to_owned()),
            protocol: None,
            source_port: None,
            destination: None,
            port: Some(53),
            bytes: 60,
        };
        let bytes: Vec<u8> = (0..=255).collect();
        let hex = RefusedFrame::digits(&bytes);
        let frame =
            RefusedFrame { packet, unix_ns: 1, interface: "eth0".to_owned(), is_ip: false, one_in: 8, hex };
        assert_eq!(frame.bytes(), Some(bytes));
        assert_eq!(frame.comment(), "would drop: limit_packets, service dns; sampled, one in 8");
        assert_eq!(RefusedFrame { hex: "0g".to_owned(), ..frame.clone() }.bytes(), None);
        assert!(RefusedFrame { one_in: 1, ..frame }.comment().ends_with("service dns"));
    }
}
