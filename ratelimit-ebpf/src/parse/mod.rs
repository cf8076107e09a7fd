//! From bytes to a [`Packet`].
//!
//! The rule for what cannot be parsed: a frame that is not IP passes, because no source can be made
//! responsible for it; an IP packet that cannot be followed to its transport header is dropped, because letting it
//! pass would be a way around every limit. Both are counted by reason.

mod ethernet;
mod ipv4;
mod ipv6;
mod transport;

use ratelimit_common::abi::Reason;

use crate::{
    frame::Frame,
    packet::{self, Address, Family, Packet},
};

/// Parses one frame. `Err` is a final reason, which may be one to pass.
#[inline(always)]
pub fn parse(frame: &Frame<'_>) -> Result<Packet, Reason> {
    let (ether_type, at) = ethernet::parse(frame)?;
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
    ethernet::source(frame)
}

/// Who sent a frame that has been parsed before and is IPv6.
#[inline(always)]
pub(crate) fn v6_source(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = ethernet::parse(frame).ok()?;
    if ether_type == ethernet::IPV6 { packet::v6_source(frame, at) } else { None }
}

/// Who is meant by a frame that has been parsed before: tags are in front of an address, and nothing else is.
#[inline(always)]
pub(crate) fn destination(frame: &Frame<'_>) -> Option<Address> {
    let (ether_type, at) = ethernet::parse(frame).ok()?;
    match ether_type {
        ethernet::IPV4 => packet::destination(frame, Family::V4, at),
        ethernet::IPV6 => packet::destination(frame, Family::V6, at),
        _ => None,
    }
}
