//! The short way through the headers of nearly all packets: one tag at most, no options, no extension headers, no fragments.
//!
//! What it understands is what [`super::parse`] makes of the same bytes, and everything else is left to that.

use core::mem::offset_of;

use network_types::{
    eth::EthHdr,
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
    vlan::VlanHdr,
};

use super::ethernet;
use crate::{
    frame::{Frame, Link},
    packet::Address,
};

/// What the express lane needs to know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Who sent it, or claims to.
    pub source: Address,
    /// The number of its IP protocol.
    pub protocol: u8,
    /// Its destination port, of TCP and UDP; else 0.
    pub port: u16,
}

impl Brief {
    /// Whether it is TCP.
    #[inline(always)]
    pub const fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// Whether it has ports.
    #[inline(always)]
    pub const fn has_port(&self) -> bool {
        matches!(self.protocol, TCP | UDP)
    }
}

const TCP: u8 = IpProto::Tcp as u8;
const UDP: u8 = IpProto::Udp as u8;
const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// Version 4, and a header without options.
const PLAIN_V4: u8 = 0x45;
/// More fragments, or an offset.
const PIECE: u16 = 0x3fff;
/// Both ports, which TCP and UDP begin with.
const PORTS_LEN: usize = 4;

/// Reads a frame, if it is one of those.
#[inline(always)]
pub fn brief(frame: &Frame<'_>) -> Option<Brief> {
    match frame.link() {
        Link::Ethernet => {
            let ether_type = frame.view::<{ EthHdr::LEN }>(0)?.u16_be::<{ offset_of!(EthHdr, ether_type) }>();
            match ether_type {
                ethernet::TAG => {
                    const AT: usize = EthHdr::LEN + VlanHdr::LEN;
                    let tag = frame.view::<AT>(0)?;
                    network::<AT>(frame, tag.u16_be::<{ EthHdr::LEN + offset_of!(VlanHdr, ether_type) }>())
                }
                ether_type => network::<{ EthHdr::LEN }>(frame, ether_type),
            }
        }
        // More than the one byte that is read: the comparison for a single byte would be of a kind that the verifier does not follow.
        Link::Ip => match frame.view::<{ Ipv4Hdr::LEN }>(0)?.u8::<0>() >> 4 {
            4 => v4::<0>(frame),
            6 => v6::<0>(frame),
            _ => None,
        },
    }
}

#[inline(always)]
fn network<const AT: usize>(frame: &Frame<'_>, ether_type: u16) -> Option<Brief> {
    match ether_type {
        ethernet::IPV4 => v4::<AT>(frame),
        ethernet::IPV6 => v6::<AT>(frame),
        _ => None,
    }
}

#[inline(always)]
fn v4<const AT: usize>(frame: &Frame<'_>) -> Option<Brief> {
    let header = frame.view::<{ Ipv4Hdr::LEN + PORTS_LEN }>(AT)?;
    let total_len = header.u16_be::<{ offset_of!(Ipv4Hdr, tot_len) }>() as usize;
    let pieces = header.u16_be::<{ offset_of!(Ipv4Hdr, frags) }>() & PIECE;
    if header.u8::<{ offset_of!(Ipv4Hdr, vihl) }>() != PLAIN_V4
        || pieces != 0
        || total_len < Ipv4Hdr::LEN
        || (AT + total_len) as u64 > frame.len()
    {
        return None;
    }
    let protocol = header.u8::<{ offset_of!(Ipv4Hdr, proto) }>();
    let port = header.u16_be::<{ Ipv4Hdr::LEN + 2 }>();
    let port = transport(frame, protocol, port, AT + Ipv4Hdr::LEN, total_len - Ipv4Hdr::LEN)?;
    Some(Brief { source: Address::v4(header.u32_ne::<{ offset_of!(Ipv4Hdr, src_addr) }>()), protocol, port })
}

#[inline(always)]
fn v6<const AT: usize>(frame: &Frame<'_>) -> Option<Brief> {
    const SOURCE: usize = offset_of!(Ipv6Hdr, src_addr);
    let header = frame.view::<{ Ipv6Hdr::LEN + PORTS_LEN }>(AT)?;
    let payload_len = header.u16_be::<{ offset_of!(Ipv6Hdr, payload_len) }>() as usize;
    let (hi, lo) = (header.u64_ne::<SOURCE>(), header.u64_ne::<{ SOURCE + 8 }>());
    let protocol = header.u8::<{ offset_of!(Ipv6Hdr, next_hdr) }>();
    // Sources in ::/64, where those are that stand for IPv4, are few and for the limiter.
    if header.u8::<{ offset_of!(Ipv6Hdr, vcf) }>() >> 4 != 6
        || hi == 0
        || !matches!(protocol, TCP | UDP)
        || (AT + Ipv6Hdr::LEN + payload_len) as u64 > frame.len()
    {
        return None;
    }
    let port = header.u16_be::<{ Ipv6Hdr::LEN + 2 }>();
    let port = transport(frame, protocol, port, AT + Ipv6Hdr::LEN, payload_len)?;
    Some(Brief { source: Address::v6(hi, lo), protocol, port })
}

/// The port of a packet whose transport header is there, or 0 where there are no ports.
#[inline(always)]
fn transport(frame: &Frame<'_>, protocol: u8, port: u16, at: usize, len: usize) -> Option<u16> {
    match protocol {
        UDP => (len >= UdpHdr::LEN && frame.view::<{ UdpHdr::LEN }>(at).is_some()).then_some(port),
        TCP => (len >= TcpHdr::LEN && frame.view::<{ TcpHdr::LEN }>(at).is_some()).then_some(port),
        ICMPV6 => None,
        _ => Some(0),
    }
}
