//! How long decisions took, from the question to the answer. The time includes the store, but not how long a delayed request is held.

use super::striped::Striped;
use crate::requests::status::{DecisionTimes, TimeCount};

/// The longest times that are counted together, in microseconds: most decisions take less than the first, and the store has to answer within the last.
const BOUNDS_US: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 25_000, 100_000];
/// The index of the number of decisions that took longer than all bounds.
const LONGER: usize = BOUNDS_US.len();
/// The index of the sum of all times, in microseconds.
const TOTAL: usize = LONGER + 1;

/// The times of all decisions.
#[derive(Debug, Default)]
pub(super) struct Latency {
    numbers: Striped<{ TOTAL + 1 }>,
}

impl Latency {
    /// Records one decision that took `us` microseconds.
    pub(super) fn record(&self, us: u64) {
        let at = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(LONGER);
        self.numbers.add(at, 1);
        self.numbers.add(TOTAL, us);
    }

    /// Returns the times of all decisions so far.
    pub(super) fn times(&self) -> DecisionTimes {
        let at_most_us = BOUNDS_US.into_iter().map(Some).chain([None]);
        let counts = at_most_us.enumerate();
        let counts = counts.map(|(at, at_most_us)| TimeCount { at_most_us, decisions: self.numbers.sum(at) });
        DecisionTimes { counts: counts.collect(), total_us: self.numbers.sum(TOTAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_counted_once_where_it_belongs() {
        let latency = Latency::default();
        [0, 1, 2, 100_000, 100_001].into_iter().for_each(|us| latency.record(us));
        let times = latency.times();
        let counted: Vec<_> = (times.counts.iter())
            .filter(|count| count.decisions > 0)
            .map(|count| (count.at_most_us, count.decisions))
            .collect();
        assert_eq!(counted, [(Some(1), 2), (Some(2), 1), (Some(100_000), 1), (None, 1)]);
        assert_eq!(times.total_us, 200_004);
    }
}
