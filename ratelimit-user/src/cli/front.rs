//! `ratelimit front`: what `ratelimit run` starts for its listeners.

use clap::Args;

use super::log_options::LogOptions;
use crate::{daemon, failure::Failure};

/// Answer for the daemon, without any rights. Started by `ratelimit run`, of no use by itself.
#[derive(Debug, Args)]
pub(super) struct FrontArgs {
    /// User to run as
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A supervisor has started it, with a connection of the daemon as standard input
    #[arg(long)]
    hired: bool,
    #[command(flatten)]
    log: LogOptions,
}

impl FrontArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        // Rights go first: whatever else the process does is done without them.
        let front = daemon::front::FrontProcess::confined(self.user.as_deref(), self.hired)?;
        self.log.start()?;
        front.serve()
    }
}
