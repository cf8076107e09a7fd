//! What a million users cost: a process that does nothing but decide, before and after it has met them.

use std::{fmt::Write as _, fs, process::Command};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use ratelimit_user::{
    config,
    requests::{Engine, Request},
};

use super::{
    field::Field,
    policy::{self, PACKETS},
};
use crate::{
    comparison::{Cell, Comparison, Sample, Unit},
    interrupt::Interrupt,
    progress, shell,
};

const USERS: u32 = 1_000_000;
/// Users that may be missing because their part of the table was full: one in a thousand.
const FORGOTTEN: u64 = 1_000;
const API: &str = "bench";
/// Any time that is not near zero.
const BEGIN_US: u64 = 1_700_000_000_000_000;
const MINUTE_US: u64 = 60_000_000;

/// What is remembered of each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    Counter,
    Bucket,
    SubWindows,
}

impl State {
    /// The names of the contestant, as the command line and the targets have it, and in the table.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Counter => ("counter", "one counter: fixed window"),
            Self::Bucket => ("bucket", "token bucket"),
            Self::SubWindows => ("sub-windows", "60 sub-windows: sliding window"),
        }
    }

    fn policy(self) -> String {
        let (limit, algorithm) = match self {
            Self::Counter => ("1000/min", "fixed-window"),
            Self::Bucket => ("1000/min burst 1000", "token-bucket"),
            Self::SubWindows => ("1000/min", "sliding-window"),
        };
        format!("{PACKETS}[requests]\nkeys = {USERS}\n{}", policy::api(API, limit, algorithm))
    }
}

/// All states, each in a process of its own: what one leaves behind in the allocator is not the next one's.
pub(super) fn measure(field: &mut Field, quick: bool, interrupt: &Interrupt) -> Result<Comparison> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let title = match quick {
        true => "Memory of a million users, each asked about once",
        false => "Memory of a million users, each asked about in every sub-window",
    };
    let mut comparison = Comparison::new("memory", title, Unit::Megabytes);
    for state in State::value_variants() {
        let (name, title) = state.names();
        progress::show(&format!("memory of a million users: {title}"));
        let mut command = Command::new(&own);
        command.args(["--requests", "--memory-of", name]).args(quick.then_some("--quick"));
        let printed = shell::output(&mut command);
        interrupt.check()?;
        if let Some(printed) = field.admit(title, |_| printed) {
            let value = printed.trim().parse().with_context(|| format!("{printed:?} is no size"))?;
            let mut cell = Cell::new(name, title);
            cell.add(Sample { value, beside: None });
            comparison.cells.push(cell);
        }
    }
    progress::clear();
    Ok(comparison)
}

/// Megabytes that this process has grown by.
pub(crate) fn grown(state: State, quick: bool) -> Result<f64> {
    let policy = config::parse(&state.policy(), "policy.toml").map_err(|error| anyhow!("{error}"))?.policy;
    let engine = Engine::new(&policy, BEGIN_US);
    // Each of the sixty parts of the minute, so that nothing that is made when it is first needed is missing.
    let parts = if quick { 1 } else { 60 };
    let before = resident()?;
    let mut user = String::new();
    for part in 0..parts {
        let now_us = BEGIN_US + part * MINUTE_US / 60;
        for number in 0..USERS {
            user.clear();
            write!(user, "user-{number}")?;
            engine.decide(&engine.rules(), &Request::new(&user, API), now_us)?;
        }
    }
    let after = resident()?;
    let usage = engine.usage();
    ensure!(
        usage.keys + FORGOTTEN >= u64::from(USERS),
        "only {} of {USERS} users are remembered",
        usage.keys
    );
    Ok(after.saturating_sub(before) as f64 / 1e6)
}

/// Bytes of this process that are in memory.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kilobytes: u64 =
        kilobytes.and_then(|text| text.parse().ok()).context("no VmRSS in /proc/self/status")?;
    Ok(kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_a_policy_that_is_understood() {
        for state in State::value_variants() {
            let policy = config::parse(&state.policy(), "policy.toml").unwrap().policy;
            let engine = Engine::new(&policy, BEGIN_US);
            let rules = engine.rules();
            let decided = engine.decide(&rules, &Request::new("u", API), BEGIN_US);
            assert!(decided.unwrap().outcome.is_served(), "{state:?}");
        }
    }
}
