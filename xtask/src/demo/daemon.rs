//! The daemon of the demonstration, and its counters.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::interrupt::Interrupt;
use super::lab::{self, Lab};
use super::process::Process;
use crate::outcome::Ending;
use crate::tool;

/// How long the daemon may take to start. Loading and verifying takes well under a second; a loaded machine gets more time.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The number of lines of the log that are shown when the daemon does not start.
const LOG_LINES: usize = 20;

pub(super) struct Daemon {
    process: Process,
    program: PathBuf,
    state: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts the daemon, and returns when it enforces the policy.
    pub(super) fn start(
        lab: &Lab,
        policy: &Path,
        trace: Option<&str>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (dir, program) = (lab.dir(), lab.profile().path_of("ratelimit"));
        let (state, log) = (dir.join("state"), dir.join("daemon.log"));
        let log_file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = lab.at_edge(&program);
        command.arg("run").arg("--policy").arg(policy);
        command.args(["--iface", lab::EDGE_INTERFACE]).arg("--state").arg(&state);
        command.arg("--pin").arg(lab.bpffs().join("ratelimit")).stderr(log_file);
        if let Some(level) = trace {
            command.arg(format!("--trace={level}"));
        }
        let process = Process::start("the daemon", &mut command)?;
        let mut daemon = Self { process, program, state, log };
        match daemon.wait_until_ready(interrupt) {
            Ok(()) => {
                // From now on the daemon prints only the trace, if there is one.
                daemon.process.print_lines();
                Ok(daemon)
            }
            Err(error) => Err(daemon.explained(error)),
        }
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.process.next_line(interrupt, left)?.with_context(|| {
                format!("the daemon did not say \"ready\" within {} s", READY_WITHIN.as_secs())
            })?;
            if line.trim().starts_with("ready") {
                return Ok(());
            }
        }
    }

    /// Returns the counters of this moment.
    pub(super) fn counters(&self) -> Result<Counters> {
        Counters::parse(&self.ask("stats", "json")?)
    }

    /// Returns the lines of `ratelimit status` about where and how the program is attached.
    pub(super) fn attached(&self) -> Result<String> {
        let status = self.ask("status", "text")?;
        let lines: Vec<&str> = status.lines().filter(|line| line.starts_with("interface ")).collect();
        Ok(format!("The limiter is ready.\n    {}\n", lines.join("\n    ")))
    }

    /// Asks the running daemon as an operator would.
    fn ask(&self, verb: &str, output: &str) -> Result<String> {
        let mut command = tool::command(&self.program);
        command.arg(verb).arg("--state").arg(&self.state).args(["--output", output]);
        tool::output(&mut command).map_err(|error| self.explained(error))
    }

    /// Adds the end of the daemon's log, which has the reason, to an error.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        if lines.is_empty() || error.is::<Ending>() {
            return error;
        }
        let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n    ");
        anyhow!("{error:#}\nthe daemon's log ends with:\n    {end}")
    }
}

/// Packets by verdict since the daemon's maps were made, or the difference between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) passed: u64,
    pub(super) dropped: u64,
    /// Dropped packets by reason, in the daemon's order.
    pub(super) drops_by_reason: Vec<(String, u64)>,
}

impl Counters {
    fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)
            .with_context(|| format!("`ratelimit stats` printed no JSON: {text}"))?;
        let total = |name: &str| {
            let pointer = format!("/totals/{name}");
            json.pointer(&pointer)
                .and_then(Value::as_u64)
                .with_context(|| format!("`ratelimit stats` has no number at {pointer}: {text}"))
        };
        let reasons = json.get("drops_by_reason").and_then(Value::as_object);
        let drops_by_reason = reasons
            .into_iter()
            .flatten()
            .filter_map(|(reason, packets)| Some((reason.clone(), packets.as_u64()?)))
            .collect();
        Ok(Self { passed: total("passed_packets")?, dropped: total("dropped_packets")?, drops_by_reason })
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |reason: &str| {
            earlier.drops_by_reason.iter().find(|(name, _)| name == reason).map_or(0, |(_, packets)| *packets)
        };
        Self {
            passed: self.passed.saturating_sub(earlier.passed),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            drops_by_reason: self
                .drops_by_reason
                .iter()
                .map(|(reason, packets)| (reason.clone(), packets.saturating_sub(before(reason))))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: &str = r#"{"totals":{"passed_packets":50,"dropped_packets":900,"passed_bytes":1,"dropped_bytes":2},
        "drops_by_reason":{"source_packets":880,"source_syns":20},"services":[],"users":[]}"#;

    #[test]
    fn counters_are_read_from_the_documented_fields() {
        let counters = Counters::parse(LATER).unwrap();
        assert_eq!((counters.passed, counters.dropped), (50, 900));
        assert_eq!(
            counters.drops_by_reason,
            [("source_packets".to_owned(), 880), ("source_syns".to_owned(), 20)]
        );
    }

    #[test]
    fn a_missing_total_is_named() {
        let said = Counters::parse(r#"{"totals":{"passed_packets":1}}"#).unwrap_err().to_string();
        assert!(said.contains("/totals/dropped_packets"), "{said}");
        assert!(Counters::parse("oops").unwrap_err().to_string().contains("no JSON: oops"));
    }

    #[test]
    fn a_difference_counts_reasons_that_appeared_in_between() {
        let earlier =
            Counters { passed: 10, dropped: 100, drops_by_reason: vec![("source_packets".into(), 100)] };
        let difference = Counters::parse(LATER).unwrap().since(&earlier);
        assert_eq!((difference.passed, difference.dropped), (40, 800));
        assert_eq!(
            difference.drops_by_reason,
            [("source_packets".to_owned(), 780), ("source_syns".to_owned(), 20)]
        );
    }
}
