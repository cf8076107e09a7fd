//! `cargo xtask`: the commands of a developer. Parses the command line and hands over to one file per command.
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
    /// Check formatting, clippy on both targets, where unsafe code may live, the words of the glossary, and links in comments
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

#[cfg(test)]
mod tests {
    use super::{Cli, workspace};
    use clap::Parser as _;
    use std::fs;

    /// Returns the lines of code that begin with `cargo xtask`, with values in place of their brackets and capital letters.
    fn commands(page: &str) -> impl Iterator<Item = String> + '_ {
        let lines = page.lines().filter_map(|line| {
            let code = line.trim_start().trim_start_matches("$ ");
            let code = code.strip_prefix("cargo xtask ").filter(|_| !line.starts_with('`'))?;
            Some(code.split('#').next().unwrap_or_default().trim().to_owned())
        });
        lines.map(|line| {
            let line = line.replace(['[', ']'], "").replace("text|json", "json");
            line.replace("NAME", "drop").replace("BYTES", "64")
        })
    }

    #[test]
    fn every_command_of_the_documentation_is_understood() {
        let root = workspace::root();
        let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
        let entries =
            fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("a file").path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
        let mut understood = 0;
        for page in pages {
            for line in commands(&fs::read_to_string(&page).expect("a page")) {
                let words = ["cargo xtask"].into_iter().chain(line.split_whitespace());
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{}: cargo xtask {line}: {error}", page.display());
                }
                understood += 1;
            }
        }
        assert!(understood >= 20, "{understood} commands");
    }
}
