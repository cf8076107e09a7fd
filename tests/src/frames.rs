//! Frames, well-formed and otherwise, from the inside out: `ethernet(IPV4, &Ipv4::from(a).tcp(SYN))`.
//!
//! A builder that only makes correct packets would be of no use here: every length can be a lie.

use std::{
    mem::offset_of,
    net::{Ipv4Addr, Ipv6Addr},
};

use network_types::{
    eth::EtherType,
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
};
use ratelimit_rig::checksum;

/// EtherType of IPv4.
pub const IPV4: u16 = u16::from_be(EtherType::Ipv4 as u16);
/// EtherType of IPv6.
pub const IPV6: u16 = u16::from_be(EtherType::Ipv6 as u16);
/// EtherType of ARP.
pub const ARP: u16 = u16::from_be(EtherType::Arp as u16);
/// EtherType of an 802.1Q tag.
pub const VLAN: u16 = u16::from_be(EtherType::Ieee8021q as u16);
/// EtherType of an 802.1ad tag.
pub const QINQ: u16 = u16::from_be(EtherType::Ieee8021ad as u16);

/// The flag of a TCP segment that opens a connection.
pub const SYN: u8 = 0x02;
/// The flag of a TCP segment that acknowledges.
pub const ACK: u8 = 0x10;

/// Protocol number of TCP.
pub const TCP: u8 = IpProto::Tcp as u8;
/// Protocol number of UDP.
pub const UDP: u8 = IpProto::Udp as u8;
/// Protocol number of ICMP.
pub const ICMP: u8 = IpProto::Icmp as u8;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// Writes a field of a header.
fn put(header: &mut [u8], at: usize, field: &[u8]) {
    header[at..at + field.len()].copy_from_slice(field);
}

/// An Ethernet frame with this payload.
pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A VLAN tag and what it carries; goes behind an EtherType of [`VLAN`] or [`QINQ`].
pub fn tag(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[0x00, 0x64], &ether_type.to_be_bytes()[..], payload].concat()
}

/// The one's complement sum as RFC 1071 describes it: 0xffff over bytes that hold a correct checksum.
pub fn folded(bytes: &[u8]) -> u16 {
    !checksum::finish(checksum::sum(bytes))
}

/// A TCP header with these flags and some payload.
pub fn tcp(flags: u8) -> Vec<u8> {
    let mut segment = vec![0; TcpHdr::LEN + 6];
    put(&mut segment, offset_of!(TcpHdr, source), &49_152_u16.to_be_bytes());
    put(&mut segment, offset_of!(TcpHdr, dest), &80_u16.to_be_bytes());
    put(&mut segment, offset_of!(TcpHdr, seq), &1_u32.to_be_bytes());
    put(&mut segment, offset_of!(TcpHdr, _bitfield_1), &[(TcpHdr::LEN as u8 / 4) << 4, flags]);
    put(&mut segment, offset_of!(TcpHdr, window), &u16::MAX.to_be_bytes());
    segment
}

/// A UDP header and `len` bytes of payload.
pub fn udp(len: usize) -> Vec<u8> {
    let mut datagram = vec![0; UdpHdr::LEN];
    put(&mut datagram, offset_of!(UdpHdr, src), &12_345_u16.to_be_bytes());
    put(&mut datagram, offset_of!(UdpHdr, dst), &53_u16.to_be_bytes());
    put(&mut datagram, offset_of!(UdpHdr, len), &((UdpHdr::LEN + len) as u16).to_be_bytes());
    datagram.resize(UdpHdr::LEN + len, 0x5a);
    datagram
}

/// An ICMP or ICMPv6 message of this type.
pub fn icmp(kind: u8) -> Vec<u8> {
    vec![kind, 0, 0, 0, 0, 1, 0, 1, 0x61, 0x62, 0x63, 0x64]
}

/// An IPv6 extension header of `units` times eight bytes, the first included.
pub fn extension(next: u8, units: u8) -> Vec<u8> {
    let mut header = vec![next, units - 1];
    header.resize(usize::from(units) * 8, 0);
    header
}

/// An IPv6 fragment header.
pub fn fragment(next: u8, offset_units: u16, more: bool) -> Vec<u8> {
    let field = (offset_units << 3) | u16::from(more);
    [&[next, 0], &field.to_be_bytes()[..], &[0, 0, 0, 7]].concat()
}

