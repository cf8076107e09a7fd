//! A parsed packet: what the stages after the parser need to know of a frame.

use core::mem::offset_of;

use network_types::ip::{Ipv4Hdr, Ipv6Hdr};
use ratelimit_common::abi::{
    SourceKey,
    service::{Protocol, port_slot, protocol_slot},
};

use crate::{forget::forget, frame::Frame};

/// A source address.
///
/// A struct whose fields all have a value, rather than an enum: the compiler may copy the unset payload of an enum, and the
/// verifier refuses to see an unset register read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address family.
    pub family: Family,
    /// All bits of the address, in the form of a key.
    pub key: SourceKey,
}

/// An address family.
/// The numbers are indices in the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The family is IPv4.
    V4 = 0,
    /// The family is IPv6.
    V6 = 1,
}

impl Family {
    /// Length in bytes of the IP header without options or extension headers.
    #[inline(always)]
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::V4 => Ipv4Hdr::LEN,
            Self::V6 => Ipv6Hdr::LEN,
        }
    }
}

impl Address {
    /// An IPv4 address, native load.
    #[inline(always)]
    pub const fn v4(addr: u32) -> Self {
        Self { family: Family::V4, key: SourceKey::from_v4(addr) }
    }

    /// An IPv6 address: bytes 0 to 7, bytes 8 to 15, native loads.
    #[inline(always)]
    pub const fn v6(hi: u64, lo: u64) -> Self {
        Self { family: Family::V6, key: SourceKey { hi, lo } }
    }

    /// Whether the address can be that of one host: not unspecified, multicast or broadcast.
    #[inline(always)]
    pub fn is_one_host(&self) -> bool {
        match self.family {
            // 0.0.0.0/8 is unspecified, 224.0.0.0/4 is multicast, and addresses above are broadcast or were never assigned.
            Family::V4 => matches!(u32::from_be(self.v4_word()) >> 24, 1..=223),
            Family::V6 => self.key.hi.to_ne_bytes()[0] != 0xff && self.key != Self::v6(0, 0).key,
        }
    }

    /// An IPv4 address as it lies in memory.
    #[inline(always)]
    pub const fn v4_word(&self) -> u32 {
        let b = self.key.lo.to_ne_bytes();
        u32::from_ne_bytes([b[4], b[5], b[6], b[7]])
    }
}

/// An IP packet that was parsed down to its transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The source address that the packet claims.
    pub source: Address,
    /// The transport protocol of the packet.
    pub transport: Transport,
    /// Destination port; 0 if the packet has none.
    pub port: u16,
    /// The number of the IP protocol; for a fragment without the transport header, the number in its IP header.
    pub protocol: u8,
    /// Offset of the IP header in the frame.
    pub network_at: usize,
    /// Offset of the transport header in the frame, if the packet has one.
    pub transport_at: usize,
    /// Bytes of the packet from the transport header on.
    pub transport_len: usize,
    /// Whether the packet is a fragment.
    pub fragment: bool,
    /// The number of the service, as in the policy's table of ports; `NO_SERVICE` until it is looked up.
    pub service: u16,
    /// The number of the source's user, as in the lists; `NO_USER` until it is looked up.
    pub user: u16,
}

impl Packet {
    /// The slot of the packet's port in the table of ports, if it has a port.
    #[inline(always)]
    pub fn port_slot(&self) -> Option<u32> {
        match self.transport {
            Transport::TCP | Transport::TCP_SYN => Some(port_slot(Protocol::Tcp, self.port)),
            Transport::UDP => Some(port_slot(Protocol::Udp, self.port)),
            _ => None,
        }
    }

    /// The slot of the packet's protocol, for packets without a service by port.
    #[inline(always)]
    pub fn protocol_slot(&self) -> u32 {
        protocol_slot(self.protocol, self.transport == Transport::FRAGMENT)
    }

    /// The destination address, read from the frame only when needed, because few policies use it.
    #[inline(always)]
    pub(crate) fn destination(&self, frame: &Frame<'_>) -> Option<Address> {
        destination(frame, self.source.family, self.network_at)
    }

    /// The packet with values about whose origin the verifier no longer knows anything: hundreds of paths through tags and extension headers lead
    /// to the same few numbers, and it would follow the rest along each. Offsets of headers are not kept.
    #[inline(always)]
    pub fn forgotten(self, unknown: u64) -> Self {
        let family = matches!(self.source.family, Family::V6) as u64;
        let traits = self.transport.0 as u64 | family << 12 | (self.fragment as u64) << 13;
        let traits =
            traits | (self.service as u64) << 16 | (self.port as u64) << 32 | (self.protocol as u64) << 48;
        let traits = forget(traits, unknown);
        Self {
            source: Address {
                family: if traits & 1 << 12 == 0 { Family::V4 } else { Family::V6 },
                key: self.source.key,
            },
            transport: Transport(traits as u16 & 0xfff),
            port: (traits >> 32) as u16,
            protocol: (traits >> 48) as u8,
            fragment: traits & 1 << 13 != 0,
            service: (traits >> 16) as u16,
            user: self.user,
            network_at: 0,
            transport_at: 0,
            transport_len: 0,
        }
    }
}

const V4_SOURCE: usize = offset_of!(Ipv4Hdr, src_addr);
const V4_DESTINATION: usize = offset_of!(Ipv4Hdr, dst_addr);
const V6_SOURCE: usize = offset_of!(Ipv6Hdr, src_addr);
const V6_DESTINATION: usize = offset_of!(Ipv6Hdr, dst_addr);

/// The source address in the IPv6 header at an offset.
#[inline(always)]
pub(crate) fn v6_source(frame: &Frame<'_>, network_at: usize) -> Option<Address> {
    let header = frame.view::<{ Ipv6Hdr::LEN }>(network_at)?;
    Some(Address::v6(header.u64_ne::<V6_SOURCE>(), header.u64_ne::<{ V6_SOURCE + 8 }>()))
}

