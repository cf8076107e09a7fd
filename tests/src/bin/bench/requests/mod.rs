//! `bench --requests`: the decision service beside its peers, over the protocols that they share, in one run.
//!
//! ```text
//! parts -> entrants (a server on one core, a client on another) -> rounds, everybody in turn -> comparisons -> targets -> text | JSON
//! ```
//!
//! Servers are this run's own, on free ports of the loopback interface. It takes no root.

mod body;
mod client;
mod comparison;
mod entrant;
mod field;
mod latency;
mod lease;
mod library;
pub(crate) mod memory;
mod output;
mod paced;
mod part;
mod policy;
mod reply;
mod server;
mod targets;
mod text;
mod wire;

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::Result;
use serde::Serialize;

use self::{comparison::Comparison, entrant::Pace, field::Field, part::Part, targets::Reached};
use crate::{interrupt::Interrupt, machine::Machine};

/// What to measure.
pub(crate) struct Request {
    pub(crate) quick: bool,
    pub(crate) only: Vec<String>,
    pub(crate) rounds: Option<usize>,
    pub(crate) limiter: PathBuf,
    pub(crate) command: String,
}

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    command: String,
    rounds: usize,
    round_seconds: f64,
    server_cpu: usize,
    client_cpu: usize,
    notes: Vec<String>,
    targets: Vec<Reached>,
    comparisons: Vec<Comparison>,
}

impl Report {
    pub(crate) fn text(&self) -> String {
        text::shown(self)
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

/// Measures what was asked for.
pub(crate) fn run(request: Request) -> Result<Report> {
    let parts = Part::chosen(&request.only)?;
    let interrupt = Interrupt::watch()?;
    let machine = Machine::this(peers());
    let (rounds, millis) = if request.quick { (3, 500) } else { (5, 2_000) };
    let pace = Pace { rounds: request.rounds.unwrap_or(rounds), round: Duration::from_millis(millis) };
    let mut field = Field::new(request.limiter, machine.cpus)?;
    let mut comparisons = Vec::new();
    for part in parts {
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
    // The same server may have failed at several depths.
    field.notes.dedup();
    Ok(Report {
        targets: targets::judge(&comparisons),
        comparisons,
        machine,
        command: request.command,
        rounds: pace.rounds,
        round_seconds: pace.round.as_secs_f64(),
        server_cpu: field.server_cpu,
        client_cpu: field.client_cpu,
        notes: field.notes,
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
        programs.iter().filter_map(|(program, flag)| first_line(program, flag)).collect();
    found.extend(server::is_installed("limitador-rls").then(|| "limitador 0.14.0 (library)".into()));
    found.push("governor 0.10".into());
    found
}

/// Some write it to standard error, and wrk ends with 1.
fn first_line(program: &str, flag: &str) -> Option<String> {
    let done = Command::new(program).arg(flag).output().ok()?;
    let said = [done.stdout, done.stderr].concat();
    let line = String::from_utf8_lossy(&said).lines().next()?.trim().to_owned();
    // `Redis server v=7.0.15 sha=...`, `wrk 4.1.0 [epoll] Copyright...`
    Some(line.split(" sha=").next()?.split(" [").next()?.to_owned())
}
