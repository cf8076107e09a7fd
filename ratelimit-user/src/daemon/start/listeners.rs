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

/// A front process has this file of the state directory locked as long as it lives.
const LOCK: &str = "front.lock";
/// How long the front process of an earlier daemon may take to end after it, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Sockets that are bound. Files of sockets go with the value.
#[derive(Debug)]
pub(in crate::daemon) struct Listeners {
    lock: File,
    metrics: Option<std::net::TcpListener>,
    sockets: ServedSockets,
}

impl Listeners {
    /// Binds everything that a policy names, or nothing. Waits for the front process of a daemon that was killed: it ends a moment later, and its sockets
    /// with it.
    pub(in crate::daemon) async fn bind(policy: &Policy, state: &Path) -> Result<Self, Failure> {
        let path = state.join(LOCK);
        let cannot = |error: io::Error| {
            Failure::new(ExitCode::NotPermitted, format!("cannot use {}: {error}", path.display()))
        };
        let lock = File::create(&path).map_err(cannot)?;
        // A user who may read the file may lock it as well.
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

    /// What the front process gets of them.
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
