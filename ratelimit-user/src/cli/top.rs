//! `ratelimit top`: who sends what, now.

use std::{
    io::{self, IsTerminal as _},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
};

use clap::Args;

use super::{
    DaemonArgs, Format,
    explain::explained,
    operator::Force,
    output::{Output, print, print_if_read, print_json, table},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply, Status},
    },
    failure::Failure,
    policy::Prefix,
    stats::view::StatsView,
    tui::{
        self, HostSummary, Screen, WatchedHost as _,
        rows::{Grouping, Ranking, heads, rows, short, summary},
    },
};

/// How long a source that is blocked from here stays blocked.
const BLOCK_NS: u64 = 600_000_000_000;
/// Rows of a table without a terminal.
const PAGE: usize = 20;

/// Show who sends what: sources, prefixes, services, users and reasons by packets per second, and what is left of their limits.
///
/// Numbers of sources, prefixes and users are estimates once there is more traffic than can be looked at packet by packet; each says how
/// far it may be off. In a terminal keys sort, filter, pause, explain, block and allow: ? shows them.
///
/// Example: ratelimit top --once --by prefix
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Show one second and end
    #[arg(long)]
    once: bool,
    /// What to add up by
    #[arg(long, value_enum, default_value_t = Grouping::Source)]
    by: Grouping,
    /// Which come first
    #[arg(long, value_enum, default_value_t = Ranking::Packets)]
    sort: Ranking,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    format: Format,
}

impl Top {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let host = RunningHost { state: self.daemon.state };
        let text = |view: &StatsView| text(view, self.by, self.sort);
        match (self.format.output, self.once) {
            (Output::Json, true) => print_json(&host.view()?),
            (Output::Text, true) => print(&text(&host.view()?)),
            (Output::Json, false) => {
                repeat(&host, |view| serde_json::to_string(view).unwrap_or_default() + "\n")
            }
            (Output::Text, false) if !can_be_drawn_on() => repeat(&host, |view| text(view) + "\n"),
            (Output::Text, false) => {
                // A daemon that does not run is said before the terminal is taken.
                host.standing()?;
                let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                tui::run(&Arc::new(host), Screen::new(self.by, self.sort), has_colours)
            }
        }
    }
}

/// Whether both ends are a terminal that understands more than lines.
fn can_be_drawn_on() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Prints every second until nobody reads any more.
fn repeat(host: &RunningHost, shown: impl Fn(&StatsView) -> String) -> Result<(), Failure> {
    while print_if_read(&shown(&host.view()?))? {}
    Ok(())
}

/// One second as text.
fn text(view: &StatsView, grouping: Grouping, ranking: Ranking) -> String {
    let rows: Vec<Vec<String>> = rows(view, grouping, ranking, "")
        .into_iter()
        .take(PAGE)
        .map(|row| [vec![row.name], row.cells].concat())
        .collect();
    format!("{}\n\n{}", summary(view).join("\n"), table(heads(grouping), &rows))
}

/// The daemon of this host.
struct RunningHost {
    state: PathBuf,
}

impl RunningHost {
    fn order(&self, order: Order) -> Result<String, Failure> {
        match ask(&self.state, order)? {
            Reply::Done(message) => Ok(message),
            other => Err(unexpected(&other)),
        }
    }
}

impl tui::WatchedHost for RunningHost {
    fn view(&self) -> Result<StatsView, Failure> {
        match ask(&self.state, Order::Top)? {
            Reply::View(view) => Ok(*view),
            other => Err(unexpected(&other)),
        }
    }

    fn standing(&self) -> Result<HostSummary, Failure> {
        match ask(&self.state, Order::Status)? {
            Reply::Status(status) => Ok(standing(&status)),
            other => Err(unexpected(&other)),
        }
    }

    fn explain(&self, source: &str) -> Result<String, Failure> {
        // Of a prefix, its first address.
        let address = source.split('/').next().unwrap_or_default();
        let address: IpAddr = address
            .parse()
            .map_err(|_| Failure::usage(format!("{source} is no address; choose a source to explain")))?;
        explained(&self.state, address, None)
    }

    fn block(&self, source: &str) -> Result<String, Failure> {
        self.order(Order::BlockAdd {
            prefix: prefix(source)?,
            for_ns: Some(BLOCK_NS),
            reason: Some("from top".to_owned()),
            cluster: false,
            operator: Force::NONE.operator(),
        })
    }

    fn allow(&self, source: &str) -> Result<String, Failure> {
        self.order(Order::AllowAdd { prefix: prefix(source)? })
    }
}

fn prefix(source: &str) -> Result<String, Failure> {
    let parsed: Result<Prefix, _> = source.parse();
    parsed.map(|prefix| prefix.to_string()).map_err(|error| Failure::usage(error.to_string()))
}

/// Interfaces, table and cluster in one line; what is nothing is left out, so that it fits into 80 columns.
fn standing(status: &Status) -> HostSummary {
    let interfaces: Vec<String> =
        status.interfaces.iter().map(|interface| format!("{} {}", interface.name, interface.mode)).collect();
    let cluster = status.cluster.as_ref().map_or_else(String::new, |cluster| {
        let up = if cluster.store_up { "up" } else { "DOWN" };
        format!("  store {up}, {} hosts, bound x{}", cluster.hosts_seen, cluster.bound_times_limit)
    });
    let some = |count: u64, before: &str, what: &str| match count {
        0 => String::new(),
        count => format!("{before}{} {what}", short(count as f64)),
    };
    HostSummary {
        line: format!(
            "{}  table {} of {}{}{}{cluster}",
            interfaces.join(", "),
            short(status.table_entries as f64),
            short(status.table_capacity as f64),
            some(status.evictions, ", ", "evicted"),
            some(status.blocked_prefixes, "  ", "blocked"),
        ),
        warnings: status.warnings.clone(),
    }
}
