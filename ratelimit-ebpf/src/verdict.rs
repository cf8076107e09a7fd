//! The end of every frame: its verdict, and the one counter that counts it.

use ratelimit_common::abi::{
    Mode, Policy, Reason, Verdict,
    counter::{Fate, slot},
    service::MAX_SERVICES,
    user::NO_USER,
};

use crate::{
    limit::{self, Leaves},
    tables::{Relay, Successor, Tables, TailCallContext},
};

/// Counts a frame that ends with a reason, and returns its verdict.
#[inline(always)]
pub(crate) fn conclude<T: Leaves, R: Relay>(
    tables: &T,
    relay: &R,
    policy: Option<&Policy>,
    service: u32,
    reason: Reason,
    len: u64,
) -> Verdict {
    let (reason, fate) = match policy {
        Some(policy) if policy.lenient != 0 && reason.verdict() == Verdict::Drop => {
            within_host(tables, policy, reason, policy.fate(service, reason), len)
        }
        _ => (reason, Fate::Decided),
    };
    let fate = match fate {
        Fate::Decided | Fate::Waived => fate,
        Fate::Marked | Fate::Rejected => {
            let to = if fate == Fate::Marked { Successor::Mark } else { Successor::Reject };
            relay.hand_over(to, TailCallContext { otherwise: reason, service, user: NO_USER });
            // The tail call failed: there is no such program.
            Fate::Decided
        }
    };
    count(tables, service, reason, fate, len);
    if fate == Fate::Waived { Verdict::Pass } else { reason.verdict() }
}

/// The reason and fate of a packet after the host's total, which a packet that a service lets pass although a limit refuses it is charged to: no service opens the host.
/// A policy on trial drops nothing for that either.
#[inline(always)]
pub fn within_host<T: Leaves>(
    tables: &T,
    policy: &Policy,
    reason: Reason,
    fate: Fate,
    len: u64,
) -> (Reason, Fate) {
    let passes = matches!(fate, Fate::Waived | Fate::Marked);
    if !passes || policy.host_total_count == 0 || policy.mode == Mode::Monitor as u32 {
        return (reason, fate);
    }
    if limit::charge_host(tables, policy, len) { (reason, fate) } else { (Reason::HostTotal, Fate::Decided) }
}

/// Counts a frame of a service, by its reason and fate.
#[inline(always)]
pub(crate) fn count<T: Tables>(tables: &T, service: u32, reason: Reason, fate: Fate, len: u64) {
    tables.count(slot(service.min(MAX_SERVICES as u32), reason, fate), len);
}

#[cfg(test)]
mod tests;
