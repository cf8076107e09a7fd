//! Waits for a disk, which may not answer at all: the wait fails after a while, and only few threads hang with the disk.

use std::{io, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

/// The largest number of threads that wait for a disk at a time. The runtime has several hundred threads for work that takes long, and status and counters need some.
const MOST: usize = 8;

/// The places for threads that wait for a disk.
#[derive(Clone, Debug)]
pub(super) struct DiskWaits(Arc<Semaphore>);

impl Default for DiskWaits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl DiskWaits {
    /// Does work that waits for a disk, on a thread of its own. Late work is an error; it goes on, but its result is lost.
    pub(super) async fn within(
        &self,
        patience: Duration,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let done = async {
            let place = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
            let work = move || {
                let done = work();
                drop(place);
                done
            };
            tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
        };
        let late = |_| {
            let why = format!("the disk has not answered within {} s", patience.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        };
        tokio::time::timeout(patience, done).await.unwrap_or_else(late)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_disk_that_does_not_answer_holds_nobody_for_longer_than_that_and_few_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (waits, begun) = (DiskWaits::default(), Arc::new(AtomicUsize::new(0)));
        let mut answers = Vec::new();
        runtime.block_on(async {
            for _ in 0..2 * MOST {
                let (answer, answered) = mpsc::channel::<()>();
                answers.push(answer);
                let begun = Arc::clone(&begun);
                let hang = move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    // The disk of this test answers when the sender is dropped.
                    let _gone = answered.recv();
                    Ok(())
                };
                let error = waits.within(SHORT, hang).await.unwrap_err();
                assert_eq!(error.to_string(), "the disk has not answered within 0.02 s");
            }
            assert_eq!(begun.load(Ordering::SeqCst), MOST, "those that came later have no thread");
            answers.clear();
            let long = Duration::from_secs(60);
            waits.within(long, || Ok(())).await.unwrap();
            let full = waits.within(long, || Err(io::ErrorKind::StorageFull.into())).await;
            assert_eq!(
                full.unwrap_err().kind(),
                io::ErrorKind::StorageFull,
                "what the disk says is passed on"
            );
        });
    }
}
