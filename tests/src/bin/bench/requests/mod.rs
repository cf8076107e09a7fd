//! `bench --requests`: the decision service beside its peers, over the protocols that they share, in one run.
//!
//! ```text
//! parts -> entrants (a server on one core, a client on another) -> rounds, everybody in turn -> comparisons -> targets -> text | JSON
//! ```
//!
//! Servers are this run's own, on free ports of the loopback interface. It takes no root.

mod client;
mod entrant;
mod field;
mod latency;
mod lease;
mod library;
pub(crate) mod memory;
mod output;
mod paced;
mod policy;
mod reply;
mod server;
mod wire;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use self::field::Field;
use crate::{
    interrupt::Interrupt,
    machine::{self, Machine},
    report::{Report, RequestCpus},
    rounds::Pace,
    run::Request,
    selection::{name, names},
    targets,
};

/// The parts of the comparison, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Resp,
    Http,
    Grpc,
    Library,
    Latency,
    Lease,
    Memory,
}

/// Measures what was asked for.
pub(crate) fn run(request: Request) -> Result<Report> {
    let known = names::<Part>();
    if let Some(unknown) = request.only.iter().find(|name| !known.contains(name)) {
        bail!("--only {unknown}: no such thing; parts of --requests are {}", known.join(", "));
    }
    let interrupt = Interrupt::watch()?;
    let machine = Machine::this(peers());
    let (rounds, millis) = if request.quick { (3, 500) } else { (5, 2_000) };
    let pace = Pace { rounds: request.rounds.unwrap_or(rounds), round: Duration::from_millis(millis) };
    let mut field = Field::new(request.limiter, machine.cpus)?;
    let mut comparisons = Vec::new();
    for part in Part::value_variants() {
        if !request.only.is_empty() && !request.only.contains(&name(part)) {
            continue;
        }
        match part {
            Part::Resp => comparisons.extend(wire::resp(&mut field, pace, &interrupt)?),
            Part::Http => comparisons.push(wire::http(&mut field, pace, &interrupt)?),
            Part::Grpc => comparisons.push(wire::grpc(&mut field, pace, &interrupt)?),
            Part::Library => comparisons.push(library::measure(&mut field, pace, &interrupt)?),
            Part::Latency => comparisons.push(latency::measure(&mut field, pace, &interrupt)?),
            Part::Lease => comparisons.extend(lease::measure(&mut field, pace, &interrupt)?),
            Part::Memory => comparisons.push(memory::measure(&mut field, request.quick, &interrupt)?),
        }
    }
    // One server may have failed at several depths.
    field.notes.dedup();
    Ok(Report {
        targets: targets::of_requests(&comparisons),
        comparisons,
        machine,
        command: request.command,
        rounds: pace.rounds,
        round_seconds: pace.round.as_secs_f64(),
        request_cpus: Some(RequestCpus { server_cpu: field.server_cpu, client_cpu: field.client_cpu }),
        notes: field.notes,
        ..Report::default()
    })
}

/// Everybody's name and version, as far as they are here.
fn peers() -> Vec<String> {
    let programs = [
        ("redis-server", "--version"),
        ("throttlecrab-server", "--version"),
        ("nginx", "-v"),
        ("wrk", "-v"),
        ("h2load", "--version"),
    ];
    let mut found: Vec<String> =
        programs.iter().filter_map(|(program, flag)| machine::version(program, flag)).collect();
    found.extend(server::is_installed("limitador-rls").then(|| "limitador 0.14.0 (library)".into()));
    found.push("governor 0.10".into());
    found
}
