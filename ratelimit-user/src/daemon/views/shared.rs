//! Shares one slow read (a look) among all callers that wait for it.
//!
//! No caller gets a look that began before it asked. Callers that ask while a look is being taken wait for the next one and share it: however many
//! callers there are, one look is taken at a time, and looks cost at most half of one CPU.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::failure::{ExitCode, Failure};

/// The last look, shared by the callers that waited for it.
#[derive(Debug)]
pub(in crate::daemon) struct Shared<T> {
    last: Mutex<Option<SharedLook<T>>>,
}

#[derive(Debug)]
struct SharedLook<T> {
    begun: Instant,
    took: Duration,
    seen: T,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { last: Mutex::new(None) }
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the result of a look that began after this call.
    pub(in crate::daemon) async fn look<F: Future<Output = Result<T, Failure>>>(
        &self,
        take: impl FnOnce() -> F,
    ) -> Result<T, Failure> {
        let asked = Instant::now();
        // Callers wait here, and are let in one after the other.
        let mut last = self.last.lock().await;
        if let Some(look) = &*last {
            if look.begun >= asked {
                return Ok(look.seen.clone());
            }
            // The pause after a look is as long as the look took.
            tokio::time::sleep_until((look.begun + 2 * look.took).into()).await;
        }
        let begun = Instant::now();
        let seen = take().await?;
        *last = Some(SharedLook { begun, took: begun.elapsed(), seen: seen.clone() });
        Ok(seen)
    }
}

/// Does slow work on a thread of its own, so that leases, drop events and operators do not wait for it.
pub(in crate::daemon) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error| Failure::new(ExitCode::Unsupported, format!("cannot read the tables: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn those_who_wait_share_one_look_and_nobody_gets_one_that_began_before_they_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let shared = Arc::new(Shared::default());
            let taken = Arc::new(AtomicU32::new(0));
            let ask = || {
                let (shared, taken) = (Arc::clone(&shared), Arc::clone(&taken));
                tokio::spawn(async move {
                    let take = || async {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        Ok(taken.fetch_add(1, Ordering::Relaxed) + 1)
                    };
                    shared.look(take).await.unwrap()
                })
            };
            let first = ask();
            tokio::time::sleep(Duration::from_millis(1)).await;
            // The first look has begun, so these twelve callers need another one, which they share.
            let others: Vec<_> = (0..12).map(|_| ask()).collect();
            assert_eq!(first.await.unwrap(), 1);
            for other in others {
                assert_eq!(other.await.unwrap(), 2);
            }
            assert_eq!(ask().await.unwrap(), 3, "what changed since is seen");
            let failed = shared.look(|| async { Err(Failure::usage("no")) }).await;
            assert_eq!(failed.unwrap_err().message, "no");
            assert_eq!(ask().await.unwrap(), 4, "a look that failed is not shared");
        });
    }
}
