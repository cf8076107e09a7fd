//! The ICMP error that any other packet gets.

use crate::{
    frame::Frame,
    notes::Notes,
    packet::{Address, Family, Packet},
    reply::{Check, ICMP, ICMPV6, Pen, Reply, Route},
};

/// Destination unreachable, administratively prohibited (RFC 1812 5.2.7.1).
const PROHIBITED_V4: u32 = 3 << 24 | 13 << 16;
/// The same of IPv6 (RFC 4443 3.1).
const PROHIBITED_V6: u32 = 1 << 24 | 1 << 16;
/// Bytes of the transport header that an error repeats, at least: both ports are in them.
const REPEATED: usize = 8;

/// An error that repeats the headers of the packet. None for a packet with IP options or extension headers, which would have to be
/// repeated too.
#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    frame: &Frame<'_>,
    packet: &Packet,
    destination: Address,
) -> Option<Reply> {
    let mut error = Pen::new(notes);
    let (words, protocol) = match packet.source.family {
        Family::V4 => {
            if packet.transport_at != packet.network_at + 20 {
                return None;
            }
            let header = frame.view::<{ 20 + REPEATED }>(packet.network_at)?;
            error.body(0, PROHIBITED_V4.to_be());
            error.body(2, header.u32_ne::<0>());
            error.body(3, header.u32_ne::<4>());
            error.body(4, header.u32_ne::<8>());
            error.body(5, header.u32_ne::<12>());
            error.body(6, header.u32_ne::<16>());
            error.body(7, header.u32_ne::<20>());
            error.body(8, header.u32_ne::<24>());
            (9, ICMP)
        }
        Family::V6 => {
            if packet.transport_at != packet.network_at + 40 {
                return None;
            }
            let header = frame.view::<{ 40 + REPEATED }>(packet.network_at)?;
            error.body(0, PROHIBITED_V6.to_be());
            error.body(2, header.u32_ne::<0>());
            error.body(3, header.u32_ne::<4>());
            error.body(4, header.u32_ne::<8>());
            error.body(5, header.u32_ne::<12>());
            error.body(6, header.u32_ne::<16>());
            error.body(7, header.u32_ne::<20>());
            error.body(8, header.u32_ne::<24>());
            error.body(9, header.u32_ne::<28>());
            error.body(10, header.u32_ne::<32>());
            error.body(11, header.u32_ne::<36>());
            error.body(12, header.u32_ne::<40>());
            error.body(13, header.u32_ne::<44>());
            (14, ICMPV6)
        }
    };
    // Unused, but for routers that say more.
    error.body(1, 0);
    let route =
        Route { source: destination, destination: packet.source, protocol, network_at: packet.network_at };
    Some(Reply::with_body(error, words, Check::Lower(0), &route))
}
