//! Deadlines: when to give up, and how much time was given, for messages.

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
    /// Makes the deadline that is `given` from now.
    pub fn after(given: Duration) -> Self {
        Self { at: Instant::now() + given, given }
    }

    /// Whether the deadline has passed.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns the moment at which half of the time that is left is over.
    pub(super) fn halfway(self) -> Instant {
        let now = Instant::now();
        now + self.at.saturating_duration_since(now) / 2
    }

    /// Makes the error of a server that has not answered in time.
    pub fn missed(self, at: &str) -> StoreError {
        StoreError::TimedOut { at: at.to_owned(), after: self.given }
    }

    /// Waits for work with the server `at`. Returns the result of the work, or the error that the time is over.
    pub async fn hold<T>(
        self,
        at: &str,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(self.at, work).await.unwrap_or_else(|_| Err(self.missed(at)))
    }
}
