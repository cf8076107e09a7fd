//! Decisions counted by outcome, by any number of threads at once: each adds to a line of its own, and whoever wants to know adds them up.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::decision::Outcome;

/// Lines of one tally. Threads beyond that share.
const LINES: usize = 16;

/// Counts of one API.
#[derive(Debug, Default)]
pub struct Tally {
    lines: [Line; LINES],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; Outcome::NAMES.len()]);

thread_local! {
    /// Which line this thread adds to.
    static LINE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES)
    };
}

impl Tally {
    /// Counts a decision.
    pub fn count(&self, outcome: Outcome) {
        self.lines[LINE.get()].0[outcome.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Decisions so far, by the word for the outcome.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sum = |at: usize| self.lines.iter().map(|line| line.0[at].load(Ordering::Relaxed)).sum();
        Outcome::NAMES.into_iter().enumerate().map(move |(at, name)| (name, sum(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_count_adds_up() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LINES {
                scope.spawn(|| {
                    for _ in 0..100 {
                        tally.count(Outcome::Allowed);
                        tally.count(Outcome::Refused { retry_us: None });
                    }
                });
            }
        });
        let counted: Vec<_> = tally.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("allowed", 200 * LINES as u64), ("refused", 200 * LINES as u64)]);
    }
}
