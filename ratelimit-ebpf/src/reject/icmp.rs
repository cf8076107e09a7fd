//! The ICMP error that answers refused packets other than TCP.

use network_types::{
    icmp::Icmpv4Hdr,
    ip::{Ipv4Hdr, Ipv6Hdr},
    udp::UdpHdr,
};

use crate::{
    frame::Frame,
    notes::Notes,
    packet::{Address, Family, Packet},
    reply::{Check, ICMP, ICMPV6, Pen, ReplyFrame, Route},
};

/// ICMP: destination unreachable, administratively prohibited (RFC 1812 5.2.7.1).
const PROHIBITED_V4: u32 = 3 << 24 | 13 << 16;
/// ICMPv6: destination unreachable, administratively prohibited (RFC 4443 3.1).
const PROHIBITED_V6: u32 = 1 << 24 | 1 << 16;
/// Bytes of the transport header that an error repeats at least: they have both ports.
const REPEATED: usize = UdpHdr::LEN;
/// The word of an error at which the refused packet begins.
const HEADER_AT: usize = Icmpv4Hdr::LEN / 4;
/// Bytes of a packet that an error repeats.
const REPEATED_V4: usize = Ipv4Hdr::LEN + REPEATED;
const REPEATED_V6: usize = Ipv6Hdr::LEN + REPEATED;

/// Builds an error that repeats the headers of the packet. `None` for a packet with IP options or extension headers, which would have to be
/// repeated too.
#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    frame: &Frame<'_>,
    packet: &Packet,
    destination: Address,
) -> Option<ReplyFrame> {
    let mut error = Pen::new(notes);
    let (words, protocol) = match packet.source.family {
        Family::V4 => {
            if packet.transport_at != packet.network_at + Ipv4Hdr::LEN {
                return None;
            }
            let header = frame.view::<REPEATED_V4>(packet.network_at)?;
            error.body(0, PROHIBITED_V4.to_be());
            header.u32s_ne::<{ REPEATED_V4 / 4 }>(|at, word| error.body(HEADER_AT + at, word));
            (HEADER_AT + REPEATED_V4 / 4, ICMP)
        }
        Family::V6 => {
            if packet.transport_at != packet.network_at + Ipv6Hdr::LEN {
                return None;
            }
            let header = frame.view::<REPEATED_V6>(packet.network_at)?;
            error.body(0, PROHIBITED_V6.to_be());
            header.u32s_ne::<{ REPEATED_V6 / 4 }>(|at, word| error.body(HEADER_AT + at, word));
            (HEADER_AT + REPEATED_V6 / 4, ICMPV6)
        }
    };
    // An unused word; some routers put more information into it.
    error.body(1, 0);
    let route =
        Route { source: destination, destination: packet.source, protocol, network_at: packet.network_at };
    Some(ReplyFrame::with_body(error, words as u32, Check::Lower(0), &route))
}
