//! `cargo xtask`: what a developer types. Parses the command line and hands over to one file per command.
//!
//! Nothing here links against the limiter: xtask drives cargo, the package manager and network namespaces, so it
//! builds in seconds on a machine that has nothing but rustup.

mod bench;
mod build;
mod comments;
mod compile;
mod demo;
mod deny;
mod dist;
mod earlier;
mod fetched;
mod fuzz;
mod imports;
mod linker;
mod lint;
mod mutants;
mod outcome;
mod peer;
mod run;
mod setup;
mod soak;
mod structure;
mod suites;
mod test;
mod tool;
mod type_names;
mod vm;
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Build, test and try ratelimit")]
struct Cli {
    /// Print the commands that would install what is missing, and exit with 1, instead of running them
    #[arg(long, global = true)]
    no_install: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the limiter: a demonstration in private namespaces, or on the interface you name
    Run(run::Options),
    /// Run every check and every suite, and end with one line of totals
    Test(test::Options),
    /// Build target/release/ratelimit, one file with the kernel program inside
    Build,
    /// Measure the limiter beside its peers: packets in private namespaces, or questions with --requests
    Bench(bench::Options),
    /// Feed arbitrary bytes to what reads policies, requests and rates, guided by coverage
    Fuzz(fuzz::Options),
    /// Check formatting, clippy on both targets, where unsafe code may live, and the words of the glossary
    Lint,
    /// Put faults into the code, one at a time, and see whether the unit tests notice
    Mutants(mutants::Options),
    /// Flood hosts in private namespaces while daemons, interfaces, the store, the disk and the clock fail, and count every packet
    Soak(soak::Options),
    /// Make packages, tarballs and what goes with them, under target/dist
    Dist(dist::Options),
    /// Load the program and run the suites on Debian's kernels, in virtual machines
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let install = if cli.no_install { setup::Install::PrintOnly } else { setup::Install::Missing };
    let done = match &cli.command {
        Command::Run(options) => run::run(options, install),
        Command::Test(options) => test::run(options, install),
        Command::Build => build::run(install),
        Command::Bench(options) => bench::run(options, install),
        Command::Fuzz(options) => fuzz::run(options, install),
        Command::Lint => lint::run(install),
        Command::Mutants(options) => mutants::run(options, install),
        Command::Soak(options) => soak::run(options, install),
        Command::Dist(options) => dist::run(options, install),
        Command::Vm(options) => vm::run(options, install),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => outcome::report(&error),
    }
}
