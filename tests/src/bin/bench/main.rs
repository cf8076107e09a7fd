//! The measuring program behind `cargo xtask bench`.
//!
//! ```text
//! cases x contestants -> lanes -> rounds -> report -> text | JSON | plot
//! ```
//!
//! Nothing is attached to an interface that this run has not made.

mod case;
mod contestant;
mod flight;
mod interrupt;
mod lane;
mod machine;
mod place;
mod report;
mod rig;
mod rounds;
mod seclusion;
mod selection;
mod shell;
mod spread;
mod stack;
mod table;
mod text;
mod threaded;
mod traffic;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use crate::{
    contestant::{Abilities, Contestant},
    interrupt::{Interrupt, Interrupted},
    machine::Machine,
    report::{CaseResult, Report},
    rounds::{Cores, Pace},
    selection::{Section, Selection},
};

#[derive(Parser)]
#[command(name = "bench", about = "Measure the limiter beside a bare drop, nftables and iptables")]
struct Options {
    /// Fewer cases and shorter rounds: under a minute
    #[arg(long)]
    quick: bool,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Only this part, case or contestant; may be given several times. A wrong name lists them all
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Bytes of a frame
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=3000))]
    frame: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(code) = seclusion::require_root() {
        return code;
    }
    match seclusion::enter().and_then(|()| bench(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            // 128 + SIGINT, what a shell reports for a command that Ctrl-C ended.
            if error.is::<Interrupted>() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn bench(options: &Options) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let cases = case::all(usize::from(options.frame));
    let case_names: Vec<_> = cases.iter().map(|case| case.name).collect();
    let chosen =
        Selection::new(options.quick, &options.only, &case_names, &contestant::ALL.map(|one| one.name))?;
    let abilities = Abilities::find_out(limiter()?)?;
    let pace = if chosen.quick() {
        Pace { rounds: 3, round: Duration::from_millis(300) }
    } else {
        Pace { rounds: 5, round: Duration::from_secs(1) }
    };
    let machine = Machine::this();
    let mut report = Report {
        command: command_line(),
        rounds: pace.rounds,
        round_seconds: pace.round.as_secs_f64(),
        notes: abilities.notes(),
        one_core: Vec::new(),
        two_cores: Vec::new(),
        machine,
    };
    let last = report.machine.cpus - 1;
    if chosen.section(Section::OneCore) {
        let cores = Cores { generator: last, receiver: None, observer: 0 };
        let who =
            |one: &Contestant| one.name == contestant::YARDSTICK || chosen.contestant(one.name, one.runs);
        let contestants = participants(who, &abilities, &mut report.notes);
        for case in cases.iter().filter(|case| chosen.case(case.name, case.runs)) {
            report.one_core.push(rounds::measure(case, &contestants, cores, pace, &abilities, &interrupt)?);
        }
    }
    print!("{}", text::shown(&report));
    Ok(())
}

fn participants(
    who: impl Fn(&Contestant) -> bool,
    abilities: &Abilities,
    notes: &mut Vec<String>,
) -> Vec<Contestant> {
    let mut found = Vec::new();
    for one in contestant::ALL.iter().filter(|one| who(one)) {
        match one.excuse(abilities) {
            Some(why) => notes.push(format!("without \"{}\": {why}", one.title)),
            None => found.push(*one),
        }
    }
    found
}

/// The limiter that was built beside this program.
fn limiter() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let path = own.with_file_name("ratelimit");
    anyhow::ensure!(path.exists(), "{} is not built", path.display());
    Ok(path)
}

fn command_line() -> String {
    let words: Vec<_> = std::env::args().skip(1).collect();
    ["cargo xtask bench", &words.join(" ")].join(" ").trim_end().to_owned()
}
