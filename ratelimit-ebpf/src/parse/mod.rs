//! From bytes to a [`Packet`].
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

/// Parses one frame. `Err` is a final reason, which may be one to pass.
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

/// The source address of a frame that has been parsed before and is IPv6.
#[inline(always)]
pub(crate) fn v6_source(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = link_header(frame).ok()?;
    if ether_type == ethernet::IPV6 { packet::v6_source(frame, at) } else { None }
}

/// The length that an IP header says, from `at` on, or what it means by none.
///
/// Where the kernel merges segments before we see them (generic mode), a packet may be longer than the field can say. It is then 0
/// (BIG TCP), and the packet ends with its frame. Only such a packet may say so: no network delivers one.
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

/// The destination address of a frame that has been parsed before: tags are in front of an address, and nothing else is.
#[inline(always)]
pub fn destination(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = link_header(frame).ok()?;
    match ether_type {
        ethernet::IPV4 => packet::destination(frame, Family::V4, at),
        ethernet::IPV6 => packet::destination(frame, Family::V6, at),
        _ => None,
    }
}

/// What a frame carries, as an EtherType, and where that starts.
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

    /// TCP without options in a frame of so many bytes behind the Ethernet header, which says that it has no length.
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
}
