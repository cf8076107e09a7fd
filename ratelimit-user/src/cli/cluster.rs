//! `ratelimit cluster`: the hosts that share limits and blocks.

use clap::Args;

use super::{
    DaemonArgs, Format,
    output::{Output, print, print_json, table},
    status,
};
use crate::{
    cluster::members::{Member, State},
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
};

/// Show the hosts of the cluster: when each was last heard of, its leases, and whether it knows every block.
///
/// Example: ratelimit cluster --output json
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl ClusterArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match ask(&self.daemon.state, Order::Cluster)? {
            Reply::Cluster { status, hosts } if self.format.output == Output::Json => {
                print_json(&serde_json::json!({ "status": status, "hosts": hosts }))
            }
            Reply::Cluster { status, hosts } => print(&(status::cluster(&status) + &text(&hosts))),
            other => Err(unexpected(&other)),
        }
    }
}

fn text(hosts: &[Member]) -> String {
    let row = |host: &Member| {
        let state = match host.state {
            State::Here => "here",
            State::Late => "LATE",
            State::Away => "AWAY",
        };
        vec![
            host.host.clone(),
            format!("{state}, {:.1} s ago", host.seen_ms_ago as f64 / 1e3),
            host.facts.program.clone(),
            format!("{} us", host.facts.round_trip_us),
            host.facts.leases.to_string(),
            format!("{} ({} refused)", host.facts.blocks, host.facts.refused),
            host.behind.to_string(),
        ]
    };
    table(
        &["host", "heard of", "version", "round trip", "leases", "blocks", "behind"],
        &hosts.iter().map(row).collect::<Vec<_>>(),
    )
}
