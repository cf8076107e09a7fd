//! The last refusal of one key that the store has told a host of.

use crate::meter::NEVER_US;

/// A refusal. How long it is believed is in the lease, where every decision looks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Denied {
    /// Requests that need at least this many units are refused.
    needed: u64,
    /// When such requests would fit, in microseconds since 1970; [`NEVER_US`] if never.
    fits_us: u64,
    /// A bit for each limit that refused.
    violated: u64,
    /// The [`terms`](crate::requests::allowance::Allowance::terms) that such requests were refused under.
    terms: u64,
}

impl Denied {
    /// Makes a refusal, from now on, of requests that need `needed` units, which would fit after a wait.
    pub(super) fn new(needed: u64, terms: u64, (wait_us, violated): (u64, u64), now_us: u64) -> Self {
        Self { needed, fits_us: now_us.saturating_add(wait_us), violated, terms }
    }

    /// Returns for how many microseconds a request that needs `needed` units has to wait under these terms, and a bit for each limit that refuses it.
    /// `None` if the refusal says nothing about such a request.
    pub(super) fn of(&self, needed: u64, terms: u64, now_us: u64) -> Option<(u64, u64)> {
        let wait_us = if self.fits_us == NEVER_US { NEVER_US } else { self.fits_us.saturating_sub(now_us) };
        (needed >= self.needed && terms == self.terms).then_some((wait_us, self.violated))
    }
}
