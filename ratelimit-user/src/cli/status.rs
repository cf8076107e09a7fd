//! `ratelimit status`: is it working?

use clap::Args;

use super::{
    DaemonArgs, Format,
    interface_line::interface_line,
    output::{Output, counted, print, print_json},
    remains::{Pins, RemainsStatus},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{self, Order, Reply},
    },
    failure::{ExitCode, Failure},
};

/// Show whether and how interfaces are protected.
///
/// Exits with 1 when an interface is not protected, or when none is guarded. When no daemon runs, the answer comes from the pinned maps;
/// without a daemon and without pins the exit code is 3.
///
/// Example: ratelimit status --output json
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    format: Format,
}

impl StatusArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let state = &self.daemon.state;
        if let Some(pins) = self.pins.without_daemon(state) {
            let left = RemainsStatus::read(&pins, state)?;
            match self.format.output {
                Output::Json => print_json(&left)?,
                Output::Text => print(&left.text())?,
            }
            return found(left.is_protected());
        }
        let status = match ask(state, Order::Status)? {
            Reply::Status(status) => status,
            other => return Err(unexpected(&other)),
        };
        match self.format.output {
            Output::Json => print_json(&status)?,
            Output::Text => print(&text(&status))?,
        }
        found(protocol::all_protected(&status.interfaces))
    }
}

/// What is not protected has been shown: there is nothing more to say.
fn found(protected: bool) -> Result<(), Failure> {
    if protected { Ok(()) } else { Err(Failure::new(ExitCode::Found, "")) }
}

fn text(status: &protocol::Status) -> String {
    let mut text = format!(
        "ratelimit {} (abi {}), pid {}, up {} s, kernel {}\n",
        status.build, status.abi, status.pid, status.uptime_seconds, status.kernel
    );
    if status.interfaces.is_empty() {
        text.push_str("NOT PROTECTING: no interface is attached\n");
    }
    status.interfaces.iter().for_each(|interface| text.push_str(&interface_line(interface)));
    let changed = if status.policy_changed { ", changed since by limit set or user set" } else { "" };
    text.push_str(&format!(
        "policy     {}, generation {}{changed}\n",
        status.policy, status.policy_generation
    ));
    if let Some(unconfirmed) = &status.unconfirmed {
        text.push_str(&format!(
            "UNCONFIRMED  {} s left for ratelimit confirm, then back to {}\n",
            unconfirmed.seconds_left, unconfirmed.back_to
        ));
        for change in &unconfirmed.changes {
            text.push_str(&format!("           {change}\n"));
        }
    }
    if let (Some(before), None) = (&status.policy_before, &status.unconfirmed) {
        text.push_str(&format!("           ratelimit rollback goes back to {before}\n"));
    }
    text.push_str(&format!("           {}\n", status.policy_after_restart));
    text.push_str(&format!(
        "attack     {}, {}\n",
        status.attack_state,
        counted(status.attack_state_changes, "change")
    ));
    for attack in &status.attacks.active {
        text.push_str(&format!("           {}; ratelimit attacks show {}\n", attack.words(), attack.number));
    }
    text.push_str(&headroom(&status.headroom));
    text.push_str(&format!(
        "sources    {} of {}, {} new in the last second, {} evicted so far, {} tracked prefilter cells\n\
         clients    {} known, who are served {} packets/s on average; of spent totals {} of their packets came first, {} were refused\n{}\
         prefixes   {} have had a bucket of their own\n",
        status.table_entries,
        status.table_capacity,
        status.promotions_per_second,
        status.evictions,
        status.tracked_cells,
        status.known_clients,
        status.known_packets_per_second,
        status.known_packets.admitted,
        status.known_packets.refused,
        status.known_tightest.as_ref().map_or_else(String::new, |words| format!("           {words}\n")),
        status.prefix_promotions
    ));
    if let Some(lane) = &status.express_lane {
        text.push_str(&self::lane(lane));
    }
    if let Some(cluster) = &status.cluster {
        text.push_str(&self::cluster(cluster));
    }
    text.push_str(&format!(
        "lists      {} blocked, {} allowed; kept in {}\npins       {}\n",
        status.blocked_prefixes, status.allowed_prefixes, status.lists_kept_in, status.pin
    ));
    for warning in &status.warnings {
        text.push_str(&format!("WARNING    {warning}\n"));
    }
    text
}

/// Whether what is known to be refused ends early.
fn lane(lane: &protocol::LaneStatus) -> String {
    let why = lane.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    if lane.ipv4 == lane.ipv6 {
        return format!("lane       {}{why}\n", lane.ipv4.words());
    }
    format!("lane       {} to IPv4, {} to IPv6{why}\n", lane.ipv4.words(), lane.ipv6.words())
}

pub(super) fn cluster(status: &protocol::ClusterStatus) -> String {
    let state = match (&status.problem, status.failing_seconds) {
        (None, _) => format!("up, last answer in {} us", status.round_trip_us),
        (Some(problem), None) => problem.clone(),
        (Some(problem), Some(seconds)) => format!("DOWN for {seconds} s: {problem}"),
    };
    let mut text = format!(
        "store      {}: {state}\n\
         leases     {} of {} limits, {} units; {} exchanges, {} failed\n\
         bound      {}\n",
        status.store,
        status.leases,
        status.limits,
        status.lease_units,
        status.exchanges,
        status.failures,
        status.bound
    );
    for warning in &status.warnings {
        text.push_str(&format!("WARNING    {warning}\n"));
    }
    text
}

fn headroom(status: &protocol::HeadroomStatus) -> String {
    let mut text = format!(
        "headroom   {}, for {} s, {}: {}\n",
        status.headroom,
        status.headroom_seconds,
        counted(status.headroom_changes, "change"),
        status.headroom_readings
    );
    if let Some(reason) = &status.headroom_reason {
        text.push_str(&format!("           lost because {reason}\n"));
    }
    for note in &status.headroom_notes {
        text.push_str(&format!("           {note}\n"));
    }
    text
}
