//! `ratelimit attacks`: what was recognised as an attack, and its reports.

use clap::{Args, Subcommand};
use ratelimit_common::abi::Reason;

use super::{
    DaemonArgs, Format,
    output::{Output, print, print_json, table},
};
use crate::{
    attacks::{AttackReport, AttackSummary, CountedBy, Frequency, Unusual},
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
};

/// Show attacks: when each began and ended, what it was, and what it did.
#[derive(Debug, Args)]
pub(super) struct AttacksArgs {
    #[command(subcommand)]
    action: AttacksAction,
}

#[derive(Debug, Subcommand)]
enum AttacksAction {
    /// Show all attacks that are kept, newest first
    ///
    /// Example: ratelimit attacks list
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Show everything that is known of one attack
    ///
    /// Example: ratelimit attacks show 7 --output json
    Show {
        /// Number of the attack
        number: u64,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl AttacksArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            AttacksAction::List { daemon, format } => match ask(&daemon.state, Order::AttackList)? {
                Reply::Attacks(attacks) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "attacks": attacks }))
                }
                Reply::Attacks(attacks) if attacks.is_empty() => print("no attack was recognised\n"),
                Reply::Attacks(attacks) => print(&list(&attacks)),
                other => Err(unexpected(&other)),
            },
            AttacksAction::Show { number, daemon, format } => {
                match ask(&daemon.state, Order::AttackShow { number })? {
                    Reply::Attack(report) if format.output == Output::Json => {
                        print_json(&serde_json::json!({ "attack": report }))
                    }
                    Reply::Attack(report) => print(&text(&report)),
                    other => Err(unexpected(&other)),
                }
            }
        }
    }
}

fn list(attacks: &[AttackSummary]) -> String {
    let row = |attack: &AttackSummary| {
        vec![
            attack.number.to_string(),
            attack.begin.clone(),
            match &attack.end {
                Some(_) => format!("{} s", attack.seconds),
                None if attack.now.contained => format!("contained, {} s", attack.seconds),
                None => format!("GOES ON, {} s", attack.seconds),
            },
            attack.kind.name().to_owned(),
            attack.target.to_string(),
            attack.refused_packets.to_string(),
            attack.peak_packets_per_second.to_string(),
            attack.target.unit().to_owned(),
            attack.unusual.as_ref().map_or_else(String::new, Unusual::peak),
        ]
    };
    let rows: Vec<Vec<String>> = attacks.iter().map(row).collect();
    table(&["number", "begin", "lasted", "kind", "target", "refused", "peak/s", "unit", "unusual"], &rows)
}

fn text(report: &AttackReport) -> String {
    let AttackSummary { number, target, kind, begin, end, seconds, .. } = &report.summary;
    let unit = report.unit();
    let mut lines = vec![
        format!("attack {number}: {} on {target}", kind.name()),
        match end {
            Some(end) => format!(
                "from {begin} to {end}, {seconds} s; {}",
                report.ended_because.as_deref().unwrap_or_default()
            ),
            None => format!("since {begin}, {seconds} s; it {}", report.summary.now.words(unit)),
        },
        format!(
            "refused {} {unit}, {} bytes; peak {} {unit}/s, {} bytes/s at {}",
            report.summary.refused_packets,
            report.summary.refused_bytes,
            report.summary.peak_packets_per_second,
            report.summary.peak_bytes_per_second,
            report.peak_at
        ),
    ];
    if let Some(unusual) = &report.summary.unusual {
        lines.push(format!(
            "{} in the {} s before; {}",
            unusual.peak(),
            unusual.watched_seconds,
            unusual.advice
        ));
    }
    if report.summary.would_drop_packets > 0 {
        lines.push(format!("NOT DROPPED, on trial: {} of them passed", report.summary.would_drop_packets));
    }
    let answered = report.reasons.iter().find(|count| count.reason == Reason::CookieSent.name());
    if let Some(answered) = answered {
        let packets = answered.packets;
        lines.push(format!(
            "not dropped but answered: {packets} of them, SYNs whose cookies no sender acknowledged"
        ));
    }
    if report.blocked_packets > 0 {
        lines.push(format!("blocked sources sent another {} packets", report.blocked_packets));
    }
    let before =
        report.passed_before_per_second.map_or_else(|| "not known".to_owned(), |rate| rate.to_string());
    lines.push(format!(
        "passed {unit}/s: before {before}, during {}, worst second {}",
        report.passed_during_per_second, report.passed_lowest_per_second
    ));
    lines.extend(report.summary.known.words());
    if report.restarts > 0 {
        lines.push(format!(
            "the daemon started {} times meanwhile; what came while it was away is not counted",
            report.restarts
        ));
    }
    let mut text = lines.join("\n") + "\n";
    let rows: Vec<Vec<String>> = report
        .reasons
        .iter()
        .map(|count| vec![count.reason.clone(), count.packets.to_string(), count.bytes.to_string()])
        .collect();
    text += &format!("\n{}", table(&["reason", unit, "bytes"], &rows));
    for (title, rows) in [
        ("source", &report.sources),
        ("prefix", &report.prefixes),
        ("port", &report.ports),
        ("from port", &report.source_ports),
    ] {
        if !rows.is_empty() {
            text += &format!("\n{}", frequencies(title, rows, report.counted_by));
        }
    }
    if report.samples > 0 {
        let what = match report.counted_by {
            CountedBy::DropEvents => "drop events, a sample",
            CountedBy::Samples if report.summary.unusual.is_some() => {
                "packets were looked at, those that passed as well"
            }
            CountedBy::Samples => "refused packets were looked at",
        };
        text += &format!("{} {what}; at least {} sources\n", report.samples, report.sources_seen);
    }
    if !report.changes.is_empty() {
        text += "\nchanged meanwhile\n";
        for change in &report.changes {
            text += &format!("  {}  {}\n", change.at, change.what);
        }
        if report.changes_left_out > 0 {
            text += &format!("  and {} more\n", report.changes_left_out);
        }
    }
    text
}

fn frequencies(title: &str, rows: &[Frequency], counted_by: CountedBy) -> String {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let cells = |row: &Frequency| match counted_by {
        CountedBy::DropEvents => vec![row.value.clone(), row.samples.to_string()],
        CountedBy::Samples => vec![row.value.clone(), number(row.packets), number(row.error_packets)],
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    match counted_by {
        CountedBy::DropEvents => table(&[title, "drop events"], &rows),
        CountedBy::Samples => table(&[title, "packets", "+/-"], &rows),
    }
}
