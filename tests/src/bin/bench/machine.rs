//! The machine that numbers come from. Without the machine, numbers say nothing.

use std::{fs, process::Command};

use jiff::Timestamp;
use ratelimit_user::dataplane::probe;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// The peers, as they name themselves.
    pub(crate) peers: Vec<String>,
    /// Day of the run, in UTC.
    pub(crate) date: String,
}

impl Machine {
    pub(crate) fn this(peers: Vec<String>) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or("unknown CPU").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: probe::kernel_release(),
            peers,
            date: Timestamp::now().strftime("%F").to_string(),
        }
    }

    /// What a report begins with: the machine, the command, whom the limiter is compared with, and what to know about the numbers.
    pub(crate) fn heading(&self, command: &str, notes: &[String]) -> String {
        let peers = match &self.peers[..] {
            [] => String::new(),
            some => format!("peers: {}\n", some.join(", ")),
        };
        let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
        format!("{}\n{command}\n{peers}{notes}", self.line())
    }

    /// `Intel(R) Xeon(R) Processor, 2 CPUs, Linux 6.18, 2026-11-03`
    pub(crate) fn line(&self) -> String {
        format!("{}, {} CPUs, Linux {}, {}", self.cpu, self.cpus, self.kernel, self.date)
    }
}

/// The first line of what a program says about itself. Some write it to standard error, and wrk ends with 1.
pub(crate) fn version(program: &str, flag: &str) -> Option<String> {
    let done = Command::new(program).arg(flag).output().ok()?;
    let said = [done.stdout, done.stderr].concat();
    let line = String::from_utf8_lossy(&said).lines().next()?.trim().to_owned();
    // `Redis server v=7.0.15 sha=...`, `wrk 4.1.0 [epoll] Copyright...`
    Some(line.split(" sha=").next()?.split(" [").next()?.to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}