/// The source and destination addresses in the IP header at an offset.
#[inline(always)]
pub fn ends(frame: &Frame<'_>, family: Family, network_at: usize) -> Option<(Address, Address)> {
    match family {
        Family::V4 => {
            let header = frame.view::<{ Ipv4Hdr::LEN }>(network_at)?;
            Some((Address::v4(header.u32_ne::<V4_SOURCE>()), Address::v4(header.u32_ne::<V4_DESTINATION>())))
        }
        Family::V6 => {
            let header = frame.view::<{ Ipv6Hdr::LEN }>(network_at)?;
            let source = Address::v6(header.u64_ne::<V6_SOURCE>(), header.u64_ne::<{ V6_SOURCE + 8 }>());
            Some((
                source,
                Address::v6(header.u64_ne::<V6_DESTINATION>(), header.u64_ne::<{ V6_DESTINATION + 8 }>()),
            ))
        }
    }
}

/// The destination address in the IP header at an offset.
#[inline(always)]
pub(crate) fn destination(frame: &Frame<'_>, family: Family, network_at: usize) -> Option<Address> {
    match family {
        Family::V4 => {
            Some(Address::v4(frame.view::<{ Ipv4Hdr::LEN }>(network_at)?.u32_ne::<V4_DESTINATION>()))
        }
        Family::V6 => {
            let header = frame.view::<{ Ipv6Hdr::LEN }>(network_at)?;
            Some(Address::v6(header.u64_ne::<V6_DESTINATION>(), header.u64_ne::<{ V6_DESTINATION + 8 }>()))
        }
    }
}

/// What an IP packet carries. A number rather than an enum, so that [`Packet::forgotten`] can hand it on as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport(u16);

impl Transport {
    /// TCP that opens a connection: SYN set, ACK clear.
    pub const TCP_SYN: Self = Self(0);
    /// Any other TCP.
    pub const TCP: Self = Self(1);
    /// A UDP datagram.
    pub const UDP: Self = Self(2);
    /// A fragment without the transport header. What stands where ports would be is payload.
    pub const FRAGMENT: Self = Self(3);
    /// Everything else: IPv4 ICMP, tunnels, ESP, nothing at all.
    pub const OTHER: Self = Self(4);

    /// ICMPv6 of this type.
    #[inline(always)]
    pub const fn icmpv6(kind: u8) -> Self {
        Self(0x100 | kind as u16)
    }

    /// Whether the packet is TCP and has its header.
    #[inline(always)]
    pub const fn is_tcp(self) -> bool {
        self.0 <= Self::TCP.0
    }

    /// Whether the packet is ICMPv6 of the types that neighbours find each other with.
    #[inline(always)]
    pub const fn is_neighbour_discovery(self) -> bool {
        self.0 >= 0x100 | 133 && self.0 <= 0x100 | 137
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_neither_nobody_nor_a_group_nor_everybody() {
        for (first, is_one) in
            [(0, false), (1, true), (127, true), (223, true), (224, false), (240, false), (255, false)]
        {
            assert_eq!(Address::v4(u32::from_ne_bytes([first, 0, 0, 1])).is_one_host(), is_one, "{first}");
        }
        let v6 = |first: u8, last: u8| {
            Address::v6(
                u64::from_ne_bytes([first, 2, 0, 0, 0, 0, 0, 0]),
                u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, last]),
            )
        };
        assert!(v6(0x20, 1).is_one_host() && v6(0xfe, 1).is_one_host() && !v6(0xff, 1).is_one_host());
        assert!(
            !Address::v6(0, 0).is_one_host()
                && Address::v6(0, 1).is_one_host()
                && Address::v6(1, 0).is_one_host()
        );
        assert_eq!(Address::v4(0x1234_5678).v4_word(), 0x1234_5678);
    }

    #[test]
    fn a_packet_that_the_verifier_has_forgotten_is_the_same_but_for_where_its_headers_are() {
        let packet = Packet {
            source: Address::v6(1, 2),
            transport: Transport::icmpv6(135),
            port: 0xabcd,
            protocol: 58,
            network_at: 14,
            transport_at: 54,
            transport_len: 8,
            fragment: true,
            service: 0x1234,
            user: 0x4321,
        };
        let there = Packet { network_at: 0, transport_at: 0, transport_len: 0, ..packet };
        assert_eq!(packet.forgotten(0x5555), there);
        let plain = Packet { source: Address::v4(7), transport: Transport::UDP, fragment: false, ..there };
        assert_eq!(plain.forgotten(0), plain);
    }

    #[test]
    fn segments_and_datagrams_are_looked_up_by_port_and_everything_else_by_protocol() {
        let packet = |transport| Packet {
            transport,
            ..Packet {
                source: Address::v4(7),
                transport,
                port: 53,
                protocol: 17,
                network_at: 0,
                transport_at: 0,
                transport_len: 0,
                fragment: false,
                service: 0,
                user: 0,
            }
        };
        assert_eq!(packet(Transport::TCP).port_slot(), Some(port_slot(Protocol::Tcp, 53)));
        assert_eq!(packet(Transport::TCP_SYN).port_slot(), Some(port_slot(Protocol::Tcp, 53)));
        assert_eq!(packet(Transport::UDP).port_slot(), Some(port_slot(Protocol::Udp, 53)));
        for transport in [Transport::FRAGMENT, Transport::OTHER, Transport::icmpv6(1)] {
            assert_eq!(packet(transport).port_slot(), None);
        }
        assert_ne!(packet(Transport::FRAGMENT).protocol_slot(), packet(Transport::OTHER).protocol_slot());
    }
}
