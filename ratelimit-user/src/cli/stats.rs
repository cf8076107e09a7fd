//! `ratelimit stats`: what passed and what was dropped.

use std::collections::BTreeMap;

use clap::Args;
use ratelimit_common::abi::Verdict;
use serde::Serialize;

use super::{
    Daemon, Format,
    output::{Output, complain, print, print_json, table},
    remains::{self, Pins},
};
use crate::{
    control::{
        client::{ask, nobody_answers, unexpected},
        protocol::{Order, Reply},
    },
    failure::Failure,
    stats::{Columns, ReasonCount, ServiceCount, Snapshot, Totals},
};

/// Show what passed and what was dropped, by reason.
///
/// When no daemon runs, the counters are read from the pins. Names of services are not known then.
///
/// Example: ratelimit stats --output json | jq .totals
#[derive(Debug, Args)]
pub(super) struct Stats {
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    format: Format,
}

/// The JSON form. Scripts read it: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Report<'a> {
    totals: Totals,
    drops_by_reason: BTreeMap<&'a str, u64>,
    passes_by_reason: BTreeMap<&'a str, u64>,
    replies_by_reason: BTreeMap<&'a str, u64>,
    reasons: &'a [ReasonCount],
    would_drop_by_reason: BTreeMap<&'a str, u64>,
    marked_by_reason: BTreeMap<&'a str, u64>,
    rejected_by_reason: BTreeMap<&'a str, u64>,
    services: &'a [ServiceCount],
    users: [(); 0],
}

impl Stats {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let state = &self.daemon.state;
        let left = self.pins.without_daemon(state).map(|pins| remains::snapshot(&pins)).transpose()?;
        let snapshot = match left.flatten() {
            Some(snapshot) => {
                complain(&format!("warning: {}; these are the counters of its pins", nobody_answers(state)));
                snapshot
            }
            None => match ask(state, Order::Stats)? {
                Reply::Stats(snapshot) => snapshot,
                other => return Err(unexpected(&other)),
            },
        };
        match self.format.output {
            Output::Json => print_json(&report(&snapshot)),
            Output::Text => print(&text(&snapshot)),
        }
    }
}

fn report(snapshot: &Snapshot) -> Report<'_> {
    let Columns { reasons, would_drop, marked, rejected } = &snapshot.columns;
    let by_reason = |verdict: Verdict| {
        let counts = reasons.iter().filter(move |count| count.verdict == verdict.name());
        counts.map(|count| (count.reason.as_str(), count.packets)).collect()
    };
    Report {
        totals: snapshot.totals(),
        drops_by_reason: by_reason(Verdict::Drop),
        passes_by_reason: by_reason(Verdict::Pass),
        replies_by_reason: by_reason(Verdict::Reply),
        reasons,
        would_drop_by_reason: packets(would_drop),
        marked_by_reason: packets(marked),
        rejected_by_reason: packets(rejected),
        services: &snapshot.services,
        users: [],
    }
}

fn packets(counts: &[ReasonCount]) -> BTreeMap<&str, u64> {
    counts.iter().map(|count| (count.reason.as_str(), count.packets)).collect()
}

fn text(snapshot: &Snapshot) -> String {
    let row = |verdict: &str, reason: &str, packets: u64, bytes: u64| {
        vec![verdict.to_owned(), reason.to_owned(), packets.to_string(), bytes.to_string()]
    };
    let totals = snapshot.totals();
    let mut rows = vec![
        row("pass", "total", totals.passed_packets, totals.passed_bytes),
        row("drop", "total", totals.dropped_packets, totals.dropped_bytes),
    ];
    if totals.replied_packets > 0 {
        rows.push(row("reply", "total", totals.replied_packets, totals.replied_bytes));
    }
    let Columns { reasons, would_drop, marked, rejected } = &snapshot.columns;
    let seen = reasons.iter().filter(|count| count.packets > 0);
    rows.extend(seen.map(|count| row(&count.verdict, &count.reason, count.packets, count.bytes)));
    for (verdict, counts) in [("would drop", would_drop), ("marked", marked), ("rejected", rejected)] {
        rows.extend(counts.iter().map(|count| row(verdict, &count.reason, count.packets, count.bytes)));
    }
    table(&["verdict", "reason", "packets", "bytes"], &rows)
}
