//! `ratelimit block`: the block list.

use clap::{Args, Subcommand};
use ratelimit_common::limit::lifetime::parse_lifetime;

use super::{
    DaemonArgs, Format,
    operator::Force,
    order::order,
    output::{Output, print, print_json, table},
};
use crate::{
    control::{
        client::{ask, require_this_build, unexpected},
        protocol::{self, Order, Reply},
    },
    failure::Failure,
};

/// The part of an order that daemons have not always known.
const CLUSTER: &str = "--cluster";

/// Change or show the block list.
#[derive(Debug, Args)]
pub(super) struct BlockArgs {
    #[command(subcommand)]
    action: BlockAction,
}

#[derive(Debug, Subcommand)]
enum BlockAction {
    /// Block a prefix; the kernel program ends the block when its lifetime is over
    ///
    /// Example: ratelimit block add 203.0.113.0/24 --for 10m --reason "syn flood, ticket 4711"
    Add {
        /// Address or prefix, such as 203.0.113.0/24 or 2001:db8::/48
        #[arg(value_name = "CIDR")]
        prefix: String,
        /// Lifetime, such as 30s, 10m, 2h or 1d; without it the block stays until `block del`
        #[arg(long = "for", value_name = "TIME")]
        lifetime: Option<String>,
        /// Why the prefix is blocked, for whoever reads the list later
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// On all hosts of the cluster, within a second
        #[arg(long)]
        cluster: bool,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Unblock a prefix
    ///
    /// Example: ratelimit block del 203.0.113.0/24
    #[command(aliases = super::usage::REMOVAL)]
    Del {
        /// Address or prefix, as it was added
        #[arg(value_name = "CIDR")]
        prefix: String,
        /// On all hosts of the cluster, within a second
        #[arg(long)]
        cluster: bool,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Show what is blocked, for how long and why
    ///
    /// Example: ratelimit block list --output json
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl BlockArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            BlockAction::Add { prefix, lifetime, reason, cluster, force, daemon, format } => {
                let for_ns = match lifetime.as_deref().map(parse_lifetime).transpose() {
                    Ok(for_ns) => for_ns,
                    Err(error) => return Err(Failure::usage(format!("--for: {error}"))),
                };
                let operator = force.operator();
                if cluster {
                    require_this_build(&daemon.state, CLUSTER)?;
                }
                let request = Order::BlockAdd { prefix, for_ns, reason, cluster, operator };
                order(&daemon.state, request, format.output)
            }
            BlockAction::Del { prefix, cluster, daemon, format } => {
                if cluster {
                    require_this_build(&daemon.state, CLUSTER)?;
                }
                order(&daemon.state, Order::BlockDel { prefix, cluster }, format.output)
            }
            BlockAction::List { daemon, format } => match ask(&daemon.state, Order::BlockList)? {
                Reply::Blocks(blocks) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "blocks": blocks }))
                }
                Reply::Blocks(blocks) => print(&text(&blocks)),
                other => Err(unexpected(&other)),
            },
        }
    }
}

fn text(blocks: &[protocol::Block]) -> String {
    if blocks.is_empty() {
        return "nothing is blocked\n".to_owned();
    }
    let row = |block: &protocol::Block| {
        vec![
            block.prefix.clone(),
            block.seconds_left.map_or_else(|| "for good".to_owned(), |seconds| format!("{seconds} s")),
            block
                .origin
                .as_ref()
                .map_or_else(|| "this host".to_owned(), |origin| format!("all hosts, by {origin}")),
            match (&block.reason, &block.refused) {
                (reason, None) => reason.clone().unwrap_or_default(),
                (_, Some(why)) => format!("NOT BLOCKED HERE: {why}"),
            },
        ]
    };
    table(&["prefix", "left", "where", "reason"], &blocks.iter().map(row).collect::<Vec<_>>())
}
