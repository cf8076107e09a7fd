//! Whether what receivers got stays within burst + rate x time, in every interval, by the time at which the kernel received it.

use super::ticks::Ticks;
use crate::fleet::Bound;

/// The most that was counted above the rate in any interval so far.
#[derive(Clone, Debug)]
pub(super) struct Excess {
    bound: Bound,
    /// When packets arrived that have not been held against the bound yet, in no order: receivers are read one after the other.
    arrived_ns: Vec<i64>,
    /// Packets that have been.
    count: u64,
    /// The least of count - rate x time, before each of them, by the clock of limits.
    least: f64,
    worst: f64,
    /// How far that clock was behind at most when one of them arrived, in nanoseconds.
    behind_ns: i64,
}

impl Excess {
    pub(super) fn new(bound: Bound) -> Self {
        Self { bound, arrived_ns: Vec::new(), count: 0, least: f64::MAX, worst: f64::MIN, behind_ns: 0 }
    }

    /// Packets that arrived at these moments, in nanoseconds of CLOCK_MONOTONIC.
    pub(super) fn add(&mut self, arrived_ns: impl Iterator<Item = i64>) {
        self.arrived_ns.extend(arrived_ns);
    }

    /// Holds all that was added against the bound. Whoever calls knows that nothing from before is still to come.
    ///
    /// An interval is as long as it can have been for the limit: from what its clock said at least when the first packet came to the moment of the last one, which that clock is
    /// never ahead of. Nothing is allowed for queues: stamps are made in the turn of the CPU in which the program judges.
    pub(super) fn settle(&mut self, ticks: &Ticks) {
        let given = |ns: i64| self.bound.rate * (ns as f64 / 1e9);
        self.arrived_ns.sort_unstable();
        for at_ns in self.arrived_ns.drain(..) {
            let said_ns = ticks.at_least_ns(at_ns);
            self.behind_ns = self.behind_ns.max(at_ns - said_ns);
            self.least = self.least.min(self.count as f64 - given(said_ns));
            self.count += 1;
            self.worst = self.worst.max(self.count as f64 - given(at_ns) - self.least);
        }
    }

    pub(super) fn behind_ns(&self) -> i64 {
        self.behind_ns
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

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { rate: 100.0, burst: 50.0 };
    const SECOND: i64 = 1_000_000_000;

    /// So many packets, evenly, from one moment to another.
    fn evenly(count: i64, from: i64, to: i64) -> impl Iterator<Item = i64> {
        (0..count).map(move |nth| from + (to - from) * nth / count)
    }

    #[test]
    fn a_burst_and_the_rate_are_within_the_bound_and_one_more_is_not() {
        let mut excess = Excess::new(BOUND);
        // Receivers of one limit are read one after the other.
        excess.add(evenly(200, 8 * SECOND, 10 * SECOND));
        excess.add(evenly(50, 8 * SECOND, 8 * SECOND));
        excess.settle(&Ticks::default());
        // The first of the packets that come evenly is there when the burst is.
        assert_eq!(excess.worst().round(), 51.0, "{excess:?}");
        excess.begin_again();
        // A pause of a second gives back what fits into the bucket, and not more.
        excess.add(evenly(100, 10 * SECOND, 11 * SECOND));
        excess.add(evenly(50, 12 * SECOND, 12 * SECOND));
        excess.settle(&Ticks::default());
        assert!(!excess.is_broken(), "{excess:?}");
        excess.add(evenly(1, 12 * SECOND, 12 * SECOND));
        excess.settle(&Ticks::default());
        assert!(excess.is_broken(), "{excess:?}");
    }

    #[test]
    fn twice_the_rate_is_found() {
        let mut excess = Excess::new(BOUND);
        for second in 0..60 {
            excess.add(evenly(100, second * SECOND, (second + 1) * SECOND));
        }
        excess.settle(&Ticks::default());
        assert!(!excess.is_broken() && excess.worst() < 2.0, "{excess:?}");
        excess.add(evenly(200, 60 * SECOND, 61 * SECOND));
        excess.settle(&Ticks::default());
        assert!(excess.is_broken(), "{excess:?}");
    }

    #[test]
    fn what_the_clock_of_limits_was_behind_is_allowed_and_no_more() {
        // The clock stood still from 1.0 to 1.5 s, and a flood that began at 1.4 s had a burst before and fifty packets after it moved.
        let ticks: Ticks = [SECOND, 3 * SECOND / 2].into_iter().map(|at| (at, at)).collect();
        let arrived = |count| evenly(count, 14 * SECOND / 10, 14 * SECOND / 10);
        let mut excess = Excess::new(BOUND);
        excess.add(arrived(50));
        excess.add(evenly(50, 3 * SECOND / 2, 3 * SECOND / 2));
        excess.settle(&ticks);
        assert!(!excess.is_broken() && excess.behind_ns() == 4 * SECOND / 10, "{excess:?}");
        excess.add(evenly(1, 3 * SECOND / 2, 3 * SECOND / 2));
        excess.settle(&ticks);
        assert!(excess.is_broken(), "{excess:?}");
    }
}
