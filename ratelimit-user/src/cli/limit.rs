//! `ratelimit limit`: limits of the running policy.

use clap::{Args, Subcommand};

use super::{
    Daemon, Format,
    client::{ask, order, unexpected},
    operator::Force,
    output::{Output, print, print_json, table},
};
use crate::{
    failure::Failure,
    serve::protocol::{LimitInfo, Reply, Request},
};

/// Show or change limits of the running policy.
#[derive(Debug, Args)]
pub(super) struct Limit {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show all limits
    List {
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        format: Format,
    },
    /// Show one limit
    Get {
        /// Its name, such as source.packets
        name: String,
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        format: Format,
    },
    /// Change one limit from the next packet on
    ///
    /// The policy file is not touched unless --save is given; then only this limit in it changes, comments stay.
    ///
    /// Example: ratelimit limit set source.packets "1000 packets/s burst 2000"
    Set {
        /// Its name, such as source.packets
        name: String,
        /// The new rate, as in the policy file
        rate: String,
        /// Also write it into the file that the policy came from
        #[arg(long)]
        save: bool,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        daemon: Daemon,
        #[command(flatten)]
        format: Format,
    },
}

impl Limit {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            Action::List { daemon, format } => match ask(&daemon.state, Request::LimitList)? {
                Reply::Limits(limits) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "limits": limits }))
                }
                Reply::Limits(limits) => print(&text(&limits)),
                other => Err(unexpected(&other)),
            },
            Action::Get { name, daemon, format } => match ask(&daemon.state, Request::LimitGet { name })? {
                Reply::Limits(limits) if format.output == Output::Json => print_json(&limits.first()),
                Reply::Limits(limits) => print(&text(&limits)),
                other => Err(unexpected(&other)),
            },
            Action::Set { name, rate, save, force, daemon, format } => {
                let operator = force.operator();
                order(&daemon.state, Request::LimitSet { name, rate, save, operator }, format.output)
            }
        }
    }
}

fn text(limits: &[LimitInfo]) -> String {
    let row = |limit: &LimitInfo| vec![limit.name.clone(), limit.rate.clone()];
    table(&["limit", "rate"], &limits.iter().map(row).collect::<Vec<_>>())
}
