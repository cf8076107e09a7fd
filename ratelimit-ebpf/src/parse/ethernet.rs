//! Ethernet, with up to two VLAN tags.

use core::mem::offset_of;

use network_types::{
    eth::{EthHdr, EtherType},
    vlan::VlanHdr,
};
use ratelimit_common::abi::Reason;

use crate::{forget::forget, frame::Frame};

pub(super) const IPV4: u16 = number(EtherType::Ipv4);
pub(super) const IPV6: u16 = number(EtherType::Ipv6);
pub(super) const ARP: u16 = number(EtherType::Arp);
pub(super) const TAG: u16 = number(EtherType::Ieee8021q);
const SERVICE_TAG: u16 = number(EtherType::Ieee8021ad);
/// The EtherType of outer tags before 802.1ad.
const OLD_SERVICE_TAG: u16 = number(EtherType::Ieee8021QinQ1);

/// 802.1Q inside 802.1ad: what Linux accepts on a VLAN on a VLAN.
const MAX_TAGS: usize = 2;

/// The largest offset of the payload, as a mask.
const MAX_AT: usize = 0x1f;
const _: () = assert!(EthHdr::LEN + MAX_TAGS * VlanHdr::LEN <= MAX_AT);

/// The EtherType behind any tags, and the offset of its payload.
#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>) -> Result<(u16, usize), Reason> {
    let header = frame.view::<{ EthHdr::LEN }>(0).ok_or(Reason::Truncated)?;
    let mut ether_type = header.u16_be::<{ offset_of!(EthHdr, ether_type) }>();
    let mut at = EthHdr::LEN;
    for _ in 0..MAX_TAGS {
        if !is_tag(ether_type) {
            break;
        }
        let tag = frame.view::<{ VlanHdr::LEN }>(at).ok_or(Reason::Truncated)?;
        ether_type = tag.u16_be::<{ offset_of!(VlanHdr, ether_type) }>();
        at += VlanHdr::LEN;
    }
    if is_tag(ether_type) {
        return Err(Reason::VlanDepth);
    }
    // Forgotten, or the verifier would check the code for every header once for each number of tags. The mask keeps offsets up to two tags.
    Ok((ether_type, forget(at as u64, frame.len()) as usize & MAX_AT))
}

/// The hardware address that a frame was sent from; `None` if its link has none.
#[inline(always)]
pub(super) fn source(frame: &Frame<'_>) -> Option<u64> {
    let header = frame.view::<{ EthHdr::LEN }>(0)?;
    const AT: usize = offset_of!(EthHdr, src_addr);
    Some((header.u16_be::<AT>() as u64) << 32 | header.u32_be::<{ AT + 2 }>() as u64)
}

#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, TAG | SERVICE_TAG | OLD_SERVICE_TAG)
}

/// An EtherType as a number: the crate has it in memory order.
const fn number(ether_type: EtherType) -> u16 {
    u16::from_be(ether_type as u16)
}
