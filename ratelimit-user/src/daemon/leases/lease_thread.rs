//! Runs the exchange with the store on a thread of its own: leases run out within a second, and must not wait for other work of the daemon.

use std::{io, sync::Arc, thread};

use tokio::sync::Notify;

use super::driver::converse;
use crate::{
    daemon::host::HostCell,
    failure::{ExitCode, Failure},
};

/// The thread that renews leases until it is told to end.
#[derive(Debug)]
pub(in crate::daemon) struct LeaseThread {
    stop: Arc<Notify>,
    thread: thread::JoinHandle<()>,
}

impl LeaseThread {
    /// Begins to renew the leases of this host.
    pub(in crate::daemon) fn begin(host: &Arc<HostCell>) -> Result<Self, Failure> {
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

    /// Ends the exchange, and waits for its thread.
    pub(in crate::daemon) fn end(self) {
        self.stop.notify_one();
        // A thread that has panicked has nothing more to do.
        let _over = self.thread.join();
    }
}
