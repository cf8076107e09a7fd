//! The wait for confirmation after an apply: the operator shows that they can still reach the host.

use std::time::{Duration, Instant};

use crate::{daemon::state::version::PolicyVersion, failure::Failure};

/// The shortest wait: in less time nobody can confirm.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest wait: after more time the operator has forgotten it.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The pause before a rollback that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A wait for confirmation, with the version that comes back at its end.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct ConfirmationWait {
    pub(in crate::daemon) version_before: PolicyVersion,
    pub(in crate::daemon) time_to_confirm: Duration,
    deadline: Instant,
}

impl ConfirmationWait {
    /// Checks the time of a wait, given in nanoseconds.
    pub(in crate::daemon) fn time(ns: u64) -> Result<Duration, Failure> {
        let time = Duration::from_nanos(ns);
        if (SHORTEST..=LONGEST).contains(&time) {
            return Ok(time);
        }
        let (ms, longest) = (time.as_millis(), LONGEST.as_secs() / 3600);
        Err(Failure::usage(format!("--confirm of {ms} ms is out of range; use 1s to {longest}h")))
    }

    /// Makes a wait that begins now.
    pub(in crate::daemon) fn new(
        version_before: PolicyVersion,
        time_to_confirm: Duration,
        now: Instant,
    ) -> Self {
        Self { version_before, time_to_confirm, deadline: now + time_to_confirm }
    }

    /// Returns when the wait ends.
    pub(in crate::daemon) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the wait has ended.
    pub(in crate::daemon) fn is_over(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Returns the seconds left, rounded up: 0 only when the wait is over.
    pub(in crate::daemon) fn seconds_left(&self, now: Instant) -> u64 {
        let left = self.deadline.saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    /// Moves the end a little later, after a rollback that failed.
    pub(in crate::daemon) fn try_again(&mut self, now: Instant) {
        self.deadline = now + AGAIN;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Reader;

    #[test]
    fn a_wait_ends_at_its_time_and_counts_down_to_it() {
        let text = "[source]\nlimits = [\"1/s\"]\n";
        let (version_before, _) =
            PolicyVersion::parse(&mut Reader::default(), Path::new("p.toml"), text).unwrap();
        let start = Instant::now();
        let mut waiting = ConfirmationWait::new(version_before, Duration::from_secs(30), start);
        let at = |ms: u64| start + Duration::from_millis(ms);
        for (ms, left, over) in [(0, 30, false), (1, 30, false), (29_001, 1, false), (30_000, 0, true)] {
            assert_eq!((waiting.seconds_left(at(ms)), waiting.is_over(at(ms))), (left, over), "{ms} ms");
        }
        waiting.try_again(at(30_000));
        assert!(!waiting.is_over(at(30_999)) && waiting.is_over(at(31_000)));
    }

    #[test]
    fn times_that_nobody_could_mean_are_refused_with_what_would_be_right() {
        assert!(
            ConfirmationWait::time(1_000_000_000).is_ok()
                && ConfirmationWait::time(86_400_000_000_000).is_ok()
        );
        for ns in [0, 999_999_999, 86_400_000_000_001] {
            assert!(ConfirmationWait::time(ns).unwrap_err().message.ends_with("use 1s to 24h"), "{ns}");
        }
    }
}
