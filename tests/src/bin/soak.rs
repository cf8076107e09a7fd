//! The program behind `cargo xtask soak`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use ratelimit_tests::{
    soak::{Build, Event, Load, Plan, Until, load, soak},
    tracing,
};

/// A soak of so many seconds has time to wait between events, and has each kind of them all the same.
const LONG_S: u64 = 300;

#[derive(Parser)]
#[command(
    name = "soak",
    about = "Flood a host while everything around its daemon fails, and count every packet"
)]
struct Options {
    /// Fixes what happens, in which order and for how long
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long events go on, in seconds; longer if not every kind has happened then
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 120)]
    lasts: u64,
    /// Only this event; may be given several times. A wrong name is answered with all there are
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    only: Vec<Event>,
    /// The build that is soaked
    #[arg(long, value_name = "FILE")]
    build: PathBuf,
    /// A build that takes over for a while, with words for its `run`: NAME=FILE[ WORD...]; may be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = build_named)]
    other: Vec<Build>,
    /// A build that takes over for a while and has the map layout of the soaked build, so that honest senders lose nothing; may be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = build_named)]
    same_layout: Vec<Build>,
    /// Load a service and a host instead: with all there is, or with what is named
    #[arg(long, value_name = "WITH", num_args = 0.., value_delimiter = ',')]
    load: Option<Vec<Load>>,
    /// Where logs go
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    logs: PathBuf,
}

fn main() -> ExitCode {
    let Options { seed, lasts, only, build, other, same_layout, logs, load: loads } = Options::parse();
    if let Some(loads) = loads {
        let faults = load(&loads).faults.len();
        println!("{faults} of these are more than docs/sizing.md says");
        return if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // The build that prints verdicts is made for the soak alone, so this is where it is looked at what it prints.
    for traced in
        same_layout.iter().filter(|build| build.words.iter().any(|word| word.starts_with("--trace")))
    {
        if let Err(why) = tracing::lines_come(&traced.path) {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    }
    let mut builds =
        vec![Build { name: "this build".to_owned(), path: build, words: Vec::new(), same_layout: true }];
    builds.extend(other);
    builds.extend(same_layout.into_iter().map(|build| Build { same_layout: true, ..build }));
    println!("seed {seed}; the same events come again with --seed {seed}");
    let until = Until::Passed(Duration::from_secs(lasts));
    let calm_ms = if lasts < LONG_S { Plan::SHORT_CALM_MS } else { Plan::CALM_MS };
    let plan = Plan { seed, until, calm_ms, builds, only, logs: logs.clone() };
    if plan.events().is_empty() {
        println!(
            "there is no build for {:?}: other-build takes one with --other, same-layout one with --same-layout",
            plan.only
        );
        return ExitCode::FAILURE;
    }
    let outcome = soak(plan);
    print!("{}", outcome.summary);
    if outcome.faults.is_empty() {
        println!("nothing was wrong");
        return ExitCode::SUCCESS;
    }
    for fault in &outcome.faults {
        println!("{fault}");
    }
    println!("{} faults; what daemons logged is in {}", outcome.faults.len(), logs.display());
    ExitCode::FAILURE
}

/// Reads a build of which nothing is said about its layout.
fn build_named(text: &str) -> Result<Build, String> {
    let (name, command) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is no build; write NAME=FILE"))?;
    let mut words = command.split(' ').map(str::to_owned);
    let path = words.next().unwrap_or_default().into();
    Ok(Build { name: name.to_owned(), path, words: words.collect(), same_layout: false })
}
