//! Ethernet, with up to two VLAN tags.

use ratelimit_common::abi::Reason;

use crate::frame::Frame;

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const ARP: u16 = 0x0806;

const HEADER_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// 802.1Q inside 802.1ad: what Linux accepts on a VLAN on a VLAN.
const MAX_TAGS: usize = 2;

/// The EtherType behind any tags, and where its payload starts.
#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>) -> Result<(u16, usize), Reason> {
    let header = frame.view::<HEADER_LEN>(0).ok_or(Reason::Truncated)?;
    let mut ether_type = header.u16_be::<12>();
    let mut at = HEADER_LEN;
    for _ in 0..MAX_TAGS {
        if !is_tag(ether_type) {
            return Ok((ether_type, at));
        }
        let tag = frame.view::<TAG_LEN>(at).ok_or(Reason::Truncated)?;
        ether_type = tag.u16_be::<2>();
        at += TAG_LEN;
    }
    if is_tag(ether_type) { Err(Reason::VlanDepth) } else { Ok((ether_type, at)) }
}

/// The hardware address that a frame was sent from; `None` if its link has none.
#[inline(always)]
pub(super) fn source(frame: &Frame<'_>) -> Option<u64> {
    let header = frame.view::<HEADER_LEN>(0)?;
    Some((header.u16_be::<6>() as u64) << 32 | header.u32_be::<8>() as u64)
}

/// 802.1Q, 802.1ad, and the EtherType that stacked tags had before 802.1ad.
#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}
