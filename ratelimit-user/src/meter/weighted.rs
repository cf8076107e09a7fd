//! Sliding window, weighted: the count of this window, and the part of the count before that still lies in the last window's length, as if it had come evenly.
//!
//! Up to 2 x limit - 1 pass in one real interval, if the units of the window before all came at its end. Small and smooth, and the form that most descriptions mean.

use super::{Counting, counted, halves, joined};

/// Number of words: one with the number of the window, and one with the counts of the window before it and of the window itself.
pub(super) const WORDS: usize = 2;

/// A weighted sliding window for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    limit: u64,
    period_us: u64,
}

/// The window of a moment, how far the moment is into it, and the counts of the window before and of the window itself.
struct Now {
    window: u64,
    passed_us: u64,
    before: u32,
    count: u32,
}

impl Weighted {
    /// `limit` units in `period_us`.
    pub fn new(limit: u64, period_us: u64) -> Self {
        Self { limit, period_us: period_us.max(1) }
    }

    /// The length of a window, in microseconds.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    fn now(&self, words: &[u64], now_us: u64) -> Now {
        let (window, passed_us) = (now_us / self.period_us, now_us % self.period_us);
        let (before, count) = halves(words[1]);
        match words[0] {
            // A clock that stepped back counts as being at the beginning of the later window.
            later if later > window => Now { window: later, passed_us: 0, before, count },
            same if same == window => Now { window, passed_us, before, count },
            last if last + 1 == window => Now { window, passed_us, before: count, count: 0 },
            _ => Now { window, passed_us, before: 0, count: 0 },
        }
    }

    fn used(&self, now: &Now) -> u64 {
        let still = u128::from(now.before) * u128::from(self.period_us - now.passed_us);
        u64::from(now.count) + still.div_ceil(u128::from(self.period_us)) as u64
    }

    /// Returns how many microseconds into a window the count of the window before weighs at most `room`: at most the whole window, at whose end it weighs nothing.
    fn fits_from(&self, before: u32, room: u64) -> u64 {
        if u64::from(before) <= room {
            return 0;
        }
        let still_us = u128::from(self.period_us) * u128::from(room) / u128::from(before);
        self.period_us - still_us as u64
    }
}

impl Counting for Weighted {
    fn words(&self) -> usize {
        WORDS
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.limit.saturating_sub(self.used(&self.now(words, now_us)))
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        let now = self.now(words, now_us);
        words[0] = now.window;
        words[1] = joined(now.before, counted(units.saturating_add(now.count.into())));
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        let now = self.now(words, now_us);
        // Removes the newest units that the caller can mean: no units of this window, if the charge was before this window.
        let windows_ago = match now_us.saturating_sub(age_us) / self.period_us {
            _ if age_us == 0 => 0,
            then => now.window.saturating_sub(then),
        };
        let (before, count) = match windows_ago {
            0 => (now.before, now.count),
            1 => (now.before, 0),
            _ => (0, 0),
        };
        if units > u64::from(before) + u64::from(count) {
            return false;
        }
        let back = counted(units).min(count);
        words[0] = now.window;
        words[1] = joined(now.before - (counted(units) - back), now.count - back);
        true
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        let now = self.now(words, now_us);
        if self.used(&now).saturating_add(units) <= self.limit {
            return 0;
        }
        let start_us = now.window * self.period_us;
        // The units fit later in this window, if its own count leaves room, or else in the next window, where the count of this window is the one that weighs
        // less and less. Units that fit only at the very end of this window fit at the beginning of the next, too: this window's count leaves them room.
        let here = self.limit.checked_sub(units.saturating_add(now.count.into()));
        let later_us = match here {
            Some(room) => start_us + self.fits_from(now.before, room),
            None => start_us + self.period_us + self.fits_from(now.count, self.limit.saturating_sub(units)),
        };
        later_us.saturating_sub(now_us)
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        let now = self.now(words, now_us);
        let windows = match (now.before, now.count) {
            (0, 0) => return 0,
            (_, 0) => 1,
            _ => 2,
        };
        ((now.window + windows) * self.period_us).saturating_sub(now_us)
    }

    fn reset_from(&self, _used: u64, _now_us: u64) -> u64 {
        self.period_us
    }

    fn layout(&self) -> String {
        format!("w{}", self.period_us)
    }

    fn script(&self, _now_us: u64) -> [u64; 4] {
        [4, self.limit, self.period_us, 0]
    }

    fn scaled(&self, _numerator: u64, _denominator: u64, capacity: u64) -> Self {
        Self::new(capacity, self.period_us)
    }
}
