//! `ratelimit rollback`: one policy back.

use clap::Args;

use super::{DaemonArgs, Format, operator::Force, order::order};
use crate::{control::protocol::Order, failure::Failure};

/// Go back to the policy before the last apply, limit set, user set or SIGHUP.
///
/// Ends a wait for confirmation at once. One step: exits with 1 if there is no policy to go back to.
///
/// Example: ratelimit rollback
#[derive(Debug, Args)]
pub(super) struct Rollback {
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl Rollback {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let operator = self.force.operator();
        order(&self.daemon.state, Order::Rollback { operator }, self.format.output)
    }
}
