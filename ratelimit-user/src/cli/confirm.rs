//! `ratelimit confirm`: the applied policy stays.

use clap::Args;

use super::{DaemonArgs, Format, order::order};
use crate::{control::protocol::Order, failure::Failure};

/// Keep the policy that `apply --confirm` put in force.
///
/// Exits with 1 if nothing waits for confirmation.
///
/// Example: ratelimit confirm
#[derive(Debug, Args)]
pub(super) struct Confirm {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl Confirm {
    pub(super) fn execute(self) -> Result<(), Failure> {
        order(&self.daemon.state, Order::Confirm, self.format.output)
    }
}
