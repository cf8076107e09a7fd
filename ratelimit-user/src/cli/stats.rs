//! `ratelimit stats`: what passed and what was dropped, and how fast.

mod words;

use std::{collections::BTreeMap, thread, time::Instant};

use clap::Args;
use ratelimit_common::abi::Verdict;
use serde::Serialize;

use super::{
    DaemonArgs, Format,
    output::{Output, complain, print, print_json},
    remains::{self, Pins},
    span::parse_span,
};
use crate::{
    control::{
        client::{ask, nobody_answers, unexpected},
        protocol::{EarlierStats, Order, Reply, StatsReply, UserInfo},
    },
    failure::Failure,
    stats::{
        Columns, CounterTotals, ReasonCount, ServiceCount, Snapshot, known_packets::KnownPackets,
        rates::Rates,
    },
};

/// Show what passed and what was dropped, by reason and service, and how fast.
///
/// Rates are those since somebody last asked this daemon, or with --for those of the time that follows.
///
/// When no daemon runs, the counters are read from the pins. Names of services and users are not known then, and rates only with --for.
///
/// Example: ratelimit stats --for 5s
///
/// Example: ratelimit stats --output json | jq .totals
#[derive(Debug, Args)]
pub(super) struct Stats {
    /// Look twice, with this time in between, such as 5s
    #[arg(long = "for", value_name = "TIME")]
    span: Option<String>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    pins: Pins,
    #[command(flatten)]
    format: Format,
}

/// The JSON form. Scripts read it: fields are added, never renamed.
#[derive(Debug, Serialize)]
struct Report<'a> {
    totals: CounterTotals,
    rates: Option<Rates>,
    drops_by_reason: BTreeMap<&'a str, u64>,
    passes_by_reason: BTreeMap<&'a str, u64>,
    replies_by_reason: BTreeMap<&'a str, u64>,
    reasons: &'a [ReasonCount],
    would_drop_by_reason: BTreeMap<&'a str, u64>,
    marked_by_reason: BTreeMap<&'a str, u64>,
    rejected_by_reason: BTreeMap<&'a str, u64>,
    services: &'a [ServiceCount],
    users: &'a [UserInfo],
    #[serde(flatten)]
    known: KnownPackets,
    /// `not running` or `not answering`; absent while a daemon answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<&'static str>,
    warnings: &'a [String],
}

/// What was counted, and what is to be said of where it comes from.
struct CountersLook {
    counters: StatsReply,
    /// No daemon answers: the counters are read from its pins.
    warning: Option<String>,
}

impl Stats {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let span = parse_span(self.span.as_deref())?;
        let mut look = self.look()?;
        if let Some(span) = span {
            let began = Instant::now();
            thread::sleep(span);
            let earlier = look.counters.snapshot;
            look = self.look()?;
            let ms_ago = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            look.counters.before = Some(EarlierStats { ms_ago, snapshot: earlier });
        }
        let CountersLook { counters, warning } = look;
        if let Some(warning) = &warning {
            complain(&format!("warning: {warning}"));
        }
        let earlier = counters.before.as_ref();
        let rates =
            earlier.and_then(|earlier| Rates::between(&earlier.snapshot, &counters.snapshot, earlier.ms_ago));
        match self.format.output {
            Output::Json => {
                let daemon = warning.is_some().then(|| remains::absence(&self.daemon.state));
                print_json(&Report { daemon, ..report(&counters, rates, warning.as_slice()) })
            }
            Output::Text => print(&words::text(&counters, rates.as_ref())),
        }
    }

    fn look(&self) -> Result<CountersLook, Failure> {
        let state = &self.daemon.state;
        let left = self.pins.without_daemon(state).map(|pins| remains::snapshot(&pins)).transpose()?;
        match left.flatten() {
            Some(snapshot) => Ok(CountersLook {
                counters: StatsReply { snapshot, ..StatsReply::default() },
                warning: Some(format!("{}; these are the counters of its pins", nobody_answers(state))),
            }),
            None => match ask(state, Order::Stats)? {
                Reply::Stats(counters) => Ok(CountersLook { counters: *counters, warning: None }),
                other => Err(unexpected(&other)),
            },
        }
    }
}

fn report<'a>(counters: &'a StatsReply, rates: Option<Rates>, warnings: &'a [String]) -> Report<'a> {
    let Snapshot { columns: Columns { reasons, would_drop, marked, rejected }, services, .. } =
        &counters.snapshot;
    let by_reason = |verdict: Verdict| {
        let counts = reasons.iter().filter(move |count| count.verdict == verdict.name());
        counts.map(|count| (count.reason.as_str(), count.packets)).collect()
    };
    Report {
        totals: counters.snapshot.totals(),
        rates,
        drops_by_reason: by_reason(Verdict::Drop),
        passes_by_reason: by_reason(Verdict::Pass),
        replies_by_reason: by_reason(Verdict::Reply),
        reasons,
        would_drop_by_reason: packets(would_drop),
        marked_by_reason: packets(marked),
        rejected_by_reason: packets(rejected),
        services,
        users: &counters.users,
        known: counters.snapshot.known,
        daemon: None,
        warnings,
    }
}

fn packets(counts: &[ReasonCount]) -> BTreeMap<&str, u64> {
    counts.iter().map(|count| (count.reason.as_str(), count.packets)).collect()
}
