//! A TCP segment: both addresses, and the fixed part of the header.

use core::mem::offset_of;

use network_types::{
    ip::{Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
};

use crate::{
    frame::Frame,
    packet::{Address, Family, Packet, ends},
};

/// Offset of the byte with the header length, in its upper half.
pub(crate) const LENGTH_AT: usize = offset_of!(TcpHdr, _bitfield_1);
/// Offset of the byte with the lower eight flags.
pub(crate) const FLAGS_AT: usize = LENGTH_AT + 1;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// One segment. Multi-byte fields are as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The source address.
    pub source: Address,
    /// The destination address.
    pub destination: Address,
    /// The first five words of the TCP header.
    pub header: [u32; TcpHdr::LEN / 4],
}

impl Segment {
    #[inline(always)]
    pub(crate) fn read(frame: &Frame<'_>, packet: &Packet) -> Option<Self> {
        Self::at(frame, packet.source.family, packet.network_at, packet.transport_at)
    }

    /// The segment whose headers are at these offsets.
    #[inline(always)]
    pub fn at(frame: &Frame<'_>, family: Family, network_at: usize, transport_at: usize) -> Option<Self> {
        let (source, destination) = ends(frame, family, network_at)?;
        let header = frame.view::<{ TcpHdr::LEN }>(transport_at)?;
        let header = [
            header.u32_ne::<{ offset_of!(TcpHdr, source) }>(),
            header.u32_ne::<{ offset_of!(TcpHdr, seq) }>(),
            header.u32_ne::<{ offset_of!(TcpHdr, ack_seq) }>(),
            header.u32_ne::<LENGTH_AT>(),
            header.u32_ne::<{ offset_of!(TcpHdr, check) }>(),
        ];
        Some(Self { source, destination, header })
    }

    /// Both ports, the source's first.
    #[inline(always)]
    pub fn ports(&self) -> u32 {
        self.header[0]
    }

    /// The sequence number of the segment.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> u32 {
        u32::from_be(self.header[1])
    }

    /// Whether the segment may be answered: it closes nothing, and a reply would go to one host and come from one.
    #[inline(always)]
    pub(crate) fn answerable(&self) -> bool {
        self.flags() & (FIN | RST) == 0 && self.source.is_one_host() && self.destination.is_one_host()
    }

    /// The lower eight flags.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        (u32::from_be(self.header[3]) >> 16) as u8
    }

    /// The acknowledgement number, as it lies in memory.
    #[inline(always)]
    pub(crate) fn acknowledged(&self) -> u32 {
        self.header[2]
    }

    /// Length of the TCP header in bytes, with options.
    #[inline(always)]
    pub(crate) fn header_len(&self) -> usize {
        (u32::from_be(self.header[3]) >> 28) as usize * 4
    }

    /// The IP header that a cookie is computed from: nothing but the version and the addresses.
    #[inline(always)]
    pub fn ip_header_v4(&self) -> [u32; Ipv4Hdr::LEN / 4] {
        [0x4500_0000_u32.to_be(), 0, 0, self.source.v4_word(), self.destination.v4_word()]
    }

    /// The IPv6 header that a cookie is computed from: nothing but the version and the addresses.
    #[inline(always)]
    pub fn ip_header_v6(&self) -> [u64; Ipv6Hdr::LEN / 8] {
        let (source, destination) = (self.source.key, self.destination.key);
        [(0x6_u64 << 60).to_be(), source.hi, source.lo, destination.hi, destination.lo]
    }

    /// The TCP header of a SYN, with an MSS as its only option.
    #[inline(always)]
    pub fn header_with_mss(&self, mss: u16) -> [u32; TcpHdr::LEN / 4 + 1] {
        let flags = (6 << 28) | (u32::from_be(self.header[3]) & 0x003f_ffff);
        let [ports, sequence, acknowledged, _, rest] = self.header;
        [ports, sequence, acknowledged, flags.to_be(), rest, (0x0204_0000 | u32::from(mss)).to_be()]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::{
        frame::Link,
        parse,
        testbed::{IpFrame, tcp},
    };

    #[test]
    fn a_cookie_is_computed_from_addresses_and_a_header_with_an_mss() {
        for is_v6 in [false, true] {
            let payload = tcp([0, 1], 80, SYN)[34..].to_vec();
            let bytes = IpFrame { source: [0, 1], is_v6, protocol: 6, fragment: 0, payload }.frame();
            let frame = Frame::new(Link::Ethernet, &bytes);
            let segment = Segment::read(&frame, &parse::parse(&frame).unwrap()).unwrap();
            let words = segment.header_with_mss(1_460).map(u32::from_be);
            assert_eq!(words, [0xc001_0050, 7, 9, 0x6002_ffff, 0, 0x0204_05b4]);
            assert_eq!((segment.sequence(), segment.header_len(), segment.flags()), (7, 20, SYN));
            if is_v6 {
                let words = segment.ip_header_v6().map(u64::to_ne_bytes).concat();
                assert_eq!(words[..8], [0x60, 0, 0, 0, 0, 0, 0, 0]);
                assert_eq!(words[8..], bytes[22..54]);
            } else {
                let words = segment.ip_header_v4().map(u32::to_ne_bytes).concat();
                assert_eq!(words[..12], [0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                assert_eq!(words[12..], bytes[26..34]);
            }
        }
    }
}
