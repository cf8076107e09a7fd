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
    use clap::error::ErrorKind;
    use std::fs;
    use std::path::Path;

    /// Returns the cargo commands of a page: lines of code, and what is quoted in sentences, of which a part may be left out.
    fn commands(page: &str) -> Vec<(String, bool)> {
        let mut found = Vec::new();
        let mut fenced = false;
        for line in page.lines() {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if fenced || line.starts_with("    ") {
                found.push((line.trim().trim_start_matches("$ "), false));
            } else {
                found.extend(line.split('`').skip(1).step_by(2).map(|quoted| (quoted, true)));
            }
        }
        let cargo = found.into_iter().filter_map(|(code, is_part)| {
            // A command may be given variables before its program.
            let is_variable = |word: &str| word.split('=').next().is_some_and(|name| name != word);
            let words = code.split_whitespace().skip_while(|word| is_variable(word));
            let words: Vec<&str> = words.take_while(|word| !word.starts_with('#')).collect();
            (words.first() == Some(&"cargo") && words.len() > 1).then(|| (words[1..].join(" "), is_part))
        });
        cargo.collect()
    }

    /// Returns what is wrong with the words behind `cargo`.
    fn mistake(command: &str, is_part: bool) -> Option<String> {
        if let Some(words) = command.strip_prefix("xtask") {
            let words = words.replace(['[', ']'], "").replace("text|json", "json");
            let words = words.replace("NAME", "drop").replace("BYTES", "64");
            let error =
                Cli::try_parse_from(["cargo xtask"].into_iter().chain(words.split_whitespace())).err()?;
            // In a sentence `cargo xtask` alone can be meant.
            let lacks = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            return (!(is_part && lacks)).then(|| error.to_string());
        }
        let words: Vec<&str> = command.split(' ').collect();
        let after = |options: &[&str]| {
            let at = words.iter().position(|word| options.contains(word))?;
            words.get(at + 1).copied()
        };
        match words[0] {
            "test" | "build" => {}
            // What a sentence says of other programs.
            "install" if is_part && words.len() == 1 => return None,
            other => return Some(format!("nobody knows `cargo {other}`")),
        }
        let package = after(&["-p", "--package"])?;
        let folder = match package {
            "ratelimit-tests" => "tests",
            package => package,
        };
        let folder = workspace::root().join(folder);
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else {
            return Some(format!("there is no package {package}"));
        };
        if let Some(feature) = after(&["--features"]) {
            return (!manifest.contains(&format!("\n{feature} = "))).then(|| format!("no feature {feature}"));
        }
        let program = after(&["--test"]).map(|name| folder.join("tests").join(name));
        if let Some(program) = program.as_ref().filter(|program| !program.join("main.rs").is_file()) {
            return Some(format!("there is no test program {}", program.display()));
        }
        // What is neither an option nor the value of one is a part of the names of tests.
        let valued = ["-p", "--package", "--test"];
        let named = words.iter().enumerate().skip(1).take_while(|(_, word)| **word != "--");
        let mut named = named.filter(|(at, word)| !word.starts_with('-') && !valued.contains(&words[at - 1]));
        let (_, filter) = named.next()?;
        let below = program.unwrap_or_else(|| folder.join("src"));
        (!has_tests(&below, filter)).then(|| format!("no test below {} is named {filter}", below.display()))
    }

    /// Whether a function or a module in the files of a folder has this in its path, as `cargo test` looks for tests.
    fn has_tests(folder: &Path, filter: &str) -> bool {
        let mut folders = vec![(folder.to_owned(), String::new())];
        while let Some((folder, modules)) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("a file").path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let below = if name == "mod" { modules.clone() } else { format!("{modules}{name}::") };
                if path.is_dir() {
                    folders.push((path, below));
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap_or_default();
                let named = |line: &str| {
                    let (before, name) = line.split_once("fn ").or(line.split_once("mod "))?;
                    before
                        .trim()
                        .is_empty()
                        .then(|| name.split(['(', ' ', ';']).next().unwrap_or_default().to_owned())
                };
                let mut names = text.lines().filter_map(named);
                if names.any(|name| format!("{below}{name}").contains(filter)) {
                    return true;
                }
            }
        }
        false
    }

    #[test]
    fn every_command_of_the_documentation_is_understood() {
        let root = workspace::root();
        let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
        for folder in ["docs", "docs/integrations"] {
            let entries = fs::read_dir(root.join(folder)).expect("a folder");
            let entries = entries.map(|entry| entry.expect("a file").path());
            pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
        }
        let (mut understood, mut mistakes) = (0, Vec::new());
        for page in pages {
            for (command, is_part) in commands(&fs::read_to_string(&page).expect("a page")) {
                understood += 1;
                let mistake = mistake(&command, is_part);
                mistakes
                    .extend(mistake.map(|mistake| format!("{}: cargo {command}: {mistake}", page.display())));
            }
        }
        assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
        assert!(understood >= 60, "{understood} commands");
    }

    #[test]
    fn a_command_with_an_option_a_package_or_a_test_that_there_is_not_is_a_mistake() {
        for wrong in [
            "xtask tset",
            "xtask dist --nonsense",
            "bench --quick",
            "test -p ratelimit-nobody",
            "test -p ratelimit-tests --test nothing",
            "test -p ratelimit-tests --test requests no_such_test",
            "test -p ratelimit-tests --test requests dashboard::nothing",
            "test -p ratelimit-user --lib nobody::",
            "build --package ratelimit-user --features nothing",
        ] {
            assert!(mistake(wrong, true).is_some(), "{wrong}");
        }
        assert!(mistake("xtask", false).is_some() && mistake("xtask", true).is_none());
        let page = "Say `A=b cargo test -p c` or `cargo xtask`.\n\n    $ cargo xtask lint  # all\n";
        let found: Vec<(String, bool)> = commands(page);
        let expected = [("test -p c", true), ("xtask", true), ("xtask lint", false)];
        assert_eq!(found, expected.map(|(command, is_part)| (command.to_owned(), is_part)));
    }
}
