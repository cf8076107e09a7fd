//! Limits that are counted in windows. `limit::window` in the common crate has the maths.

use ratelimit_common::{
    abi::{
        Clock, EntryKey, LimitSet, Policy, Reason, WindowLimit,
        user::NO_USER,
        window::{MAX_WINDOWS, SET_WINDOWS, WindowKind},
    },
    limit::window::{
        Outcome, fixed,
        sliding::{self, Refusal, SUB_WINDOWS, Words},
        weighted,
    },
};

use super::{Stages, further, newcomers, request::Request, word::refusal_of};
use crate::tables::{Allowance, InsertError, Tables};

/// Exchanges that are tried on the word of a window before the packet is refused.
const ATTEMPTS: usize = 4;

/// One question to one window. Plain numbers, because it is handed by address: see [`super::Stages`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ask {
    now_ns: u64,
    amount: u64,
    /// Whether the packet is charged if it conforms.
    charging: u64,
}

/// Whose windows they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// Every source's.
    Source = 0,
    /// A source's at one service.
    Service = 1,
    /// A user's.
    User = 2,
}

impl Scope {
    /// The scope of a number.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Source,
            1 => Self::Service,
            _ => Self::User,
        }
    }
}

/// Asks one window.
#[inline(always)]
pub fn ask<T: Tables>(tables: &T, limit: &WindowLimit, state: T::Window, ask: &Ask) -> Reason {
    let refused = refusal_of(limit.meter as u32);
    if limit.kind == WindowKind::Sliding as u16 {
        let words = Slots { tables, state };
        let answer = if ask.charging != 0 {
            sliding::take::<SUB_WINDOWS>(&words, &limit.window, ask.now_ns, ask.amount)
        } else {
            sliding::evaluate::<SUB_WINDOWS>(&words, &limit.window, ask.now_ns, ask.amount).map(|_| ())
        };
        return match answer {
            Ok(()) => Reason::Conforming,
            Err(Refusal::Limit) => refused,
            Err(Refusal::Late | Refusal::Contended) => Reason::Contended,
        };
    }
    let word = tables.window_word(state, 0);
    for _ in 0..ATTEMPTS {
        let seen = tables.load(word);
        let outcome = if limit.kind == WindowKind::Fixed as u16 {
            fixed::take(seen, &limit.window, ask.now_ns, ask.amount)
        } else {
            weighted::take(seen, &limit.window, ask.now_ns, ask.amount)
        };
        match outcome {
            Outcome::Conforms { word: new } => {
                if ask.charging == 0 || tables.compare_exchange(word, seen, new) {
                    return Reason::Conforming;
                }
            }
            Outcome::Refused => return refused,
            Outcome::Late => return Reason::Contended,
        }
    }
    Reason::Contended
}

/// The words of a sliding window.
struct Slots<'t, T: Tables> {
    tables: &'t T,
    state: T::Window,
}

impl<T: Tables> Words for Slots<'_, T> {
    #[inline(always)]
    fn load(&self, slot: usize) -> u64 {
        self.tables.load(self.tables.window_word(self.state, slot))
    }

    #[inline(always)]
    fn compare_exchange(&self, slot: usize, seen: u64, new: u64) -> Result<(), u64> {
        let word = self.tables.window_word(self.state, slot);
        if self.tables.compare_exchange(word, seen, new) { Ok(()) } else { Err(self.tables.load(word)) }
    }
}

/// Asks all windows that apply to a packet.
#[inline(always)]
pub(super) fn ask_all<T: Stages>(tables: &T, policy: &Policy, request: &Request, charging: bool) -> Reason {
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

/// Asks the windows of one scope. The precise clock decides: a window's edge is a moment.
#[inline(always)]
pub fn ask_scope<T: Stages>(
    tables: &T,
    policy: &Policy,
    request: &Request,
    scope: Scope,
    charging: bool,
) -> Reason {
    let Some(set) = set(tables, policy, request, scope) else { return Reason::Conforming };
    let question = Ask { now_ns: tables.now_ns(Clock::Precise), amount: 0, charging: charging as u64 };
    let mut verdict = Reason::Conforming;
    for place in 0..SET_WINDOWS {
        let number = set.windows[place];
        if number == 0 {
            break;
        }
        // A mask and not a comparison: the verifier sees the bound wherever the compiler moves this to.
        let limit = &policy.windows[(number as usize).wrapping_sub(1) & (MAX_WINDOWS - 1)];
        let amount = request.amount(limit.meter as u32);
        // Nothing is refused for the sake of a soft one, so it is enough to ask when it is charged.
        if amount == 0 || (limit.soft != 0 && !charging) {
            continue;
        }
        let reason = one(tables, policy, request, (scope, place), limit, &Ask { amount, ..question });
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
fn set<'t, T: Stages>(
    tables: &'t T,
    policy: &'t Policy,
    request: &Request,
    scope: Scope,
) -> Option<&'t LimitSet> {
    match scope {
        Scope::Source => Some(&policy.source.set),
        Scope::Service => further::per_source(policy, request),
        Scope::User if request.user == NO_USER || policy.user_count == 0 => None,
        Scope::User => tables.user_limits(policy.tables, request.user as u32 - 1),
    }
}

#[inline(always)]
fn one<T: Stages>(
    tables: &T,
    policy: &Policy,
    request: &Request,
    (scope, place): (Scope, usize),
    limit: &WindowLimit,
    ask: &Ask,
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
        // Once: from then on it is found where those are that have been over a window.
        if reason.is_limit() && limit.soft == 0 && ever_fits {
            tables.keep_window(&key, state);
        }
        return reason;
    }
    if let Some(state) = tables.kept_window(&key) {
        return tables.ask_window(limit, state, ask);
    }
    // Of a window that nothing has been counted in.
    if !ever_fits {
        return refusal_of(limit.meter as u32);
    }
    if ask.charging == 0 {
        let admitted = newcomers::admitted(tables, policy, request.now_q8);
        return if admitted { Reason::Conforming } else { Reason::NewSourceBudget };
    }
    newcomers::take(tables, policy, Allowance::Newcomers, request.now_q8);
    match tables.insert_window(&key) {
        Ok(()) | Err(InsertError::Exists) => match tables.window(&key) {
            Some(state) => tables.ask_window(limit, state, ask),
            None => Reason::TableFull,
        },
        Err(InsertError::Full) => Reason::TableFull,
    }
}
