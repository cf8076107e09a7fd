//! All windows of one scope that apply to a packet.

use ratelimit_common::abi::{
    Clock, EntryKey, LimitSet, Policy, Reason, WindowLimit,
    user::NO_USER,
    window::{MAX_WINDOWS, SET_WINDOWS},
};

use super::{leaves::Leaves, request::PacketCharge, window::WindowCharge, word::refusal_of};
use crate::{
    budget,
    tables::{CpuBudget, InsertError},
};

/// The owner of a window's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// Windows of the limits of each source.
    Source = 0,
    /// Windows of the limits that a service has for each source.
    Service = 1,
    /// Windows of the limits of a user.
    User = 2,
}

impl Scope {
    /// The scope of this number.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Source,
            1 => Self::Service,
            _ => Self::User,
        }
    }
}

/// Charges or judges the windows of one scope. The precise clock decides: the edge of a window is one moment.
#[inline(always)]
pub fn ask<T: Leaves>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    scope: Scope,
    charging: bool,
) -> Reason {
    let Some(set) = set(tables, policy, request, scope) else { return Reason::Conforming };
    let question =
        WindowCharge { now_ns: tables.now_ns(Clock::Precise), amount: 0, charging: charging as u64 };
    let mut verdict = Reason::Conforming;
    for place in 0..SET_WINDOWS {
        let number = set.windows[place];
        if number == 0 {
            break;
        }
        // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
        let limit = &policy.windows[(number as usize).wrapping_sub(1) & (MAX_WINDOWS - 1)];
        let amount = request.amount(limit.meter as u32);
        // A soft window refuses nothing, so it is only asked when it is charged.
        if amount == 0 || (limit.soft != 0 && !charging) {
            continue;
        }
        let reason =
            one(tables, policy, request, (scope, place), limit, &WindowCharge { amount, ..question });
        if reason.admits() {
            continue;
        }
        if limit.soft == 0 {
            return if scope == Scope::User && reason.is_limit() { Reason::LimitUser } else { reason };
        }
        verdict = Reason::SoftMargin;
    }
    verdict
}

#[inline(always)]
fn set<'t, T: Leaves>(
    tables: &'t T,
    policy: &'t Policy,
    request: &PacketCharge,
    scope: Scope,
) -> Option<&'t LimitSet> {
    match scope {
        Scope::Source => Some(&policy.source.set),
        Scope::Service => request.per_source(policy),
        Scope::User if request.user == NO_USER || policy.user_count == 0 => None,
        Scope::User => tables.user_limits(policy.tables, request.user as u32 - 1),
    }
}

#[inline(always)]
fn one<T: Leaves>(
    tables: &T,
    policy: &Policy,
    request: &PacketCharge,
    (scope, place): (Scope, usize),
    limit: &WindowLimit,
    ask: &WindowCharge,
) -> Reason {
    if scope == Scope::User {
        let index = (request.user as u32 - 1) * SET_WINDOWS as u32 + place as u32;
        return match tables.user_window(index) {
            Some(state) => tables.ask_window(limit, state, ask),
            None => Reason::TableFull,
        };
    }
    let group = if scope == Scope::Service { request.service } else { 0 };
    let key = EntryKey {
        hi: request.key.hi,
        lo: request.key.lo,
        group: limit.name | (place as u64) << 16 | group as u64,
    };
    let ever_fits = limit.window.units(ask.amount) <= limit.window.limit;
    if let Some(state) = tables.window(&key) {
        let reason = tables.ask_window(limit, state, ask);
        // Moved once: from then on the window is found among the kept ones.
        if reason.is_limit() && limit.soft == 0 && ever_fits {
            tables.keep_window(&key, state);
        }
        return reason;
    }
    if let Some(state) = tables.kept_window(&key) {
        return tables.ask_window(limit, state, ask);
    }
    // The source has no window yet.
    if !ever_fits {
        return refusal_of(limit.meter as u32);
    }
    if ask.charging == 0 {
        let admitted = budget::admits_newcomer(tables, policy, request.now_q8);
        return if admitted { Reason::Conforming } else { Reason::NewSourceBudget };
    }
    budget::take(tables, policy, CpuBudget::Newcomers, request.now_q8);
    match tables.insert_window(&key) {
        Ok(()) | Err(InsertError::Exists) => match tables.window(&key) {
            Some(state) => tables.ask_window(limit, state, ask),
            None => Reason::TableFull,
        },
        Err(InsertError::Full) => Reason::TableFull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_from_its_number() {
        for scope in [Scope::Source, Scope::Service, Scope::User] {
            assert_eq!(Scope::from_code(scope as u32), scope);
        }
    }
}
