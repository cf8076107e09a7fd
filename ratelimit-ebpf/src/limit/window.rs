//! One limit that is counted in a window. `limit::window` in the common crate has the maths.

use ratelimit_common::{
    abi::{Reason, WindowLimit, window::WindowKind},
    limit::window::{
        WindowOutcome, fixed,
        sliding::{self, Refusal, SUB_WINDOWS, Words},
        weighted,
    },
};

use super::word::refusal_of;
use crate::{forget::forget, tables::Tables};

/// Exchanges that are tried on the word of a window before the packet is refused.
const ATTEMPTS: usize = 4;

/// The charge of one packet to one window. Plain numbers, because it is passed by address: see [`super::Stages`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WindowCharge {
    pub(super) now_ns: u64,
    pub(super) amount: u64,
    /// 1 if the packet is charged when it conforms, 0 if it is only judged.
    pub(super) charging: u64,
}

/// Charges or judges one window.
#[inline(always)]
pub fn ask<T: Tables>(tables: &T, limit: &WindowLimit, state: T::Window, ask: &WindowCharge) -> Reason {
    let refused = refusal_of(limit.meter as u32);
    if limit.kind == WindowKind::Sliding as u16 {
        let words = Slots { tables, state, unknown: ask.now_ns };
        // One evaluation for judging and charging, or the verifier would check it twice.
        let answer = match sliding::evaluate::<SUB_WINDOWS>(&words, &limit.window, ask.now_ns, ask.amount) {
            Ok(charge) if ask.charging != 0 => charge.commit(&words, &limit.window),
            answer => answer.map(|_| ()),
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
            WindowOutcome::Conforms { word: new } => {
                if ask.charging == 0 || tables.compare_exchange(word, seen, new) {
                    return Reason::Conforming;
                }
            }
            WindowOutcome::Refused => return refused,
            WindowOutcome::Late => return Reason::Contended,
        }
    }
    Reason::Contended
}

/// The words of a sliding window.
struct Slots<'t, T: Tables> {
    tables: &'t T,
    state: T::Window,
    /// A number about which the verifier knows nothing.
    unknown: u64,
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

    #[inline(always)]
    fn forget(&self, sum: u64) -> u64 {
        forget(sum, self.unknown)
    }
}
