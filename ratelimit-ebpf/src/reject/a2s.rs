//! The challenge of queries to game servers: a number that only the owner of the source address sees, and that its next query repeats.
//!
//! ```text
//!   A2S_INFO              ff ff ff ff  54  "Source Engine Query" 00  [number]
//!   A2S_PLAYER, A2S_RULES ff ff ff ff  55, 56  number
//!   S2C_CHALLENGE         ff ff ff ff  41  number
//! ```
//! Servers have such a challenge of their own, and clients repeat their query with each number that they get. So a query with the right number is answered with a
//! challenge as well, and its source is known to the service from then on: its next query reaches the server.

use network_types::{
    ip::{Ipv4Hdr, Ipv6Hdr},
    udp::UdpHdr,
};
use ratelimit_common::limit::sip_hash;

use crate::{
    frame::Frame,
    notes::Notes,
    packet::{Address, Family, Packet},
    reply::{Check, Pen, ReplyFrame, Route, UDP},
};

const CONNECTIONLESS: u32 = 0xffff_ffff;
const INFO: u8 = 0x54;
const PLAYER: u8 = 0x55;
const RULES: u8 = 0x56;
const CHALLENGE: u32 = 0x41;
const TEXT: &[u8; 20] = b"Source Engine Query\0";
/// Bytes of a datagram with the mark, the kind and a number.
const SHORT: usize = UdpHdr::LEN + 9;
/// Bytes of a datagram that asks for information without a number.
const ASKING: usize = UdpHdr::LEN + 5 + TEXT.len();
/// Words of a challenge that are written. The last byte of its number stays what the query has there.
const WORDS: usize = 4;

/// A query to a game server.
pub(super) struct Query {
    /// The upper 24 bits of the number that the query repeats.
    pub(super) number: Option<u32>,
    ports: u32,
    last_byte: u8,
}

/// The upper 24 bits of the numbers for a source now, and in the minute before.
#[inline(always)]
pub(super) fn numbers(source: Address, secret: [u64; 2], now_ns: u64) -> [u32; 2] {
    // 69 s.
    let minute = now_ns >> 36;
    let number = |minute| (sip_hash::hash(secret, [source.key.hi, source.key.lo, minute]) >> 40) as u32;
    [number(minute), number(minute.wrapping_sub(1))]
}

/// Reads a query; `None` for what is none, or does not stand behind plain headers.
#[inline(always)]
pub(super) fn read(frame: &Frame<'_>, packet: &Packet) -> Option<Query> {
    let header = match packet.source.family {
        Family::V4 => Ipv4Hdr::LEN,
        Family::V6 => Ipv6Hdr::LEN,
    };
    if packet.transport_at != packet.network_at + header {
        return None;
    }
    let start = frame.view::<SHORT>(packet.transport_at)?;
    let len = usize::from(start.u16_be::<4>());
    if len > packet.transport_len || start.u32_ne::<8>() != CONNECTIONLESS {
        return None;
    }
    let number = match (start.u8::<12>(), len) {
        (PLAYER | RULES, SHORT) => Some(start.u32_be::<13>() >> 8),
        (INFO, ASKING) if has_text(frame, packet)? => None,
        (INFO, WITH_NUMBER) if has_text(frame, packet)? => {
            Some(frame.view::<4>(packet.transport_at + ASKING)?.u32_be::<0>() >> 8)
        }
        _ => return None,
    };
    Some(Query { number, ports: start.u32_ne::<0>(), last_byte: start.u8::<16>() })
}

const WITH_NUMBER: usize = ASKING + 4;

#[inline(always)]
fn has_text(frame: &Frame<'_>, packet: &Packet) -> Option<bool> {
    let text = frame.view::<{ TEXT.len() }>(packet.transport_at + UdpHdr::LEN + 5)?;
    let mut differs = 0;
    text.u32s_ne::<{ TEXT.len() / 4 }>(|at, word| {
        let expected =
            u32::from_ne_bytes([TEXT[at * 4], TEXT[at * 4 + 1], TEXT[at * 4 + 2], TEXT[at * 4 + 3]]);
        differs |= word ^ expected;
    });
    Some(differs == 0)
}

/// Builds the challenge for the sender of a query: never longer than the query.
#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    query: &Query,
    packet: &Packet,
    destination: Address,
    number: u32,
) -> ReplyFrame {
    let mut challenge = Pen::new(notes);
    challenge.body(0, query.ports.rotate_left(16));
    challenge.body(1, ((SHORT as u32) << 16).to_be());
    challenge.body(2, CONNECTIONLESS);
    challenge.body(3, (CHALLENGE << 24 | number).to_be());
    challenge.keep(1, u64::from(u32::from_ne_bytes([query.last_byte, 0, 0, 0])));
    let route = Route {
        source: destination,
        destination: packet.source,
        protocol: UDP,
        network_at: packet.network_at,
    };
    ReplyFrame::with_body(challenge, WORDS as u32, Check::Lower(1), &route)
}
