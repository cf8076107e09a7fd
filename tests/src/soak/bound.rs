//! Whether what receivers got stays within burst + rate x time, in every interval, without keeping what was counted.

use std::time::{Duration, Instant};

use crate::fleet::Bound;

/// Datagrams wait in queues for a few milliseconds, so what is counted may bunch a little.
const QUEUES: f64 = 0.03;

/// The most that was counted above the rate in any interval so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excess {
    bound: Bound,
    /// The least of count - rate x time, with the earliest moment at which each count may have been true.
    least: f64,
    worst: f64,
}

impl Excess {
    pub(super) fn new(bound: Bound) -> Self {
        Self { bound, least: f64::MAX, worst: f64::MIN }
    }

    /// A count that was true at some moment between two, in seconds.
    pub(super) fn add(&mut self, count: u64, not_before: f64, not_after: f64) {
        let Bound { rate, .. } = self.bound;
        self.least = self.least.min(count as f64 - rate * not_before);
        self.worst = self.worst.max(count as f64 - rate * (not_after + QUEUES) - self.least);
    }

    pub(super) fn worst(&self) -> f64 {
        self.worst.max(0.0)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.worst > self.bound.burst
    }

    /// Begins anew, after something that may give a burst once more.
    pub(super) fn begin_again(&mut self) {
        *self = Self::new(self.bound);
    }
}

/// The seconds from one moment to another.
pub(super) fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).max(Duration::ZERO).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_the_rate_are_within_the_bound_and_one_more_is_not() {
        let mut excess = Excess::new(Bound { rate: 100.0, burst: 50.0 });
        for (count, at) in [(0, 0.0), (50, 0.0), (150, 1.0), (250, 2.0)] {
            excess.add(count, at, at);
        }
        assert!(!excess.is_broken(), "{excess:?}");
        // A pause of a second gives back what fits into the bucket, and not more.
        excess.add(250, 3.0, 3.0);
        excess.add(305, 3.0, 3.0);
        assert!(excess.is_broken(), "{excess:?}");
    }
}
