//! The transport header, as far as limits need it.

use core::mem::offset_of;

use network_types::{icmp::Icmpv6Hdr, ip::IpProto, tcp::TcpHdr, udp::UdpHdr};
use ratelimit_common::abi::Reason;

use crate::{
    frame::Frame,
    packet::Transport,
    segment::{ACK, FLAGS_AT, SYN},
};

/// A transport header: its kind, its destination port (0 if it has none), its offset, and the bytes from there on.
pub(super) struct Header {
    pub(super) transport: Transport,
    pub(super) port: u16,
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Header {
    /// A fragment without the transport header.
    pub(super) const FRAGMENT: Self = Self { transport: Transport::FRAGMENT, port: 0, at: 0, len: 0 };
}

const TCP: u8 = IpProto::Tcp as u8;
const UDP: u8 = IpProto::Udp as u8;
const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// Bytes that every ICMPv6 message has: type, code and checksum.
const ICMPV6_HEADER_LEN: usize = offset_of!(Icmpv6Hdr, data);

/// Reads the parts of a transport header that limits need.
///
/// `left` is the number of bytes by the IP header. Bytes behind them are Ethernet padding, not a header: a TCP header
/// cut short by a tiny first fragment counts as truncated (RFC 1858), or its flags would come from elsewhere.
#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>, protocol: u8, at: usize, left: usize) -> Result<Header, Reason> {
    let (transport, port) = match protocol {
        TCP if left < TcpHdr::LEN => return Err(Reason::Truncated),
        TCP => {
            let header = frame.view::<{ TcpHdr::LEN }>(at).ok_or(Reason::Truncated)?;
            let opens = header.u8::<FLAGS_AT>() & (SYN | ACK) == SYN;
            (
                if opens { Transport::TCP_SYN } else { Transport::TCP },
                header.u16_be::<{ offset_of!(TcpHdr, dest) }>(),
            )
        }
        UDP if left < UdpHdr::LEN => return Err(Reason::Truncated),
        UDP => {
            let header = frame.view::<{ UdpHdr::LEN }>(at).ok_or(Reason::Truncated)?;
            (Transport::UDP, header.u16_be::<{ offset_of!(UdpHdr, dst) }>())
        }
        ICMPV6 if left < ICMPV6_HEADER_LEN => return Err(Reason::Truncated),
        ICMPV6 => {
            let header = frame.view::<ICMPV6_HEADER_LEN>(at).ok_or(Reason::Truncated)?;
            (Transport::icmpv6(header.u8::<{ offset_of!(Icmpv6Hdr, type_) }>()), 0)
        }
        _ => (Transport::OTHER, 0),
    };
    Ok(Header { transport, port, at, len: left })
}
