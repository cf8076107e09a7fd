//! Which packets a case is made of: the frame everything is a copy of, and how the sources vary.

use ratelimit_rig::{checksum, syn};

use crate::lane;

/// The port that is attacked.
pub(crate) const PORT: u16 = 4242;
const SOURCE_PORT: u16 = 12_345;
/// 10.0.0.0
pub(crate) const BASE_V4: u32 = 0x0a00_0000;

const ETHERNET: usize = 14;
const UDP_HEADER: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// What Linux sends to open a connection: largest segment 1460, SACK, timestamps, window scale 7.
const SYN: [u8; 36] = [
    0x13, 0x37, 0x21, 0x42, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0,
    0, // from the sequence number on
    2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0x30, 0x39, 0, 0, 0, 0, 1, 3, 3, 7,
];
/// Bytes of a frame that opens a connection.
pub(crate) const SYN_FRAME: usize = syn::FRAME_LEN;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// A frame that every packet is a copy of, with what its checksums cover apart from the source.
#[derive(Debug)]
pub(crate) struct Template {
    /// Source and checksum are empty.
    pub(crate) frame: Vec<u8>,
    /// The IPv4 header, or the UDP datagram in IPv6.
    pub(crate) sum: u32,
    /// The TCP segment, if it is one.
    pub(crate) tcp_sum: u32,
}

/// What the generator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) family: Family,
    /// The first IPv4 source.
    pub(crate) base_v4: u32,
    /// How many sources, each as likely as any other; 0 is all there are.
    pub(crate) sources: u32,
    /// Bytes from the Ethernet header on, without the checksum that hardware adds.
    pub(crate) frame_len: usize,
}

impl Traffic {
    pub(crate) fn template(&self) -> Template {
        match self.family {
            Family::V4 => self.template_v4(),
            Family::V6 => self.template_v6(),
        }
    }

    fn template_v4(&self) -> Template {
        let header = self.header_v4(UDP, lane::DESTINATION_V4);
        // A UDP checksum of 0 is none at all, and in IPv4 that is allowed.
        let frame = self.ethernet(0x0800, &header, &self.udp(header.len()));
        Template { frame, sum: checksum::sum(&header), tcp_sum: 0 }
    }

    fn header_v4(&self, protocol: u8, destination: [u8; 4]) -> Vec<u8> {
        let mut header = vec![0x45, 0];
        header.extend(((self.frame_len - ETHERNET) as u16).to_be_bytes());
        header.extend([0, 0, 0, 0, 64, protocol, 0, 0, 0, 0, 0, 0]);
        header.extend(destination);
        header
    }

    fn template_v6(&self) -> Template {
        let destination = lane::DESTINATION_V6.map(u16::to_be_bytes).concat();
        let udp = self.udp(40);
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((udp.len() as u16).to_be_bytes());
        header.extend([17, 64]);
        // The network part is filled in; the interface part is 1 for all.
        header.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        header.extend(&destination);
        // The pseudo-header: addresses, length, protocol.
        let sum = 1 + checksum::sum(&destination) + udp.len() as u32 + 17 + checksum::sum(&udp);
        Template { frame: self.ethernet(0x86dd, &header, &udp), sum, tcp_sum: 0 }
    }

    /// The frame that opens a connection to the receiving host itself.
    pub(crate) fn syn_template(&self) -> Template {
        let header = self.header_v4(TCP, lane::HOST_V4);
        let segment = [&SOURCE_PORT.to_be_bytes()[..], &PORT.to_be_bytes(), &SYN].concat();
        // The pseudo-header: addresses, protocol, length.
        let pseudo = checksum::sum(&lane::HOST_V4) + u32::from(TCP) + segment.len() as u32;
        let (sum, tcp_sum) = (checksum::sum(&header), pseudo + checksum::sum(&segment));
        Template { frame: self.ethernet(0x0800, &header, &segment), sum, tcp_sum }
    }

    fn ethernet(&self, ether_type: u16, header: &[u8], udp: &[u8]) -> Vec<u8> {
        let frame = [&lane::MAC, &[0x02, 0, 0, 0, 0, 2], &ether_type.to_be_bytes()[..], header, udp].concat();
        debug_assert_eq!(frame.len(), self.frame_len);
        frame
    }

    fn udp(&self, ip_header_len: usize) -> Vec<u8> {
        let len = self.frame_len - ETHERNET - ip_header_len;
        let mut udp = [SOURCE_PORT, PORT, len as u16, 0].map(u16::to_be_bytes).concat();
        debug_assert_eq!(udp.len(), UDP_HEADER);
        udp.resize(len, 0x5a);
        udp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(family: Family, frame_len: usize) -> Traffic {
        Traffic { family, base_v4: BASE_V4, sources: 1, frame_len }
    }

    #[test]
    fn an_ipv4_header_with_source_and_checksum_filled_in_is_valid() {
        let Template { mut frame, sum, .. } = traffic(Family::V4, 64).template();
        let checksum = checksum::finish(checksum::with_v4(sum, BASE_V4));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame[26..30].copy_from_slice(&BASE_V4.to_be_bytes());
        assert_eq!(checksum::finish(checksum::sum(&frame[14..34])), 0);
    }

    #[test]
    fn a_syn_with_source_and_checksums_filled_in_is_valid() {
        let syn = Traffic { sources: 0, ..traffic(Family::V4, SYN_FRAME) };
        let Template { mut frame, sum, tcp_sum } = syn.syn_template();
        let source = 0xfffe_1234;
        frame[24..26].copy_from_slice(&checksum::finish(checksum::with_v4(sum, source)).to_be_bytes());
        frame[26..30].copy_from_slice(&source.to_be_bytes());
        frame[50..52].copy_from_slice(&checksum::finish(checksum::with_v4(tcp_sum, source)).to_be_bytes());
        assert_eq!(checksum::finish(checksum::sum(&frame[14..34])), 0);
        let pseudo = checksum::sum(&frame[26..34]) + 6 + (frame.len() as u32 - 34);
        assert_eq!(checksum::finish(pseudo + checksum::sum(&frame[34..])), 0);
        assert_eq!(frame[47], 2, "SYN and nothing else");
        assert_eq!(usize::from(frame[46] >> 4) * 4, frame.len() - 34, "the options end where the frame does");
    }

    #[test]
    fn an_ipv6_datagram_with_source_and_checksum_filled_in_is_valid() {
        for len in [64, 65, 1_500] {
            let Template { mut frame, sum, .. } = traffic(Family::V6, len).template();
            let network = 0x2001_0db8_1234_ffff_u64;
            let checksum = checksum::finish(checksum::with_v6(sum, network));
            frame[22..30].copy_from_slice(&network.to_be_bytes());
            frame[60..62].copy_from_slice(&checksum.to_be_bytes());
            let pseudo = checksum::sum(&frame[22..54]) + (len as u32 - 54) + 17;
            assert_eq!(checksum::finish(pseudo + checksum::sum(&frame[54..])), 0, "{len}");
        }
    }
}
