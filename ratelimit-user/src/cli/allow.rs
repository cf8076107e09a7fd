//! `ratelimit allow`: the allow list.

use clap::{Args, Subcommand};

use super::{
    DaemonArgs, Format,
    operator::Force,
    order::order,
    output::{Output, print, print_json},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
};

/// Change or show the allow list.
#[derive(Debug, Args)]
pub(super) struct Allow {
    #[command(subcommand)]
    action: AllowAction,
}

#[derive(Debug, Subcommand)]
enum AllowAction {
    /// Never block or limit a prefix; wins over every block
    ///
    /// Example: ratelimit allow add 198.51.100.7
    Add {
        /// Address or prefix, such as 198.51.100.7 or 2001:db8::/48
        #[arg(value_name = "CIDR")]
        prefix: String,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Limit a prefix again like everybody else
    ///
    /// Example: ratelimit allow del 198.51.100.7
    #[command(aliases = super::usage::REMOVAL)]
    Del {
        /// Address or prefix, as it was added
        #[arg(value_name = "CIDR")]
        prefix: String,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Show what is allowed
    ///
    /// Example: ratelimit allow list
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl Allow {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            AllowAction::Add { prefix, daemon, format } => {
                order(&daemon.state, Order::AllowAdd { prefix }, format.output)
            }
            AllowAction::Del { prefix, force, daemon, format } => {
                let operator = force.operator();
                order(&daemon.state, Order::AllowDel { prefix, operator }, format.output)
            }
            AllowAction::List { daemon, format } => match ask(&daemon.state, Order::AllowList)? {
                Reply::Allows(prefixes) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "allows": prefixes }))
                }
                Reply::Allows(prefixes) if prefixes.is_empty() => print("nothing is on the allow list\n"),
                Reply::Allows(prefixes) => print(&(prefixes.join("\n") + "\n")),
                other => Err(unexpected(&other)),
            },
        }
    }
}
