//! The sockets of the daemon, bound with its rights and handed to the front process.

use std::{
    fs::{File, Permissions},
    io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use crate::{
    daemon::line::message::SocketUse,
    failure::{ExitCode, Failure},
    log,
    policy::Policy,
    serve::{http, workers::ServedSockets},
};

/// The file in the state directory that a front process keeps locked as long as it lives.
const LOCK: &str = "front.lock";
/// How long the front process of an earlier daemon may take to end, and how often the daemon checks.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The bound sockets. Dropping the value removes the files of sockets.
#[derive(Debug)]
pub(in crate::daemon) struct Listeners {
    lock: File,
    metrics: Option<std::net::TcpListener>,
    sockets: ServedSockets,
}

impl Listeners {
    /// Binds every listener that a policy names, or none. Waits for the front process of a daemon that was killed: it ends a moment after the daemon, and
    /// its sockets with it.
    pub(in crate::daemon) async fn bind(policy: &Policy, state: &Path) -> Result<Self, Failure> {
        let path = state.join(LOCK);
        let cannot = |error: io::Error| {
            Failure::new(ExitCode::NotPermitted, format!("cannot use {}: {error}", path.display()))
        };
        let lock = File::create(&path).map_err(cannot)?;
        // Other users may not read the file, because whoever may read it may lock it.
        lock.set_permissions(Permissions::from_mode(0o600)).map_err(cannot)?;
        let begun = Instant::now();
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begun.elapsed() > PATIENCE {
                log::warning(
                    "the front process of an earlier daemon still runs, and may have sockets that this one needs",
                );
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let listen = policy.listen();
        let metrics = match listen.metrics() {
            Some(address) => {
                let listener = http::bind(address).await.map_err(Failure::usage)?;
                Some(listener.into_std().map_err(cannot)?)
            }
            None => None,
        };
        let sockets = ServedSockets::bind(listen).map_err(Failure::usage)?;
        Ok(Self { lock, metrics, sockets })
    }

    /// Returns copies of the sockets for the front process, and what each is for.
    pub(in crate::daemon) fn handles(&self, policy: &Policy) -> io::Result<Vec<(SocketUse, OwnedFd)>> {
        let of_requests = self.sockets.handles(policy)?.into_iter();
        let mut handles: Vec<(SocketUse, OwnedFd)> = of_requests
            .map(|(protocol, endpoint, handle)| (SocketUse::Requests(protocol, endpoint), handle))
            .collect();
        if let Some(metrics) = &self.metrics {
            handles.push((SocketUse::Metrics, metrics.try_clone()?.into()));
        }
        handles.push((SocketUse::Lock, self.lock.try_clone()?.into()));
        Ok(handles)
    }
}
