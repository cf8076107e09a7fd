//! When to give up, and how long that was, for the message.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::StoreError;

/// A moment, and the time that was given until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    given: Duration,
}

impl Deadline {
    pub(super) fn after(given: Duration) -> Self {
        Self { at: Instant::now() + given, given }
    }

    /// When half of what is left will be over.
    pub(super) fn halfway(self) -> Instant {
        let now = Instant::now();
        now + self.at.saturating_duration_since(now) / 2
    }

    pub(super) fn missed(self, at: &str) -> StoreError {
        StoreError::TimedOut { at: at.to_owned(), after: self.given }
    }

    /// The result of work with the server `at`, or that the time is over.
    pub(super) async fn hold<T>(
        self,
        at: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(self.at, work).await.unwrap_or_else(|_| Err(self.missed(at)))
    }
}
