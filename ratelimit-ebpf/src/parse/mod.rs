//! From bytes to a [`Packet`].
//!
//! The rule for what cannot be parsed: a frame that is not IP passes, because no source can be made
//! responsible for it; an IP packet that cannot be followed to its transport header is dropped, because letting it
//! pass would be a way around every limit. Both are counted by reason.

mod bare;
mod ethernet;
mod ipv4;
mod ipv6;
mod transport;

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

/// Who is meant by a frame that has been parsed before: tags are in front of an address, and nothing else is.
#[inline(always)]
pub(crate) fn destination(frame: &Frame<'_>) -> Option<Address> {
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
