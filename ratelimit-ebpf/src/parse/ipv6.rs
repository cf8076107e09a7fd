//! IPv6, with a bounded chain of extension headers.

use core::mem::offset_of;

use network_types::ip::{IpProto, Ipv6Hdr};
use ratelimit_common::abi::{Reason, service::NO_SERVICE, user::NO_USER};

use super::{
    said_len,
    transport::{self, Header},
};
use crate::{
    forget::forget,
    frame::{Frame, Link, MAX_OFFSET, View},
    packet::{Address, Packet},
};

/// Every extension header RFC 8200 defines, in the order it recommends, and one spare. Longer chains are only
/// seen from people testing parsers.
const MAX_EXTENSIONS: usize = 7;
/// Length in bytes of the shortest extension header; all lengths are multiples of it, or of half of it.
const MIN_EXTENSION_LEN: usize = 8;
const FRAGMENT_OFFSET: u16 = 0xfff8;
const MORE_FRAGMENTS: u16 = 0x0001;

const HOP_BY_HOP: u8 = IpProto::HopOpt as u8;
const ROUTING: u8 = IpProto::Ipv6Route as u8;
const FRAGMENT: u8 = IpProto::Ipv6Frag as u8;
const AUTHENTICATION: u8 = IpProto::Ah as u8;
const DESTINATION_OPTIONS: u8 = IpProto::Ipv6Opts as u8;
const MOBILITY: u8 = IpProto::MobilityHeader as u8;
const HIP: u8 = IpProto::Hip as u8;
const SHIM6: u8 = IpProto::Shim6 as u8;

#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>, at: usize) -> Result<Packet, Reason> {
    let header = frame.view::<{ Ipv6Hdr::LEN }>(at).ok_or(Reason::Truncated)?;
    if header.u8::<{ offset_of!(Ipv6Hdr, vcf) }>() >> 4 != 6 {
        return Err(Reason::BadIpHeader);
    }
    let payload_len =
        said_len(frame, at + Ipv6Hdr::LEN, header.u16_be::<{ offset_of!(Ipv6Hdr, payload_len) }>());
    if (at + Ipv6Hdr::LEN + payload_len) as u64 > frame.len() {
        return Err(Reason::Truncated);
    }
    let source = source(&header)?;
    let (Header { transport, port, at: transport_at, len: transport_len }, protocol, fragment) =
        follow(frame, header.u8::<{ offset_of!(Ipv6Hdr, next_hdr) }>(), at + Ipv6Hdr::LEN, payload_len)?;
    // Hop limit 255 proves that no router has forwarded the packet, so no sender beyond the link can use this exception. RFC 4861 makes
    // receivers check it, and RFC 6980 makes them ignore fragments.
    // Not on links whose frames are IP packets: they need no neighbour discovery, and a packet in a tunnel has whatever hop limit its sender wrote.
    if frame.link() == Link::Ethernet
        && transport.is_neighbour_discovery()
        && header.u8::<{ offset_of!(Ipv6Hdr, hop_limit) }>() == 255
        && !fragment
    {
        return Err(Reason::NeighbourDiscovery);
    }
    Ok(Packet {
        source,
        transport,
        port,
        protocol,
        fragment,
        network_at: at,
        transport_at,
        transport_len,
        service: NO_SERVICE as u16,
        user: NO_USER,
    })
}

#[inline(always)]
fn source(header: &View<'_, { Ipv6Hdr::LEN }>) -> Result<Address, Reason> {
    const AT: usize = offset_of!(Ipv6Hdr, src_addr);
    const LOWER_AT: usize = AT + size_of::<u64>();
    let (hi, lo) = (header.u64_ne::<AT>(), header.u64_ne::<LOWER_AT>());
    if hi == 0 && header.u32_ne::<LOWER_AT>() == u32::from_ne_bytes([0, 0, 0xff, 0xff]) {
        return Err(Reason::MappedSource);
    }
    Ok(Address::v6(hi, lo))
}

/// Walks the extension headers to the transport header. Returns the header, the number of its protocol as far as this fragment knows it, and whether this is a
/// fragment.
#[inline(always)]
fn follow(
    frame: &Frame<'_>,
    mut next: u8,
    mut at: usize,
    mut left: usize,
) -> Result<(Header, u8, bool), Reason> {
    let mut fragment = false;
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(next) {
            break;
        }
        let extension = frame.view::<MIN_EXTENSION_LEN>(at).ok_or(Reason::Truncated)?;
        if next == FRAGMENT {
            let field = extension.u16_be::<2>();
            if field & FRAGMENT_OFFSET != 0 {
                return Ok((Header::FRAGMENT, extension.u8::<0>(), true));
            }
            fragment |= field & MORE_FRAGMENTS != 0;
        }
        let len = extension_len(next, extension.u8::<1>());
        if len > left {
            return Err(Reason::Truncated);
        }
        next = extension.u8::<0>();
        left -= len;
        // Forgotten, or the verifier would follow the rest along each chain of header types. The longest chain ends below the mask.
        at = forget((at + len) as u64, frame.len()) as usize & MAX_OFFSET;
    }
    if is_extension(next) {
        return Err(Reason::ExtensionChain);
    }
    Ok((transport::parse(frame, next, at, left)?, next, fragment))
}

#[inline(always)]
fn is_extension(next: u8) -> bool {
    matches!(
        next,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6
    )
}

#[inline(always)]
fn extension_len(kind: u8, length_field: u8) -> usize {
    match kind {
        FRAGMENT => MIN_EXTENSION_LEN,
        AUTHENTICATION => (length_field as usize + 2) * (MIN_EXTENSION_LEN / 2),
        _ => (length_field as usize + 1) * MIN_EXTENSION_LEN,
    }
}
