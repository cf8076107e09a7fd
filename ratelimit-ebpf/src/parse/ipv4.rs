//! IPv4, with options.

use core::mem::offset_of;

use network_types::ip::Ipv4Hdr;
use ratelimit_common::abi::{Reason, service::NO_SERVICE, user::NO_USER};

use super::{
    said_len,
    transport::{self, Header},
};
use crate::{
    frame::Frame,
    packet::{Address, Packet},
};

const FRAGMENT_OFFSET: u16 = 0x1fff;
const MORE_FRAGMENTS: u16 = 0x2000;

#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>, at: usize) -> Result<Packet, Reason> {
    let header = frame.view::<{ Ipv4Hdr::LEN }>(at).ok_or(Reason::Truncated)?;
    let version_ihl = header.u8::<{ offset_of!(Ipv4Hdr, vihl) }>();
    let header_len = ((version_ihl & 0x0f) as usize) * 4;
    let total_len = said_len(frame, at, header.u16_be::<{ offset_of!(Ipv4Hdr, tot_len) }>());
    if version_ihl >> 4 != 4 || header_len < Ipv4Hdr::LEN || total_len < header_len {
        return Err(Reason::BadIpHeader);
    }
    if (at + total_len) as u64 > frame.len() {
        return Err(Reason::Truncated);
    }
    let protocol = header.u8::<{ offset_of!(Ipv4Hdr, proto) }>();
    let source = Address::v4(header.u32_ne::<{ offset_of!(Ipv4Hdr, src_addr) }>());
    let fragment = header.u16_be::<{ offset_of!(Ipv4Hdr, frags) }>() & (FRAGMENT_OFFSET | MORE_FRAGMENTS);
    let Header { transport, port, at: transport_at, len: transport_len } = if fragment & FRAGMENT_OFFSET != 0
    {
        Header::FRAGMENT
    } else {
        transport::parse(frame, protocol, at + header_len, total_len - header_len)?
    };
    let fragment = fragment != 0;
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
