//! Limits beyond the buckets of every source: what one source may have of a service, what a user may have with all its addresses, and
//! whatever is counted in windows.

use ratelimit_common::abi::{LimitSet, Policy, Reason, user::NO_USER};

use super::{Stages, denial, entry, lease, request::Request, standing::Standing, total, window};

/// Which of them there are for a packet.
#[derive(Clone, Copy)]
pub(super) struct Further {
    service: bool,
    user: bool,
    windows: bool,
}

impl Further {
    #[inline(always)]
    pub(super) fn of(policy: &Policy, request: &Request) -> Self {
        Self {
            service: per_source(policy, request).is_some_and(|set| set.limit_count != 0),
            user: request.user != NO_USER,
            windows: policy.window_count != 0,
        }
    }

    /// Whether all of them would admit the packet.
    #[inline(always)]
    pub(super) fn judge<T: Stages>(self, tables: &T, policy: &Policy, request: &mut Request) -> Reason {
        if self.service {
            match tables.judge_service(policy, request) {
                Reason::Conforming => {}
                reason => return reason,
            }
        }
        if self.user {
            match tables.judge_user(policy, request) {
                Reason::Conforming => {}
                reason => return reason,
            }
        }
        if self.windows { window::ask_all(tables, policy, request, false) } else { Reason::Conforming }
    }

    /// Charges all of them. The limits of every source have been charged already and said `before`.
    #[inline(always)]
    pub(super) fn charge<T: Stages>(
        self,
        tables: &T,
        policy: &Policy,
        request: &mut Request,
        before: Reason,
    ) -> Reason {
        let mut verdict = before;
        let charged =
            if self.service { tables.charge_service(policy, request) } else { Some(Reason::Conforming) };
        // A stage of its own, because calls within calls share one small stack.
        let reason = match charged {
            Some(reason) => reason,
            None => tables.open_service(policy, request),
        };
        if !reason.admits() {
            return reason;
        }
        verdict = verdict.and(reason);
        if self.user {
            let reason = tables.charge_user(policy, request);
            if !reason.admits() {
                return reason;
            }
            verdict = verdict.and(reason);
        }
        if self.windows {
            let reason = window::ask_all(tables, policy, request, true);
            if !reason.admits() {
                return reason;
            }
            verdict = verdict.and(reason);
        }
        verdict
    }
}

/// Whether what one source may have of the service would admit the packet.
#[inline(always)]
pub fn judge_service<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Reason {
    let Some(set) = per_source(policy, request) else { return Reason::Conforming };
    request.as_service(policy, set, |request| {
        if let Some(cell) = denial::cell(tables, set, request)
            && let Some(reason) = denial::check(tables, policy, cell, request.hash, request.now_q8)
        {
            return reason;
        }
        Standing::of(tables, policy, set, request).refusal().unwrap_or(Reason::Conforming)
    })
}

/// Charges what one source may have of the service; `None` if it needs an entry for that.
#[inline(always)]
pub fn charge_service<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Option<Reason> {
    let Some(set) = per_source(policy, request) else { return Some(Reason::Conforming) };
    request.as_service(policy, set, |request| {
        Standing::of(tables, policy, set, request).charge_existing(tables, set, request)
    })
}

/// Makes an entry for what one source may have of the service, charged for the packet.
#[inline(always)]
pub fn open_service<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Reason {
    let Some(set) = per_source(policy, request) else { return Reason::Conforming };
    request.as_service(policy, set, |request| entry::open(tables, policy, set, request))
}

/// Whether the limits of its user would admit the packet.
#[inline(always)]
pub fn judge_user<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Reason {
    match user(tables, policy, request) {
        Some((set, bucket)) => {
            let user = request.user as u32 - 1;
            let judge = |request: &mut Request| {
                if set.has_leased() {
                    lease::judge(tables, set, request, user);
                }
                tables.judge_entry(policy, set, request, bucket)
            };
            match request.as_user(policy, set, judge) {
                Reason::Conforming => Reason::Conforming,
                _ => Reason::LimitUser,
            }
        }
        None => Reason::Conforming,
    }
}

/// Charges the limits of its user.
#[inline(always)]
pub fn charge_user<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Reason {
    match user(tables, policy, request) {
        Some((set, bucket)) => {
            let user = request.user as u32 - 1;
            let charge = |request: &mut Request| {
                if set.has_leased() {
                    lease::charge(tables, set, request, user);
                }
                tables.charge_entry(set, request, bucket)
            };
            match request.as_user(policy, set, charge) {
                reason @ (Reason::Conforming | Reason::SoftMargin | Reason::Contended) => reason,
                _ => Reason::LimitUser,
            }
        }
        None => Reason::Conforming,
    }
}

#[inline(always)]
pub(super) fn per_source<'p>(policy: &'p Policy, request: &Request) -> Option<&'p LimitSet> {
    let (_, service) = total::service(policy, request.service as u32)?;
    Some(&service.per_source)
}

/// The limits of the user and its buckets, which all its addresses share.
#[inline(always)]
fn user<'t, T: Stages>(
    tables: &'t T,
    policy: &Policy,
    request: &Request,
) -> Option<(&'t LimitSet, T::Bucket)> {
    if request.user == NO_USER || policy.user_count == 0 {
        return None;
    }
    let index = request.user as u32 - 1;
    let set = tables.user_limits(policy.tables, index)?;
    if set.limit_count == 0 { None } else { Some((set, tables.user(index)?)) }
}
