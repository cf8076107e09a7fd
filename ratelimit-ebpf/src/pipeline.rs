//! The packet flow, in one function.

use ratelimit_common::abi::{Clock, Reason, Verdict};

use crate::{
    classify::classify,
    frame::Frame,
    limit::{Stages, limit},
    parse::parse,
    tables::Relay,
};

/// Decides about one frame and counts it.
#[inline(always)]
pub fn process<T: Stages, R: Relay>(frame: &Frame<'_>, tables: &T, relay: &R) -> Verdict {
    let reason = judge(frame, tables, relay);
    tables.count(reason, frame.len());
    reason.verdict()
}

#[inline(always)]
fn judge<T: Stages, R: Relay>(frame: &Frame<'_>, tables: &T, relay: &R) -> Reason {
    let packet = match parse(frame) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let now_ns = tables.now_ns(Clock::Coarse);
    if let Some(reason) = classify(tables, packet.source, now_ns) {
        return reason;
    }
    if policy.source.limit_count == 0 {
        return Reason::Unlimited;
    }
    limit(tables, relay, policy, &packet, frame.len(), now_ns)
}
