//! `ratelimit known`: clients who come first when a total is spent.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use super::{
    DaemonArgs, Format,
    diff::read,
    order::order,
    output::{Output, complain, counted, print, print_if_read, print_json, table},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{ClientAtService, KnownClient, KnownSummary, Order, Reply},
    },
    failure::Failure,
};

/// Show, move or forget known clients, who come first when a total is spent.
#[derive(Debug, Args)]
pub(super) struct KnownArgs {
    #[command(subcommand)]
    action: KnownAction,
}

#[derive(Debug, Subcommand)]
enum KnownAction {
    /// Show what is remembered of an address at each service; without one, of all known clients together
    ///
    /// IPv6 addresses are remembered by their /64, or what `ipv6_prefix` of the policy says.
    ///
    /// Example: ratelimit known show 203.0.113.7
    Show {
        /// Address of the client
        address: Option<IpAddr>,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Print known clients of IPv4, one in each line: service, address, packets each second on average, seconds since last served
    ///
    /// IPv6 clients are left out, because they are remembered by a hash that cannot be undone; how many is printed on standard error. A service of - stands for packets of
    /// no service. To move IPv6 clients too, copy the file that `known show` names to the other host while no daemon runs on either.
    ///
    /// One IPv6 client in 128 looks like an IPv4 client of a service, and is printed with an address that is not its own.
    ///
    /// Example: ratelimit known export > clients.txt
    Export {
        #[command(flatten)]
        daemon: DaemonArgs,
    },
    /// Make the clients of a file known
    ///
    /// The file has lines as `known export` prints them, at most 16 MiB; also with IPv6 addresses. A file with a mistake changes nothing. A client gets the average that its line
    /// says, unless it has a larger one.
    ///
    /// Example: ratelimit known import clients.txt
    Import {
        /// File with lines of clients, or - for standard input
        file: PathBuf,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Forget an address at all services
    ///
    /// An address that is served again later becomes known again.
    ///
    /// Example: ratelimit known forget 203.0.113.7
    Forget {
        /// Address of the client
        address: IpAddr,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl KnownArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            KnownAction::Show { address, daemon, format } => {
                match (ask(&daemon.state, Order::KnownShow { address })?, format.output) {
                    (Reply::KnownClient(client), Output::Json) => print_json(&client),
                    (Reply::KnownClient(client), Output::Text) => print(&one(&client)),
                    (Reply::KnownSummary(all), Output::Json) => print_json(&all),
                    (Reply::KnownSummary(all), Output::Text) => print(&summary(&all)),
                    (other, _) => Err(unexpected(&other)),
                }
            }
            KnownAction::Export { daemon } => export(&daemon.state),
            KnownAction::Import { file, daemon, format } => {
                let from = if file == Path::new("-") { Path::new("/dev/stdin") } else { &file };
                let (full, text) = read(from)?;
                let request = Order::KnownImport { file: full, text, text_follows: None };
                order(&daemon.state, request, format.output)
            }
            KnownAction::Forget { address, daemon, format } => {
                order(&daemon.state, Order::KnownForget { address }, format.output)
            }
        }
    }
}

/// Prints the clients page by page, and then how many there were.
fn export(state: &Path) -> Result<(), Failure> {
    let (mut next, mut clients, mut ambiguous, mut left_out) = (Some(0), 0, 0, 0);
    while let Some(from) = next {
        match ask(state, Order::KnownExport { from })? {
            Reply::KnownPage(page) => {
                if !print_if_read(&page.lines)? {
                    return Ok(());
                }
                next = page.next;
                clients += page.clients;
                ambiguous += page.ambiguous;
                left_out += page.left_out;
            }
            other => return Err(unexpected(&other)),
        }
    }
    let mut words = counted(clients, "client");
    if ambiguous > 0 {
        words.push_str(&format!(
            ", of which {ambiguous} stand at several services: one of these lines is right, and this host takes them for one client"
        ));
    }
    if left_out > 0 {
        words.push_str(&format!(
            "; {left_out} more are left out, of IPv6 or of services that the policy no longer has"
        ));
    }
    complain(&words);
    Ok(())
}

fn one(client: &KnownClient) -> String {
    if client.services.is_empty() {
        return format!("{} is not remembered\n", client.source);
    }
    let row = |at: &ClientAtService| {
        vec![
            at.service.clone().unwrap_or_else(|| "no service".to_owned()),
            at.client.state.clone(),
            format!("{} s ago", at.client.seconds_since_served),
            at.client.packets_per_second.to_string(),
            at.client.claim_packets_per_second.to_string(),
            format!("{} %", at.client.claim_used_percent),
        ]
    };
    let rows: Vec<_> = client.services.iter().map(row).collect();
    let header = ["service", "state", "served", "packets/s", "claim", "used"];
    format!("{}\n{}", client.source, table(&header, &rows))
}

fn summary(all: &KnownSummary) -> String {
    let mut text = format!(
        "clients    {} known, {} in the filter\nserved     {} packets/s on average, all together\n",
        all.clients, all.in_filter, all.packets_per_second
    );
    for total in &all.totals {
        let name = total.service.as_ref().map_or_else(|| "host".to_owned(), |name| format!("service {name}"));
        let fit = total.claims_fit.map_or_else(
            || "there are no claims".to_owned(),
            |times| format!("all claims fit {times:.1} times"),
        );
        text.push_str(&format!("total      {name}, {} packets/s: {fit}\n", total.packets_per_second));
    }
    let saved = all.saved.as_deref().unwrap_or("not yet,");
    text.push_str(&format!("saved      {saved} in {}\n", all.kept_in));
    text
}
