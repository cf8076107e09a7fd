//! The measuring program behind `cargo xtask bench`.
//!
//! ```text
//! cases x contestants -> lanes -> rounds -> report -> text | JSON | plot
//! paths, growth, CPUs -> test runs  ----->
//! ```
//!
//! Nothing is attached to an interface that this run has not made.

mod apply;
mod case;
mod client_wire;
mod comparison;
mod contestant;
mod cost;
mod flight;
mod honest;
mod interrupt;
mod jumbo;
mod known;
mod lane;
mod machine;
mod place;
mod plot;
mod progress;
mod report;
mod requests;
mod rig;
mod rounds;
mod run;
mod seclusion;
mod selection;
mod shell;
mod spread;
mod stack;
mod table;
mod targets;
mod text;
mod threaded;
mod traffic;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::{interrupt::Interrupted, report::Report, run::Request};

/// Where the plot is saved.
const PLOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.svg");
/// Where reports are saved. The README has no number that is not in one of them.
const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance");

#[derive(Parser)]
#[command(name = "bench", about = "Measure the limiter beside a bare drop, nftables and iptables")]
struct Options {
    /// Questions instead of packets: the decision service beside its peers; takes no root
    #[arg(long, conflicts_with = "frame")]
    requests: bool,
    /// Fewer cases and shorter rounds: about a minute
    #[arg(long)]
    quick: bool,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Only this part, case or contestant; may be given several times. A wrong name is answered with all there are
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Print how many megabytes a million users take, and nothing else
    #[arg(long, value_name = "STATE", hide = true, requires = "requests")]
    memory_of: Option<requests::memory::State>,
    /// So many rounds instead of three or five
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Bytes of a frame
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9014))]
    frame: u16,
    /// Also write the report into docs/performance, and of packets draw the one-core table into docs/performance.svg
    #[arg(long, alias = "plot")]
    save: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.requests {
        ask(&options)
    } else {
        if let Some(code) = seclusion::require_rights() {
            return code;
        }
        seclusion::enter().and_then(|()| bench(&options))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::clear();
            eprintln!("bench: {error:#}");
            // 128 + SIGINT, what a shell reports for a command that Ctrl-C ended.
            if error.is::<Interrupted>() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn bench(options: &Options) -> Result<()> {
    let report = run::run(request(options)?)?;
    if options.save {
        fs::write(PLOT, plot::svg(&report)).with_context(|| format!("cannot write {PLOT}"))?;
    }
    show(options, &report, "packets.txt")
}

fn ask(options: &Options) -> Result<()> {
    if let Some(state) = options.memory_of {
        println!("{}", requests::memory::grown(state, options.quick)?);
        return Ok(());
    }
    show(options, &requests::run(request(options)?)?, "requests.txt")
}

/// Prints a report, and saves its text if that was asked for.
fn show(options: &Options, report: &Report, file: &str) -> Result<()> {
    let text = text::shown(report);
    match options.output {
        Output::Text => print!("{text}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(report)?),
    }
    if options.save {
        let path = format!("{REPORTS}/{file}");
        fs::write(&path, text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

fn request(options: &Options) -> Result<Request> {
    Ok(Request {
        quick: options.quick,
        only: options.only.clone(),
        rounds: options.rounds.map(usize::from),
        frame_len: usize::from(options.frame),
        limiter: limiter()?,
        command: command_line(),
    })
}

/// The limiter that was built beside this program.
fn limiter() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let path = own.with_file_name("ratelimit");
    ensure!(path.exists(), "{} is not built; `cargo xtask bench` builds it", path.display());
    Ok(path)
}

/// What to type for the same numbers.
fn command_line() -> String {
    let words: Vec<_> = std::env::args().skip(1).collect();
    ["cargo xtask bench", &words.join(" ")].join(" ").trim_end().to_owned()
}
