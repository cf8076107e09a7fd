//! The process behind a front: a child of the daemon, or one that a supervisor has started for it.

use std::{io, process::ExitStatus, time::Duration};

use tokio::process::Child;

use crate::failure::{ExitCode, Failure};

/// A process that serves as front.
#[derive(Debug)]
pub(super) enum FrontWorker {
    /// The daemon waits for it, and ends it.
    Child(Box<Child>),
    /// A supervisor waits for it. It ends at the end of its streams; one that hangs is the supervisor's to kill, because the daemon may not
    /// kill a process of another user.
    Hired,
}

impl FrontWorker {
    /// The process id of the front; 0 if only the supervisor knows it.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Child(child) => child.id().unwrap_or(0),
            Self::Hired => 0,
        }
    }

    /// Comes back when the process has ended, if the daemon is told.
    pub(super) async fn wait(&mut self) -> Failure {
        match self {
            Self::Child(child) => described(child.wait().await),
            Self::Hired => std::future::pending().await,
        }
    }

    /// Why a process has ended whose streams have.
    pub(super) async fn why_ended(&mut self, patience: Duration) -> Failure {
        match self {
            Self::Child(child) => match tokio::time::timeout(patience, child.wait()).await {
                Ok(status) => described(status),
                Err(_) => Failure::new(ExitCode::Unsupported, "it says something that makes no sense"),
            },
            Self::Hired => {
                Failure::new(ExitCode::Unsupported, "its stream has; its supervisor's log says why")
            }
        }
    }

    /// Ends a process that hangs, if it is the daemon's to end.
    pub(super) fn kill(&mut self) {
        if let Self::Child(child) = self {
            let _gone = child.start_kill();
        }
    }

    /// Ends a process whose streams are closed, if it does not end by itself.
    pub(super) async fn end(mut self, patience: Duration) {
        if let Self::Child(child) = &mut self
            && tokio::time::timeout(patience, child.wait()).await.is_err()
        {
            let _gone = child.kill().await;
        }
    }
}

fn described(status: io::Result<ExitStatus>) -> Failure {
    let why = match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Failure::new(ExitCode::Unsupported, why)
}
