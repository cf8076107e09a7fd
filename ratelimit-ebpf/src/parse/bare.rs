//! Links whose frames have no header before the IP header: tunnels and the like.

use ratelimit_common::abi::Reason;

use super::ethernet::{IPV4, IPV6};
use crate::frame::Frame;

/// The EtherType of the IP version in the first byte. The type with which the frame was sent is not in its bytes: if the version
/// contradicts it, the stack drops the packet itself.
#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>) -> Result<(u16, usize), Reason> {
    // (A view of one byte would suffice, but does not compile to a comparison that the verifier recognizes.)
    match frame.view::<2>(0).ok_or(Reason::Truncated)?.u8::<0>() >> 4 {
        4 => Ok((IPV4, 0)),
        6 => Ok((IPV6, 0)),
        // MPLS, for example, which some tunnels carry.
        _ => Err(Reason::NotIp),
    }
}
