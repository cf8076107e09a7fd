//! `ratelimit serve`: only the decision service, without the packet path.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;

use crate::{
    config,
    failure::{ExitCode, Failure},
    serve::{desk::Desk, workers::Sockets},
};

/// Answer questions about requests, without guarding any interface; prints "ready" when listening.
///
/// For hosts that are no edge, for trying a policy, and where the kernel program cannot be loaded. Needs no rights; callers that stay above
/// their limits are not blocked in the kernel. `ratelimit run` does this and guards interfaces as well.
///
/// Example: ratelimit serve --policy /etc/ratelimit.toml
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Policy file
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
}

impl Serve {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let loaded = config::load(&self.policy).map_err(|error| Failure::usage(error.to_string()))?;
        let sockets = Sockets::bind(loaded.policy.listen()).map_err(Failure::usage)?;
        if sockets.is_empty() {
            return Err(Failure::usage(
                "the policy names nowhere to listen; add [listen] with http, grpc or resp = \"127.0.0.1:8080\"",
            ));
        }
        let desk = Arc::new(Desk::new(&loaded.policy));
        let threads = sockets
            .serve(&desk, &loaded.policy)
            .map_err(|error| Failure::new(ExitCode::Unsupported, format!("cannot start threads: {error}")))?;
        let mut out = io::stdout().lock();
        let _unread = writeln!(out, "ready").and_then(|()| out.flush());
        drop(out);
        for thread in threads {
            if thread.join().is_err() {
                return Err(Failure::new(ExitCode::Unsupported, "a thread that answers has ended"));
            }
        }
        Ok(())
    }
}
