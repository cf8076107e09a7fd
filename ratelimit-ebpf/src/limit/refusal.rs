//! Refusals on their way to the daemon.

use ratelimit_common::{
    abi::{Policy, Reason, SourceKey},
    limit::gcra::{self, MAX_AMOUNT},
};

use super::{leaves::Leaves, request::PacketCharge};
use crate::{packet::Packet, report::Refused};

/// Returns the reason, after a drop event for the daemon if it is a refusal.
#[inline(always)]
pub(super) fn reported<T: Leaves>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    reason: Reason,
) -> Reason {
    if !reason.admits() {
        tables.report(policy, request, reason);
    }
    reason
}

/// Sends the daemon a drop event for a packet that was refused before any limit, if one is due.
#[inline(always)]
pub fn report_unasked<T: Leaves>(
    tables: &T,
    policy: &Policy,
    (packet, source): (&Packet, SourceKey),
    len: u64,
    now_ns: u64,
    reason: Reason,
) {
    let len = if len > MAX_AMOUNT { MAX_AMOUNT as u32 } else { len as u32 };
    let refused = Refused::new(reason, packet.source.family as u16, packet.port, packet.service, len);
    tables.report_unasked(policy, source.hi, source.lo, refused, gcra::time_q8(now_ns));
}
