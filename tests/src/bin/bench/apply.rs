//! How long a long policy takes: all of it, and a change of one line.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use ratelimit_tests::policies;
use serde::Serialize;

use crate::{
    contestant::daemon::{self, Guard},
    interrupt::Interrupt,
    lane::{Ground, Lane},
    spread::Spread,
};

/// Prefixes of the policy.
const ENTRIES: u32 = 100_000;
/// Users who share the prefixes.
const USERS: usize = 4_000;
const SOURCE: &str = "[source]\nlimits = [\"1000000 packets/s\"]\n";
/// A line in the middle of the policy, and what it becomes.
const CHANGE: (&str, &str) = ("64.4.0.0/26", "198.18.7.0/30");

/// One kind of change.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Step {
    pub(crate) what: &'static str,
    pub(crate) list_entries_written: u64,
    /// Milliseconds from the command to its end, round by round.
    pub(crate) command_ms: Vec<f64>,
    /// Milliseconds of the command that the daemon counted.
    pub(crate) daemon_ms: Vec<f64>,
    /// Against the whole policy, round by round.
    pub(crate) ratio: Option<Spread>,
}

/// Applies one policy after another, as many times as there are rounds.
pub(crate) fn measure(rounds: usize, limiter: &Path, interrupt: &Interrupt) -> Result<Vec<Step>> {
    let ground = Ground::new()?;
    let lane = Lane::new(&ground, 0, 64)?;
    let guard = daemon::start(&lane, &[&lane.inlet], SOURCE, limiter)?;
    let prefixes: Vec<String> = policies::prefixes(ENTRIES).collect();
    let whole = format!("{SOURCE}{}", policies::users(USERS, &prefixes));
    ensure!(whole.contains(CHANGE.0), "the policy has no line to change");
    let policies = [
        ("all 100 000 prefixes", whole.clone()),
        ("one prefix", whole.replace(CHANGE.0, CHANGE.1)),
        ("one limit", whole.replace(CHANGE.0, CHANGE.1).replace("1000000 packets/s", "900000 packets/s")),
        ("back to none", SOURCE.to_owned()),
    ];
    let mut steps = policies.each_ref().map(|(what, _)| Step { what, ..Step::default() });
    for _ in 0..rounds {
        for ((_, text), step) in policies.iter().zip(&mut steps) {
            interrupt.check()?;
            apply(&guard, &lane, text, step)?;
        }
    }
    let all = steps[0].command_ms.clone();
    for step in &mut steps {
        step.ratio = Spread::of_ratios(&step.command_ms, &all);
    }
    Ok(steps.into())
}

fn apply(guard: &Guard, lane: &Lane, text: &str, step: &mut Step) -> Result<()> {
    let file = guard.dir().join("next.toml");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let began = Instant::now();
    let said = guard.ask(lane, &["apply", &file.to_string_lossy()])?;
    step.command_ms.push(began.elapsed().as_secs_f64() * 1e3);
    let number =
        |key: &str| said[key].as_u64().with_context(|| format!("`ratelimit apply` has no {key}: {said}"));
    step.daemon_ms.push(number("microseconds")? as f64 / 1e3);
    step.list_entries_written = number("list_entries_written")?;
    Ok(())
}
