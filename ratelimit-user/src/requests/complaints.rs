//! Logs questions that make no sense, for the operator: the proxy that asks them may not show the answer to anybody.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::log;

/// The time between two lines of the log, in microseconds.
const PAUSE_US: u64 = 10_000_000;

/// Logs some of the questions, and counts the others.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// The moment from which on the next question may be logged.
    next_us: AtomicU64,
    untold: AtomicU64,
}

impl Complaints {
    /// Logs a question that makes no sense, or counts it.
    pub(super) fn hear(&self, why: &dyn fmt::Display, now_us: u64) {
        if let Some(others) = self.due(now_us) {
            let others = if others > 0 { format!(" ({others} more before)") } else { String::new() };
            log::warning(format!("a question was refused because it makes no sense: {why}{others}"));
        }
    }

    /// Returns how many questions were only counted, if it is time to log one.
    fn due(&self, now_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        let mine = now_us >= next_us
            && self
                .next_us
                .compare_exchange(next_us, now_us + PAUSE_US, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            return Some(self.untold.swap(0, Ordering::Relaxed));
        }
        self.untold.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_ten_seconds_is_told_and_the_others_are_counted() {
        let complaints = Complaints::default();
        let due = |second: u64| complaints.due(second * 1_000_000);
        assert_eq!(
            [due(1), due(1), due(10), due(11), due(12), due(21)],
            [Some(0), None, None, Some(2), None, Some(1)]
        );
    }
}
