//! The transport header: only what limits ask about.

use ratelimit_common::abi::Reason;

use crate::{frame::Frame, packet::Transport};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

const TCP_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
const ICMPV6_HEADER_LEN: usize = 4;

const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

/// The transport and its destination port, 0 without one.
///
/// `left` is what the IP header says is there. Bytes behind it are Ethernet padding, not a header: a TCP header
/// cut short by a tiny first fragment counts as truncated (RFC 1858), or its flags would come from elsewhere.
#[inline(always)]
pub(super) fn parse(
    frame: &Frame<'_>,
    protocol: u8,
    at: usize,
    left: usize,
) -> Result<(Transport, u16), Reason> {
    match protocol {
        TCP if left < TCP_HEADER_LEN => Err(Reason::Truncated),
        TCP => {
            let header = frame.view::<TCP_HEADER_LEN>(at).ok_or(Reason::Truncated)?;
            let opens = header.u8::<13>() & (TCP_SYN | TCP_ACK) == TCP_SYN;
            Ok((if opens { Transport::TcpSyn } else { Transport::Tcp }, header.u16_be::<2>()))
        }
        UDP if left < UDP_HEADER_LEN => Err(Reason::Truncated),
        UDP => {
            let header = frame.view::<UDP_HEADER_LEN>(at).ok_or(Reason::Truncated)?;
            Ok((Transport::Udp, header.u16_be::<2>()))
        }
        ICMPV6 if left < ICMPV6_HEADER_LEN => Err(Reason::Truncated),
        ICMPV6 => {
            let header = frame.view::<ICMPV6_HEADER_LEN>(at).ok_or(Reason::Truncated)?;
            Ok((Transport::Icmpv6(header.u8::<0>()), 0))
        }
        _ => Ok((Transport::Other, 0)),
    }
}
