//! The process of a front: a child of the daemon, or a process that a supervisor has started for it.

use std::{io, process::ExitStatus, time::Duration};

use tokio::process::Child;

use crate::failure::{ExitCode, Failure};

/// The process of a front, by who has started it.
#[derive(Debug)]
pub(super) enum FrontWorker {
    /// A child of the daemon, which waits for it and ends it.
    Child(Box<Child>),
    /// A process of a supervisor. It ends at the end of its streams. If it hangs, the supervisor has to kill it, because the daemon may not
    /// kill a process of another user.
    Hired,
}

impl FrontWorker {
    /// Returns the process id of the front; 0 if only the supervisor knows it.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Child(child) => child.id().unwrap_or(0),
            Self::Hired => 0,
        }
    }

    /// Waits for the end of a child, and returns why it ended. For a process of a supervisor this waits for ever.
    pub(super) async fn wait(&mut self) -> Failure {
        match self {
            Self::Child(child) => described(child.wait().await),
            Self::Hired => std::future::pending().await,
        }
    }

    /// Returns why a process has ended whose streams have ended.
    pub(super) async fn why_ended(&mut self, patience: Duration) -> Failure {
        match self {
            Self::Child(child) => match tokio::time::timeout(patience, child.wait()).await {
                Ok(status) => described(status),
                Err(_) => Failure::new(ExitCode::Unsupported, "it says something that makes no sense"),
            },
            Self::Hired => {
                Failure::new(ExitCode::Unsupported, "it has closed its stream; its supervisor's log says why")
            }
        }
    }

    /// Kills a child that hangs.
    pub(super) fn kill(&mut self) {
        if let Self::Child(child) = self {
            let _gone = child.start_kill();
        }
    }

    /// Waits for the end of a child whose streams are closed, and kills it if it does not end in time.
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
