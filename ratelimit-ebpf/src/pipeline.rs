//! The packet flow, in one function.

use ratelimit_common::abi::{Clock, Reason, Verdict};

use crate::{
    classify::classify,
    frame::Frame,
    limit::{defended, limit},
    packet::Transport,
    parse::parse,
    tables::{Successor, Tables},
};

/// Decides about one frame and counts it.
#[inline(always)]
pub fn process<T: Tables>(frame: &Frame<'_>, tables: &T) -> Verdict {
    let reason = judge(frame, tables);
    tables.count(reason, frame.len());
    reason.verdict()
}

#[inline(always)]
fn judge<T: Tables>(frame: &Frame<'_>, tables: &T) -> Reason {
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
    if packet.transport == Transport::Tcp && defended(tables, policy, &packet, now_ns) {
        tables.hand_over(Successor::Prove);
        // Still here: this kernel has no such program, and the limits alone must do. Some kernels hold that packet bytes may
        // have changed meanwhile; nothing below reads any.
    }
    limit(tables, policy, &packet, frame.len(), now_ns)
}
