//! Refusals on their way to the daemon.

use ratelimit_common::{
    abi::{Policy, Reason, SourceKey},
    limit::gcra::{self, MAX_AMOUNT},
};

use super::{Stages, request::Request};
use crate::{
    packet::Packet,
    report::{self, Refused},
    tables::Tables,
};

/// The reason, of which the daemon has been told if it is a refusal.
#[inline(always)]
pub(super) fn reported<T: Stages>(tables: &T, policy: &Policy, request: &Request, reason: Reason) -> Reason {
    if !reason.admits() {
        tables.report(policy, request, reason);
    }
    reason
}

/// Tells the daemon of a packet that a limit refused, if it is time to.
#[inline(always)]
pub fn report<T: Tables>(tables: &T, policy: &Policy, request: &Request, reason: Reason) {
    report::report(tables, policy, request.key, request.refused(reason), request.now_q8);
}

/// Tells the daemon of a packet that no limit was asked about, if it is time to.
#[inline(always)]
pub fn report_unasked<T: Stages>(
    tables: &T,
    policy: &Policy,
    (packet, source): (&Packet, SourceKey),
    len: u64,
    now_ns: u64,
    reason: Reason,
) {
    let len = if len > MAX_AMOUNT { MAX_AMOUNT as u32 } else { len as u32 };
    let refused = Refused::new(reason, packet.source.family as u16, packet.port, packet.service, len);
    tables.report_unasked(policy, source, refused, gcra::time_q8(now_ns));
}
