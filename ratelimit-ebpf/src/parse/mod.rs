//! Parses the bytes of a frame into a [`Packet`].
//!
//! The rule for what cannot be parsed: a frame that is not IP passes, because no source can be made
//! responsible for it; an IP packet that cannot be followed to its transport header is dropped, because letting it
//! pass would be a way around every limit. Both are counted by reason.

mod bare;
mod brief;
mod ethernet;
mod ipv4;
mod ipv6;
mod transport;

pub use brief::{Brief, brief_v4, brief_v6, network};
use ratelimit_common::abi::Reason;

use crate::{
    frame::{Frame, Link},
    packet::{self, Address, Family, Packet},
};

/// Parses one frame. `Err` is a final reason, with which the frame may pass.
#[inline(always)]
pub fn parse(frame: &Frame<'_>) -> Result<Packet, Reason> {
    let (ether_type, at) = link_header(frame)?;
    match ether_type {
        ethernet::IPV4 => ipv4::parse(frame, at),
        ethernet::IPV6 => ipv6::parse(frame, at),
        ethernet::ARP => Err(Reason::Arp),
        _ => Err(Reason::NotIp),
    }
}

/// The hardware address that a frame was sent from; `None` if its link has none.
#[inline(always)]
pub(crate) fn hardware_source(frame: &Frame<'_>) -> Option<u64> {
    match frame.link() {
        Link::Ethernet => ethernet::source(frame),
        Link::Ip => None,
    }
}

/// The source address of a frame that was parsed before, if it is IPv6.
#[inline(always)]
pub(crate) fn v6_source(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = link_header(frame).ok()?;
    if ether_type == ethernet::IPV6 { packet::v6_source(frame, at) } else { None }
}

/// The length of a packet from `at` on, by the length field of its IP header.
///
/// If the kernel merges segments before the program sees them (generic mode), a packet may be longer than the field can express. The field is then 0
/// (BIG TCP), and the packet ends with its frame. Only such long packets may have 0: no network delivers one.
#[inline(always)]
fn said_len(frame: &Frame<'_>, at: usize, said: u16) -> usize {
    let there = frame.len().saturating_sub(at as u64);
    if said == 0 && there > u16::MAX as u64 { there as usize } else { said as usize }
}

/// The source address of a frame that is IP.
#[inline(always)]
pub fn source(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = link_header(frame).ok()?;
    match ether_type {
        ethernet::IPV4 => packet::ends(frame, Family::V4, at).map(|(source, _)| source),
        ethernet::IPV6 => packet::v6_source(frame, at),
        _ => None,
    }
}

/// The destination address of a frame that was parsed before: only tags come before the IP header.
#[inline(always)]
pub fn destination(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = link_header(frame).ok()?;
    match ether_type {
        ethernet::IPV4 => packet::destination(frame, Family::V4, at),
        ethernet::IPV6 => packet::destination(frame, Family::V6, at),
        _ => None,
    }
}

/// The EtherType of a frame's payload, and the payload's offset.
#[inline(always)]
fn link_header(frame: &Frame<'_>) -> Result<(u16, usize), Reason> {
    match frame.link() {
        Link::Ethernet => ethernet::parse(frame),
        Link::Ip => bare::parse(frame),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;
    use crate::packet::Transport;

    /// A TCP packet without options in a frame of `len` bytes behind the Ethernet header, with a length field of 0.
    fn unsaid(family: Family, len: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + len];
        let header: &[u8] = match family {
            Family::V4 => &[0x08, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6],
            Family::V6 => &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64],
        };
        frame[12..12 + header.len()].copy_from_slice(header);
        frame
    }

    #[test]
    fn no_length_means_all_of_the_frame_where_no_length_could_say_it() {
        let parsed = |family, len| {
            parse(&Frame::new(Link::Ethernet, &unsaid(family, len))).map(|packet| packet.transport_len)
        };
        assert_eq!(parsed(Family::V4, 65_535), Err(Reason::BadIpHeader));
        assert_eq!(parsed(Family::V4, 65_536), Ok(65_516));
        assert_eq!(parsed(Family::V4, 200_000), Ok(199_980));
        assert_eq!(parsed(Family::V6, 40 + 65_535), Err(Reason::Truncated));
        assert_eq!(parsed(Family::V6, 40 + 65_536), Ok(65_536));
        assert_eq!(
            (parsed(Family::V4, 60), parsed(Family::V6, 60)),
            (Err(Reason::BadIpHeader), Err(Reason::Truncated))
        );
    }

    /// An IPv6 packet in a frame of 200 bytes, with a given next header and payload length.
    fn behind_v6(next: u8, payload: &[u8], said: u16) -> Vec<u8> {
        let mut frame = vec![0; 200];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&said.to_be_bytes());
        frame[20..22].copy_from_slice(&[next, 64]);
        frame[22] = 0x20;
        frame[54..54 + payload.len()].copy_from_slice(payload);
        frame
    }

    #[test]
    fn headers_behind_ipv6_fit_into_what_the_packet_says_it_has_and_not_into_the_frame() {
        const UDP: u8 = 17;
        const TCP: u8 = 6;
        const ICMPV6: u8 = 58;
        const NOTHING: u8 = 59;
        let [options, fragment] = [60, 44];
        // The second byte of a fragment header is reserved, and its value ignored.
        let first_piece = |next| [next, 5, 0, 1, 0, 0, 0, 9];
        type Read = Result<(Transport, usize, usize), Reason>;
        let rows: [(&str, u8, [u8; 8], u16, Read); 12] = [
            (
                "an extension that is all there is",
                options,
                [NOTHING, 0, 0, 0, 0, 0, 0, 0],
                8,
                Ok((Transport::OTHER, 62, 0)),
            ),
            (
                "an extension that is not all there",
                options,
                [NOTHING, 0, 0, 0, 0, 0, 0, 0],
                7,
                Err(Reason::Truncated),
            ),
            (
                "a segment behind an extension",
                options,
                [TCP, 0, 0, 0, 0, 0, 0, 0],
                28,
                Ok((Transport::TCP, 62, 20)),
            ),
            ("a byte less", options, [TCP, 0, 0, 0, 0, 0, 0, 0], 27, Err(Reason::Truncated)),
            ("a first piece", fragment, first_piece(UDP), 16, Ok((Transport::UDP, 62, 8))),
            ("a first piece without a whole header", fragment, first_piece(UDP), 15, Err(Reason::Truncated)),
            ("a segment", TCP, [0; 8], 20, Ok((Transport::TCP, 54, 20))),
            ("a segment that is cut", TCP, [0; 8], 19, Err(Reason::Truncated)),
            ("a datagram", UDP, [0; 8], 8, Ok((Transport::UDP, 54, 8))),
            ("a datagram that is cut", UDP, [0; 8], 7, Err(Reason::Truncated)),
            ("an echo", ICMPV6, [128, 0, 0, 0, 0, 0, 0, 0], 4, Ok((Transport::icmpv6(128), 54, 4))),
            ("an echo that is cut", ICMPV6, [128, 0, 0, 0, 0, 0, 0, 0], 3, Err(Reason::Truncated)),
        ];
        for (name, next, payload, said, expected) in rows {
            let bytes = behind_v6(next, &payload, said);
            let parsed = parse(&Frame::new(Link::Ethernet, &bytes));
            let found = parsed.map(|packet| (packet.transport, packet.transport_at, packet.transport_len));
            assert_eq!(found, expected, "{name}");
        }
    }
}
