//! Whether it is worth asking the store. Pure: the clock is an argument.

use std::time::{Duration, Instant};

/// Failures in a row after which the store is left alone for a while.
const PATIENCE: u32 = 3;
/// The first pause, which doubles with every probe that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Counts failures, and says when to try again.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    opened: u64,
    /// When the next probe is due; `None` while everything is well.
    probe: Option<Instant>,
    /// Since when nothing has worked.
    since: Option<Instant>,
}

impl Breaker {
    /// Whether the store is to be asked now.
    pub fn allows(&self, now: Instant) -> bool {
        self.probe.is_none_or(|probe| now >= probe)
    }

    /// Notes that the store has answered.
    pub fn succeeded(&mut self) {
        *self = Self { opened: self.opened, ..Self::default() };
    }

    /// Notes that the store has not answered.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        if self.failures >= PATIENCE {
            let doublings = (self.failures - PATIENCE).min(8);
            self.probe = Some(now + (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE));
            self.opened += u64::from(self.failures == PATIENCE);
        }
    }

    /// Whether the store has failed so often that it counts as gone.
    pub fn is_open(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns how often the store was given up.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns for how long nothing has worked.
    pub fn failing_for(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_three_failures_probes_ever_more_slowly_and_closes_with_the_first_answer() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut breaker = Breaker::default();
        breaker.failed(start);
        breaker.failed(start);
        assert!(breaker.allows(start) && !breaker.is_open());
        breaker.failed(start);
        assert!(breaker.is_open() && !breaker.allows(after(99)) && breaker.allows(after(100)));
        breaker.failed(after(100));
        assert!(!breaker.allows(after(299)) && breaker.allows(after(300)), "twice as long");
        for _ in 0..40 {
            breaker.failed(after(300));
        }
        assert!(breaker.allows(after(1300)), "never longer than a second");
        assert_eq!(
            (breaker.opened(), breaker.failing_for(after(300))),
            (1, Some(Duration::from_millis(300)))
        );
        breaker.succeeded();
        assert!(breaker.allows(start) && !breaker.is_open() && breaker.failing_for(start).is_none());
        assert_eq!(breaker.opened(), 1, "it is remembered");
    }
}