/// An IPv4 packet, whose fields a test may make wrong.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// Bytes of options; a multiple of four, at most 40.
    pub options: usize,
    /// The fragment field: flags and offset.
    pub fragment: u16,
    /// Overrides the version and header length byte.
    pub version_ihl: Option<u8>,
    /// Overrides the total length.
    pub total_len: Option<u16>,
}

impl Ipv4 {
    /// A packet from this source.
    pub fn from(source: impl Into<Ipv4Addr>) -> Self {
        Self {
            source: source.into(),
            destination: Ipv4Addr::new(10, 0, 0, 1),
            options: 0,
            fragment: 0,
            version_ihl: None,
            total_len: None,
        }
    }

    /// The bytes of the packet with a payload of this protocol.
    pub fn carrying(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_len = Ipv4Hdr::LEN + self.options;
        let total_len = self.total_len.unwrap_or((header_len + payload.len()) as u16);
        let mut packet = vec![0; header_len];
        packet[offset_of!(Ipv4Hdr, vihl)] = self.version_ihl.unwrap_or(0x40 | (header_len / 4) as u8);
        put(&mut packet, offset_of!(Ipv4Hdr, tot_len), &total_len.to_be_bytes());
        put(&mut packet, offset_of!(Ipv4Hdr, frags), &self.fragment.to_be_bytes());
        packet[offset_of!(Ipv4Hdr, ttl)] = 64;
        packet[offset_of!(Ipv4Hdr, proto)] = protocol;
        put(&mut packet, offset_of!(Ipv4Hdr, src_addr), &self.source.octets());
        put(&mut packet, offset_of!(Ipv4Hdr, dst_addr), &self.destination.octets());
        packet[Ipv4Hdr::LEN..].fill(1);
        packet.extend(payload);
        packet
    }

    /// A whole frame with UDP in it.
    pub fn udp_frame(&self, len: usize) -> Vec<u8> {
        ethernet(IPV4, &self.carrying(UDP, &udp(len)))
    }

    /// A whole frame with TCP in it.
    pub fn tcp_frame(&self, flags: u8) -> Vec<u8> {
        ethernet(IPV4, &self.carrying(TCP, &tcp(flags)))
    }
}

/// An IPv6 packet, whose fields a test may make wrong.
#[derive(Clone, Debug)]
pub struct Ipv6 {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The hop limit in the header.
    pub hop_limit: u8,
    /// Overrides the first byte.
    pub version: Option<u8>,
    /// Overrides the payload length.
    pub payload_len: Option<u16>,
}

impl Ipv6 {
    /// A packet from this source.
    pub fn from(source: Ipv6Addr) -> Self {
        Self { source, destination: Ipv6Addr::LOCALHOST, hop_limit: 64, version: None, payload_len: None }
    }

    /// The bytes of the packet with a payload behind this next header.
    pub fn carrying(&self, next: u8, payload: &[u8]) -> Vec<u8> {
        let payload_len = self.payload_len.unwrap_or(payload.len() as u16);
        let mut packet = vec![0; Ipv6Hdr::LEN];
        packet[offset_of!(Ipv6Hdr, vcf)] = self.version.unwrap_or(0x60);
        put(&mut packet, offset_of!(Ipv6Hdr, payload_len), &payload_len.to_be_bytes());
        packet[offset_of!(Ipv6Hdr, next_hdr)] = next;
        packet[offset_of!(Ipv6Hdr, hop_limit)] = self.hop_limit;
        put(&mut packet, offset_of!(Ipv6Hdr, src_addr), &self.source.octets());
        put(&mut packet, offset_of!(Ipv6Hdr, dst_addr), &self.destination.octets());
        packet.extend(payload);
        packet
    }

    /// A whole frame with UDP in it.
    pub fn udp_frame(&self, len: usize) -> Vec<u8> {
        ethernet(IPV6, &self.carrying(UDP, &udp(len)))
    }

    /// A whole frame with TCP in it.
    pub fn tcp_frame(&self, flags: u8) -> Vec<u8> {
        ethernet(IPV6, &self.carrying(TCP, &tcp(flags)))
    }
}
