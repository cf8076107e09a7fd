//! Which packets a case is made of: the frame everything is a copy of, and how the sources vary.

use ratelimit_rig::checksum;
use serde::Serialize;

use crate::lane;

/// The port that is attacked.
pub(crate) const PORT: u16 = 4242;
const SOURCE_PORT: u16 = 12_345;
/// 10.0.0.0
pub(crate) const BASE_V4: u32 = 0x0a00_0000;

const ETHERNET: usize = 14;
const UDP_HEADER: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    V4,
    V6,
}

/// What the generator sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
    /// The frame, with an empty source and checksum, and the sum of what the checksum covers.
    pub(crate) fn template(&self) -> (Vec<u8>, u32) {
        match self.family {
            Family::V4 => self.template_v4(),
            Family::V6 => self.template_v6(),
        }
    }

    fn template_v4(&self) -> (Vec<u8>, u32) {
        let mut header = vec![0x45, 0];
        header.extend(((self.frame_len - ETHERNET) as u16).to_be_bytes());
        header.extend([0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0]);
        header.extend(lane::DESTINATION_V4);
        let sum = checksum::sum(&header);
        // A UDP checksum of 0 is none at all, and in IPv4 that is allowed.
        (self.ethernet(0x0800, &header, &self.udp(header.len())), sum)
    }

    fn template_v6(&self) -> (Vec<u8>, u32) {
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
        (self.ethernet(0x86dd, &header, &udp), sum)
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
    fn a_frame_has_the_length_it_was_asked_for() {
        for (family, len) in
            [(Family::V4, 64), (Family::V6, 64), (Family::V4, 1_500), (Family::V6, 1_500), (Family::V4, 65)]
        {
            assert_eq!(traffic(family, len).template().0.len(), len);
        }
    }

    #[test]
    fn an_ipv4_header_with_source_and_checksum_filled_in_is_valid() {
        let (mut frame, sum) = traffic(Family::V4, 64).template();
        let checksum = checksum::finish(checksum::with_v4(sum, BASE_V4));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame[26..30].copy_from_slice(&BASE_V4.to_be_bytes());
        assert_eq!(checksum::finish(checksum::sum(&frame[14..34])), 0);
    }

    #[test]
    fn an_ipv6_datagram_with_source_and_checksum_filled_in_is_valid() {
        for len in [64, 65, 1_500] {
            let (mut frame, sum) = traffic(Family::V6, len).template();
            let network = 0x2001_0db8_1234_ffff_u64;
            let checksum = checksum::finish(checksum::with_v6(sum, network));
            frame[22..30].copy_from_slice(&network.to_be_bytes());
            frame[60..62].copy_from_slice(&checksum.to_be_bytes());
            let pseudo = checksum::sum(&frame[22..54]) + (len as u32 - 54) + 17;
            assert_eq!(checksum::finish(pseudo + checksum::sum(&frame[54..])), 0, "{len}");
        }
    }
}
