//! The reset that answers a refused TCP segment.

use crate::{
    notes::Notes,
    packet::Packet,
    reply::{Check, Pen, ReplyFrame, Route, TCP, tcp},
    segment::{ACK, FIN, RST, SYN, Segment},
};

const WORDS: u32 = tcp::OPTIONS as u32;

/// Builds a reset as RFC 9293 (3.10.7.1) defines it for a connection that does not exist; `None` for a reset.
#[inline(always)]
pub(super) fn build<N: Notes>(notes: &N, segment: &Segment, packet: &Packet) -> Option<ReplyFrame> {
    let flags = segment.flags();
    if flags & RST != 0 {
        return None;
    }
    // A segment with an acknowledgement names the sequence number that its sender expects; for any other, everything in it is acknowledged.
    let (sequence, acknowledged, ours) = if flags & ACK != 0 {
        (segment.acknowledged(), 0, RST)
    } else {
        let data = packet.transport_len.saturating_sub(segment.header_len()) as u32;
        let length = data + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, segment.sequence().wrapping_add(length).to_be(), RST | ACK)
    };
    let mut header = Pen::new(notes);
    header.body(tcp::PORTS, segment.ports().rotate_left(16));
    header.body(tcp::SEQUENCE, sequence);
    header.body(tcp::ACKNOWLEDGED, acknowledged);
    header.body(tcp::SHAPE, ((WORDS << 28) | (u32::from(ours) << 16)).to_be());
    header.body(tcp::CHECKSUM, 0);
    let route = Route {
        source: segment.destination,
        destination: segment.source,
        protocol: TCP,
        network_at: packet.network_at,
    };
    Some(ReplyFrame::with_body(header, WORDS, Check::Upper(tcp::CHECKSUM), &route))
}
