//! Limits beyond the buckets of every source: those of a service for each source, those of a user for all its addresses, and
//! all windows.

use ratelimit_common::abi::{Policy, Reason, user::NO_USER};

use super::{request::PacketCharge, stages::Stages, windows::Scope};

/// Whether all further limits would admit the packet.
#[inline(always)]
pub(super) fn judge<T: Stages>(tables: &T, policy: &Policy, request: &mut PacketCharge) -> Reason {
    if has_service_limits(policy, request) {
        match tables.judge_service(policy, request) {
            Reason::Conforming => {}
            reason => return reason,
        }
    }
    if request.user != NO_USER {
        match tables.judge_user(policy, request) {
            Reason::Conforming => {}
            reason => return reason,
        }
    }
    if policy.window_count != 0 { ask_windows(tables, policy, request, false) } else { Reason::Conforming }
}

/// Charges all further limits. The limits of every source are charged already, with the outcome `before`.
#[inline(always)]
pub(super) fn charge<T: Stages>(
    tables: &T,
    policy: &Policy,
    request: &mut PacketCharge,
    before: Reason,
) -> Reason {
    let mut verdict = before;
    let charged = if has_service_limits(policy, request) {
        tables.charge_service(policy, request)
    } else {
        Some(Reason::Conforming)
    };
    // A stage of its own, because nested calls share one small stack.
    let reason = match charged {
        Some(reason) => reason,
        None => tables.open_service(policy, request),
    };
    if !reason.admits() {
        return reason;
    }
    verdict = verdict.and(reason);
    if request.user != NO_USER {
        let reason = tables.charge_user(policy, request);
        if !reason.admits() {
            return reason;
        }
        verdict = verdict.and(reason);
    }
    if policy.window_count != 0 {
        let reason = ask_windows(tables, policy, request, true);
        if !reason.admits() {
            return reason;
        }
        verdict = verdict.and(reason);
    }
    verdict
}

/// Whether the packet's service has limits for each source. Computed again each time: the verifier would carry the answer through
/// everything in between.
#[inline(always)]
fn has_service_limits(policy: &Policy, request: &PacketCharge) -> bool {
    request.per_source(policy).is_some_and(|set| set.limit_count != 0)
}

/// Charges or judges all windows that apply to a packet.
#[inline(always)]
fn ask_windows<T: Stages>(tables: &T, policy: &Policy, request: &PacketCharge, charging: bool) -> Reason {
    let mut verdict = Reason::Conforming;
    for scope in [Scope::Source, Scope::Service, Scope::User] {
        let reason = tables.ask_windows(policy, request, scope, charging);
        if !reason.admits() {
            return reason;
        }
        verdict = verdict.and(reason);
    }
    verdict
}
