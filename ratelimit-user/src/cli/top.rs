//! `ratelimit top`: who sends what, now.

use clap::{Args, ValueEnum};

use super::{
    Daemon, Format,
    output::{Output, print, print_json, table},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
    stats::{
        talkers::Talker,
        view::{Flow, View},
    },
};

/// Show who sends what: sources, prefixes, services, users and reasons by packets per second.
///
/// Numbers of sources, prefixes and users are estimates once there is more traffic than can be looked at packet by packet; each says how good it is.
///
/// Example: ratelimit top --once --by prefix
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Show one second and end
    #[arg(long)]
    once: bool,
    /// What to add up by
    #[arg(long, value_enum, default_value_t = By::Source)]
    by: By,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    format: Format,
}

/// What packets are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// What the policy takes for one source
    Source,
    /// /24 of IPv4, /48 of IPv6
    Prefix,
    /// Services of the policy
    Service,
    /// Users of the policy
    User,
    /// Why packets passed or were refused
    Reason,
}

impl Top {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let view = look(&self.daemon)?;
        match self.format.output {
            Output::Json => print_json(&view),
            Output::Text => print(&text(&view, self.by)),
        }
    }
}

fn look(daemon: &Daemon) -> Result<View, Failure> {
    match ask(&daemon.state, Order::Top)? {
        Reply::View(view) => Ok(*view),
        other => Err(unexpected(&other)),
    }
}

/// Rows of a table on one page.
const PAGE: usize = 20;

/// One second as text.
fn text(view: &View, by: By) -> String {
    let rows = match by {
        By::Source => talkers(&view.sources),
        By::Prefix => talkers(&view.prefixes),
        By::User => talkers(&view.users),
        By::Service => services(view),
        By::Reason => reasons(view),
    };
    let heads: &[&str] = match by {
        By::Source => {
            &["source", "packets/s", "bytes/s", "passed", "dropped", "+/-", "service", "user", "reason"]
        }
        By::Prefix => {
            &["prefix", "packets/s", "bytes/s", "passed", "dropped", "+/-", "service", "user", "reason"]
        }
        By::User => {
            &["user", "packets/s", "bytes/s", "passed", "dropped", "+/-", "service", "user", "reason"]
        }
        By::Service => {
            &["service", "passed/s", "dropped/s", "answered/s", "passed bytes/s", "dropped bytes/s"]
        }
        By::Reason => &["reason", "verdict", "packets/s", "bytes/s"],
    };
    format!("{}\n\n{}", summary(view), table(heads, &rows))
}

/// What the host does, in two lines.
fn summary(view: &View) -> String {
    let flow = |flow: &Flow| {
        format!("{} packets/s, {} bytes/s", rounded(flow.packets_per_second), rounded(flow.bytes_per_second))
    };
    let sampling = &view.sampling;
    let how = match (&sampling.problem, sampling.one_in) {
        (Some(problem), _) => format!("no sources: {problem}"),
        (None, 0 | 1) if sampling.lost == 0 => format!("every packet was looked at ({})", sampling.samples),
        (None, one_in) => format!(
            "{} packets were looked at, one in {one_in} at the busiest moment; a source that is not shown sent fewer than {}",
            sampling.samples, sampling.unseen_packets
        ),
    };
    format!(
        "{}  {}, attack state {}\npassed {}; dropped {}; answered {}\n{how}",
        view.at,
        view.mode,
        view.attack_state,
        flow(&view.passed),
        flow(&view.dropped),
        flow(&view.replied)
    )
}

fn rounded(number: f64) -> String {
    format!("{number:.0}")
}

fn talkers(talkers: &[Talker]) -> Vec<Vec<String>> {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let row = |talker: &Talker| {
        vec![
            talker.name().to_owned(),
            rounded(talker.packets_per_second),
            rounded(talker.bytes_per_second),
            talker.passed_packets.to_string(),
            talker.dropped_packets.to_string(),
            talker.error_packets.to_string(),
            word(&talker.service),
            word(&talker.user),
            word(&talker.reason),
        ]
    };
    talkers.iter().take(PAGE).map(row).collect()
}

fn services(view: &View) -> Vec<Vec<String>> {
    let row = |service: &crate::stats::view::ServiceFlow| {
        vec![
            if service.service.is_empty() { "(none)".to_owned() } else { service.service.clone() },
            rounded(service.passed.packets_per_second),
            rounded(service.dropped.packets_per_second),
            rounded(service.replied.packets_per_second),
            rounded(service.passed.bytes_per_second),
            rounded(service.dropped.bytes_per_second),
        ]
    };
    view.services.iter().map(row).collect()
}

fn reasons(view: &View) -> Vec<Vec<String>> {
    let row = |reason: &crate::stats::view::ReasonFlow| {
        vec![
            reason.reason.clone(),
            reason.verdict.clone(),
            rounded(reason.flow.packets_per_second),
            rounded(reason.flow.bytes_per_second),
        ]
    };
    view.reasons.iter().map(row).collect()
}
