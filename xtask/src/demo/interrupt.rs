//! A flag that Ctrl-C, SIGTERM and SIGHUP set, and that every long wait checks.
//!
//! The signal itself does nothing else: the wait returns an error, the error unwinds, and the guards on the way clean up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::outcome::Ending;

const POLL: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .with_context(|| format!("cannot watch for signal {signal}"))?;
        }
        Ok(Self(flag))
    }

    /// Makes a flag that no signal sets: a test process keeps its usual reaction to Ctrl-C.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Ending::Interrupted.into()) } else { Ok(()) }
    }

    pub(crate) fn sleep_until(&self, then: Instant) -> Result<()> {
        loop {
            self.check()?;
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL));
        }
    }

    /// Calls `ready` until it has an answer; `None` if it has none in time.
    pub(crate) fn wait_for<T>(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now() + limit;
        loop {
            self.check()?;
            if let Some(answer) = ready()? {
                return Ok(Some(answer));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_a_wait_at_once_with_its_own_ending() {
        let far = Instant::now() + Duration::from_secs(3600);
        let error = Interrupt(Arc::new(AtomicBool::new(true))).sleep_until(far).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Ending::Interrupted)));
    }

    #[test]
    fn a_wait_ends_with_the_answer_or_without_one_when_time_is_up() {
        let mut asked = 0;
        let answer = Interrupt::never().wait_for(Duration::from_secs(5), || {
            asked += 1;
            Ok((asked == 2).then_some("here"))
        });
        assert_eq!(answer.unwrap(), Some("here"));
        assert_eq!(Interrupt::never().wait_for(Duration::ZERO, || Ok(None::<()>)).unwrap(), None);
    }
}
