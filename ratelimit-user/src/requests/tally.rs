//! Decisions counted by outcome.

use super::{decision::Outcome, striped::Striped};

/// Counts of one API.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Striped<{ Outcome::NAMES.len() }>,
}

impl Tally {
    /// Counts a decision.
    pub fn count(&self, outcome: Outcome) {
        self.counts.add(outcome.index(), 1);
    }

    /// Decisions so far, by the word for the outcome.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Outcome::NAMES.into_iter().enumerate().map(|(at, name)| (name, self.counts.sum(at)))
    }
}
