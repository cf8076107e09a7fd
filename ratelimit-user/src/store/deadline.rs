//! When to give up, and how long that was, for the message.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::redis::StoreError;

/// A moment, and the time that was given until then.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    given: Duration,
}

impl Deadline {
    /// The moment that is so long from now.
    pub fn after(given: Duration) -> Self {
        Self { at: Instant::now() + given, given }
    }

    /// Whether the deadline has passed.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    /// When half of what is left will be over.
    pub(super) fn halfway(self) -> Instant {
        let now = Instant::now();
        now + self.at.saturating_duration_since(now) / 2
    }

    /// The error of a server that has not answered until then.
    pub fn missed(self, at: &str) -> StoreError {
        StoreError::TimedOut { at: at.to_owned(), after: self.given }
    }

    /// The result of work with the server `at`, or that the time is over.
    pub async fn hold<T>(
        self,
        at: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(self.at, work).await.unwrap_or_else(|_| Err(self.missed(at)))
    }
}
