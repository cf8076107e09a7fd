//! The conversation with the store, on a thread of its own: leases run out within a second, and must not wait for whoever else the daemon answers.

use std::{io, sync::Arc, thread};

use tokio::sync::Notify;

use super::{cluster::driver::converse, host::HostCell};
use crate::failure::{ExitCode, Failure};

/// The thread that renews leases, until it is told to end.
#[derive(Debug)]
pub(super) struct LeaseThread {
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

impl LeaseThread {
    /// Begins to renew the leases of this host.
    pub(super) fn begin(host: &Arc<HostCell>) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(
                ExitCode::Unsupported,
                format!("cannot start the thread that renews leases: {error}"),
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (host, stop) = (Arc::clone(host), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let talk = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = converse(host) => {}
                    () = stopped.notified() => {}
                }
            });
        };
        let thread = thread::Builder::new().name("leases".to_owned()).spawn(talk).map_err(failed)?;
        Ok(Self { stop, thread })
    }

    /// Ends the conversation, and waits for its thread.
    pub(super) fn end(self) {
        self.stop.notify_one();
        // One that has panicked has nothing more to say.
        let _over = self.thread.join();
    }
}
