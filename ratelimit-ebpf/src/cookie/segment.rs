//! A TCP segment, as far as cookies are concerned: both ends, and the fixed part of the header.

use crate::{
    frame::Frame,
    packet::{Address, Family, Packet},
};

/// Length of the fixed part.
pub(super) const HEADER_LEN: usize = 20;

const FIN: u8 = 0x01;
const RST: u8 = 0x04;

/// One segment. Multi-byte fields are as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sent it.
    pub source: Address,
    /// Who is meant.
    pub destination: Address,
    /// The first five words of its header.
    pub header: [u32; HEADER_LEN / 4],
}

impl Segment {
    #[inline(always)]
    pub(super) fn read(frame: &Frame<'_>, packet: &Packet) -> Option<Self> {
        let destination = match packet.source.family {
            Family::V4 => Address::v4(frame.view::<20>(packet.network_at)?.u32_ne::<16>()),
            Family::V6 => {
                let header = frame.view::<40>(packet.network_at)?;
                Address::v6(header.u64_ne::<24>(), header.u64_ne::<32>())
            }
        };
        let header = frame.view::<HEADER_LEN>(packet.transport_at)?;
        let header = [
            header.u32_ne::<0>(),
            header.u32_ne::<4>(),
            header.u32_ne::<8>(),
            header.u32_ne::<12>(),
            header.u32_ne::<16>(),
        ];
        Some(Self { source: packet.source, destination, header })
    }

    /// Both ports, the source's first.
    #[inline(always)]
    pub fn ports(&self) -> u32 {
        self.header[0]
    }

    /// Its sequence number.
    #[inline(always)]
    pub(super) fn sequence(&self) -> u32 {
        u32::from_be(self.header[1])
    }

    /// Whether an answer to it would go to one host, which may have asked.
    #[inline(always)]
    pub(super) fn answerable(&self) -> bool {
        let flags = (u32::from_be(self.header[3]) >> 16) as u8;
        let unicast = match self.source.family {
            // 0.0.0.0/8 is nobody, 224.0.0.0/4 groups, and above them broadcast and what was never assigned.
            Family::V4 => matches!(u32::from_be(self.source.v4_word()) >> 24, 1..=223),
            Family::V6 => {
                self.source.key.hi.to_ne_bytes()[0] != 0xff && self.source.key != Address::v6(0, 0).key
            }
        };
        flags & (FIN | RST) == 0 && unicast
    }

    /// The IP header that a cookie is computed from: nothing but the version and the addresses.
    #[inline(always)]
    pub fn ip_header_v4(&self) -> [u32; 5] {
        [0x4500_0000_u32.to_be(), 0, 0, self.source.v4_word(), self.destination.v4_word()]
    }

    /// The same for IPv6.
    #[inline(always)]
    pub fn ip_header_v6(&self) -> [u64; 5] {
        let (source, destination) = (self.source.key, self.destination.key);
        [(0x6_u64 << 60).to_be(), source.hi, source.lo, destination.hi, destination.lo]
    }

    /// The TCP header of a SYN, with an MSS and nothing else behind it.
    #[inline(always)]
    pub fn header_with_mss(&self, mss: u16) -> [u32; 6] {
        let flags = (6 << 28) | (u32::from_be(self.header[3]) & 0x003f_ffff);
        let [ports, sequence, acknowledged, _, rest] = self.header;
        [ports, sequence, acknowledged, flags.to_be(), rest, (0x0204_0000 | u32::from(mss)).to_be()]
    }
}
