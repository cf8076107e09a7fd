//! A short parser for nearly all packets: at most one tag, no options, no extension headers, no fragments.
//!
//! What the short parser accepts, [`super::parse`] parses in the same way; everything else is left to [`super::parse`].

use core::mem::offset_of;

use network_types::{
    eth::EthHdr,
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
    vlan::VlanHdr,
};

use ratelimit_common::abi::service::{Protocol, port_slot, protocol_slot};

use super::ethernet;
use crate::{
    frame::{Frame, Link},
    origin::{OriginV4, OriginV6},
    packet::Family,
};

/// The parts of a packet that the express lane needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief<S> {
    /// The source address that the packet claims.
    pub source: S,
    /// The number of its IP protocol.
    pub protocol: u8,
    /// The destination port for TCP and UDP; 0 for other protocols.
    pub port: u16,
}

impl<S> Brief<S> {
    /// The packet with its source in another form.
    pub fn with<D>(self, told: impl FnOnce(S) -> D) -> Brief<D> {
        Brief { source: told(self.source), protocol: self.protocol, port: self.port }
    }

    /// Whether the packet is TCP.
    #[inline(always)]
    pub const fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// The slot of the packet's port in the table of ports, if it has a port.
    #[inline(always)]
    pub fn port_slot(&self) -> Option<u32> {
        match self.protocol {
            TCP => Some(port_slot(Protocol::Tcp, self.port)),
            UDP => Some(port_slot(Protocol::Udp, self.port)),
            _ => None,
        }
    }

    /// The slot of the packet's protocol, for packets without a service by port.
    #[inline(always)]
    pub fn protocol_slot(&self) -> u32 {
        protocol_slot(self.protocol, false)
    }
}

const TCP: u8 = IpProto::Tcp as u8;
const UDP: u8 = IpProto::Udp as u8;
const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// A mask over the first eight bytes of an IPv4 header, as they lie in memory: version, header length, more-fragments flag, and fragment offset.
const SHAPE_V4: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
/// The masked bytes of a plain header: version 4, no options, no fragment.
const PLAIN_V4: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
/// Length in bytes of both ports, which TCP and UDP headers begin with.
const PORTS_LEN: usize = offset_of!(UdpHdr, len);
/// Offset of the destination port, which is equal for TCP and UDP.
const PORT_AT: usize = offset_of!(UdpHdr, dst);
const _: () = assert!(PORT_AT == offset_of!(TcpHdr, dest) && PORTS_LEN == offset_of!(TcpHdr, seq));
/// Bytes that a frame may have behind its packet: Ethernet fills frames up to 60 bytes, and some drivers leave a checksum. A frame of several buffers has more,
/// because the packet here is the part in the first one; such frames are left to the limiter.
const MOST_PADDING: u64 = 64;

/// The family that a frame's link header names, and the offset of its IP header.
#[inline(always)]
pub fn network(frame: &Frame<'_>) -> Option<(Family, usize)> {
    match frame.link() {
        Link::Ethernet => {
            // In memory order: swapping bytes would be one more instruction.
            const IPV4: u16 = ethernet::IPV4.to_be();
            const IPV6: u16 = ethernet::IPV6.to_be();
            const TAG: u16 = ethernet::TAG.to_be();
            match frame.view::<{ EthHdr::LEN }>(0)?.u16_ne::<{ offset_of!(EthHdr, ether_type) }>() {
                IPV4 => Some((Family::V4, EthHdr::LEN)),
                IPV6 => Some((Family::V6, EthHdr::LEN)),
                TAG => {
                    const AT: usize = EthHdr::LEN + VlanHdr::LEN;
                    match frame.view::<AT>(0)?.u16_ne::<{ EthHdr::LEN + offset_of!(VlanHdr, ether_type) }>() {
                        IPV4 => Some((Family::V4, AT)),
                        IPV6 => Some((Family::V6, AT)),
                        _ => None,
                    }
                }
                _ => None,
            }
        }
        // A view of more than the one byte that is read: for a single byte the comparison would be of a kind that the verifier does not follow.
        Link::Ip => match frame.view::<{ Ipv4Hdr::LEN }>(0)?.u8::<0>() >> 4 {
            4 => Some((Family::V4, 0)),
            6 => Some((Family::V6, 0)),
            _ => None,
        },
    }
}

/// Reads the IPv4 packet at an offset, if it is a plain one and complete in the frame.
#[inline(always)]
pub fn brief_v4(frame: &Frame<'_>, at: usize) -> Option<Brief<OriginV4>> {
    let header = frame.view::<{ Ipv4Hdr::LEN + PORTS_LEN }>(at)?;
    let total_len = header.u16_be::<{ offset_of!(Ipv4Hdr, tot_len) }>() as u64;
    let protocol = header.u8::<{ offset_of!(Ipv4Hdr, proto) }>();
    if header.u64_ne::<0>() & SHAPE_V4 != PLAIN_V4
        || protocol == ICMPV6
        || total_len < Ipv4Hdr::LEN as u64 + transport_len(protocol)
        || !is_whole(frame, at as u64 + total_len)
    {
        return None;
    }
    let port = if matches!(protocol, TCP | UDP) { header.u16_be::<{ Ipv4Hdr::LEN + PORT_AT }>() } else { 0 };
    Some(Brief { source: OriginV4(header.u32_ne::<{ offset_of!(Ipv4Hdr, src_addr) }>()), protocol, port })
}

/// Reads the IPv6 packet at an offset, if it is TCP or UDP without extension headers and complete in the frame.
#[inline(always)]
pub fn brief_v6(frame: &Frame<'_>, at: usize) -> Option<Brief<OriginV6>> {
    const SOURCE: usize = offset_of!(Ipv6Hdr, src_addr);
    let header = frame.view::<{ Ipv6Hdr::LEN + PORTS_LEN }>(at)?;
    let payload_len = header.u16_be::<{ offset_of!(Ipv6Hdr, payload_len) }>() as u64;
    let (hi, lo) = (header.u64_ne::<SOURCE>(), header.u64_ne::<{ SOURCE + 8 }>());
    let protocol = header.u8::<{ offset_of!(Ipv6Hdr, next_hdr) }>();
    // Sources in ::/64, which include IPv4-mapped ones, are few and left to the limiter.
    if header.u8::<{ offset_of!(Ipv6Hdr, vcf) }>() >> 4 != 6
        || hi == 0
        || !matches!(protocol, TCP | UDP)
        || payload_len < transport_len(protocol)
        || !is_whole(frame, (at + Ipv6Hdr::LEN) as u64 + payload_len)
    {
        return None;
    }
    let port = header.u16_be::<{ Ipv6Hdr::LEN + PORT_AT }>();
    Some(Brief { source: OriginV6 { hi, lo }, protocol, port })
}

/// Whether a packet that ends at an offset is complete, with nothing but padding behind it.
#[inline(always)]
fn is_whole(frame: &Frame<'_>, end: u64) -> bool {
    frame.len().wrapping_sub(end) <= MOST_PADDING
}

/// Bytes of the transport header that a packet must have.
#[inline(always)]
const fn transport_len(protocol: u8) -> u64 {
    match protocol {
        UDP => UdpHdr::LEN as u64,
        TCP => TcpHdr::LEN as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
