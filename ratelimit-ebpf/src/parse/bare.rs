//! Links without a header of their own: tunnels and the like.

use ratelimit_common::abi::Reason;

use super::ethernet::{IPV4, IPV6};
use crate::frame::Frame;

/// Which IP starts the frame, as Ethernet would call it. Which of the two it was sent as is not in its bytes: where the version
/// contradicts that, the stack drops the packet itself.
#[inline(always)]
pub(super) fn parse(frame: &Frame<'_>) -> Result<(u16, usize), Reason> {
    // (A view of one byte would do, but not compile to a comparison that the verifier knows.)
    match frame.view::<2>(0).ok_or(Reason::Truncated)?.u8::<0>() >> 4 {
        4 => Ok((IPV4, 0)),
        6 => Ok((IPV6, 0)),
        // MPLS, which some tunnels carry.
        _ => Err(Reason::NotIp),
    }
}
