//! An apply that waits for somebody to say that they are still there.

use std::time::{Duration, Instant};

use crate::{daemon::state::version::PolicyVersion, failure::Failure};

/// Below this nobody can answer.
const SHORTEST: Duration = Duration::from_secs(1);
/// Above this somebody has forgotten the wait.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How soon a rollback that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The wait, and what comes back at its end.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct ConfirmationWait {
    pub(in crate::daemon) version_before: PolicyVersion,
    pub(in crate::daemon) time_to_confirm: Duration,
    deadline: Instant,
}

impl ConfirmationWait {
    /// How long to wait, if that makes sense.
    pub(in crate::daemon) fn time(ns: u64) -> Result<Duration, Failure> {
        let time = Duration::from_nanos(ns);
        if (SHORTEST..=LONGEST).contains(&time) {
            return Ok(time);
        }
        let (ms, longest) = (time.as_millis(), LONGEST.as_secs() / 3600);
        Err(Failure::usage(format!("--confirm of {ms} ms is out of range; use 1s to {longest}h")))
    }

    /// A wait from now on.
    pub(in crate::daemon) fn new(
        version_before: PolicyVersion,
        time_to_confirm: Duration,
        now: Instant,
    ) -> Self {
        Self { version_before, time_to_confirm, deadline: now + time_to_confirm }
    }

    /// When the wait ends.
    pub(in crate::daemon) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the wait has ended.
    pub(in crate::daemon) fn is_over(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Seconds left, rounded up: 0 only when it is over.
    pub(in crate::daemon) fn seconds_left(&self, now: Instant) -> u64 {
        let left = self.deadline.saturating_duration_since(now);
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    /// Ends a little later, after a rollback that did not work.
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
