//! A look at something that takes a while, made once for all who wait for it.
//!
//! Nobody gets a look that began before they asked. Those who ask while one is being taken wait for the next, and share it: however many there are,
//! one is being taken at a time, and what it costs is half of one CPU at most.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::failure::{ExitCode, Failure};

/// One look at something that is shared by all who ask while it goes on.
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
    /// What there is to see, not older than this call.
    pub(in crate::daemon) async fn look<F: Future<Output = Result<T, Failure>>>(
        &self,
        take: impl FnOnce() -> F,
    ) -> Result<T, Failure> {
        let asked = Instant::now();
        // Callers that wait here are let in one after the other.
        let mut last = self.last.lock().await;
        if let Some(look) = &*last {
            if look.begun >= asked {
                return Ok(look.seen.clone());
            }
            // As long a pause as the last one took.
            tokio::time::sleep_until((look.begun + 2 * look.took).into()).await;
        }
        let begun = Instant::now();
        let seen = take().await?;
        *last = Some(SharedLook { begun, took: begun.elapsed(), seen: seen.clone() });
        Ok(seen)
    }
}

/// Does something that takes a while on a thread of its own, so that leases, packets' reports and operators do not wait for it.
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
            // The first look has begun: these twelve need another, and one is enough.
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
