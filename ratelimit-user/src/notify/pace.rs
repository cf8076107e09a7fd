//! The pace of messages: whoever makes attacks begin and end must not make this host flood a receiver.

use std::time::Duration;

/// A token bucket of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendingPace {
    burst: u32,
    every: Duration,
    /// When the bucket is full again, as time since the clock began.
    full_at: Duration,
}

impl SendingPace {
    /// Makes a pace of `burst` messages at once, and one more after each pause of `every`.
    pub(super) fn new(burst: u32, every: Duration) -> Self {
        Self { burst, every, full_at: Duration::ZERO }
    }

    /// Returns how long the next message waits, and counts it as sent. `now` is the time since the clock began.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let full_at = self.full_at.max(now);
        let may_go_at = (full_at + self.every).saturating_sub(self.every * self.burst);
        self.full_at = full_at + self.every;
        may_go_at.saturating_sub(now)
    }
}

/// Returns the pause after a number of failures in a row: it doubles with each failure, up to `longest`.
pub(super) fn backoff(failures: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1_u32 << failures.saturating_sub(1).min(20)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_out_at_once_and_then_one_after_each_pause() {
        let second = Duration::from_secs(1);
        let mut pace = SendingPace::new(3, 5 * second);
        let waits: Vec<u64> = (0..5).map(|_| pace.wait(100 * second).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 5, 10]);
        assert_eq!(pace.wait(1_000 * second), Duration::ZERO, "it fills up again");
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let pauses: Vec<u64> =
            (1..=8).map(|failures| backoff(failures, second, 60 * second).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u32::MAX, second, 60 * second), 60 * second);
    }
}
