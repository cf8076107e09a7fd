//! `cargo xtask fuzz`: runs libFuzzer with coverage, built with the toolchain that everything else is built with.
//!
//! cargo-fuzz asks for a nightly compiler because of the address sanitizer. Coverage needs none: it is an LLVM pass, and the compiler takes
//! its flags as they are. The only unsafe code in the targets is that which reads and writes frames; `answers` puts bytes around each frame, and finds
//! whatever changes them or depends on them.

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::outcome::Ending;
use crate::setup::{self, Install, Need};
use crate::{tool, workspace};

/// The fuzz targets, which are in `ratelimit_tests::fuzz`.
const TARGETS: [&str; 12] = [
    "answers", "capture", "front", "grpc", "http", "packets", "policy", "protocol", "resp", "state", "store",
    "text",
];

/// The compiler flags for libFuzzer's coverage.
const COVERAGE: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Overflow is an error in fuzzing too.
    "-Cdebug-assertions",
];

/// The differences of the profile from a release. Crates that an input hardly runs through are most of the build and are optimised a little; those
/// that every input runs through are optimised fully.
const PROFILE: [&str; 7] = [
    "opt-level=1",
    "codegen-units=16",
    // Without link-time optimisation the optimiser cannot drop the tables that libFuzzer reads.
    "lto='off'",
    "strip='none'",
    "package.libfuzzer-sys.opt-level=3",
    "package.ratelimit-common.opt-level=3",
    "package.ratelimit-ebpf.opt-level=3",
];

/// The C++ compiler that libFuzzer is built with.
const COMPILER: Need = Need::Executable { name: "c++", package: "g++" };

/// Seconds of real time that one input may take: beside other work a fuzzer has a fraction of a CPU.
const TIMEOUT_S: u32 = 60;
/// Megabytes of memory that one input may take.
const MEMORY_MB: u32 = 2048;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to fuzz; everything, one after the other, when absent
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
    /// How long, for each of them
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = seconds)]
    seconds: u32,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    setup::ensure(&[&setup::KERNEL_BUILD[..], &[COMPILER]].concat(), install)?;
    eprintln!("fuzz: building");
    let fuzzer = build()?;
    let targets =
        TARGETS.into_iter().filter(|target| options.target.as_deref().is_none_or(|one| one == *target));
    let mut broken = Vec::new();
    for target in targets {
        eprintln!("fuzz: {target}, {} s", options.seconds);
        let log = log_of(target)?;
        let mut command = command(&fuzzer, target, options.seconds)?;
        let status = command.stderr(File::create(&log)?).status().context("cannot start the fuzzer")?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        match Figures::of(&said) {
            Some(figures) if status.success() => println!("{target}: {figures}"),
            _ => {
                println!("{target}: ended with {status}; {} says why", log.display());
                broken.push(target);
            }
        }
    }
    if broken.is_empty() {
        println!("nothing found");
        return Ok(());
    }
    let found = found_dir();
    println!("found something: {}; the inputs are in {}", broken.join(", "), found.display());
    println!("each becomes a file with a name in tests/corpus, next to what mends it");
    Err(Ending::Told.into())
}

/// Builds the fuzzer, in a directory of its own because of the flags. The target is named, so that build scripts are built without the flags.
fn build() -> Result<PathBuf> {
    let rustc = tool::output(tool::command("rustc").arg("-vV"))?;
    let Some(host) = rustc.lines().find_map(|line| line.strip_prefix("host: ")) else {
        bail!("`rustc -vV` does not say what this machine is")
    };
    let dir = workspace::target_dir().join("fuzz");
    let mut cargo = tool::cargo();
    cargo.args(["build", "--release", "--package", "ratelimit-tests", "--bin", "fuzz", "--features", "fuzz"]);
    cargo.args(["--target", host, "--target-dir"]).arg(&dir);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f"));
    for setting in PROFILE {
        cargo.arg("--config").arg(format!("profile.release.{setting}"));
    }
    tool::run(&mut cargo)?;
    Ok(dir.join(host).join("release").join("fuzz"))
}

/// Returns the log of the last run of a target.
fn log_of(target: &str) -> Result<PathBuf> {
    let dir = workspace::target_dir().join("fuzz").join("log");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir.join(target))
}

/// The figures of a run.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    executions: u64,
    edges: u64,
    inputs: u64,
}

impl Figures {
    /// Reads the figures from a line such as `#63903 DONE   cov: 871 ft: 3380 corp: 868/10Kb lim: 49 exec/s: 31951 rss: 34Mb`.
    fn of(said: &str) -> Option<Self> {
        let line = said.lines().rev().find(|line| line.contains("\tDONE "))?;
        let word = |name: &str| line.split_whitespace().skip_while(|word| *word != name).nth(1);
        let executions = line.strip_prefix('#')?.split('\t').next()?.parse().ok()?;
        let inputs = word("corp:")?.split('/').next()?.parse().ok()?;
        Some(Self { executions, edges: word("cov:")?.parse().ok()?, inputs })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { executions, edges, inputs } = self;
        write!(f, "{executions} executions, {edges} edges covered by {inputs} inputs, nothing found")
    }
}

fn found_dir() -> PathBuf {
    workspace::target_dir().join("fuzz").join("found")
}

/// Returns the command of a run. New inputs go to a directory under target; the corpus of the repository is only read.
fn command(fuzzer: &PathBuf, target: &str, seconds: u32) -> Result<Command> {
    let grown = workspace::target_dir().join("fuzz").join("corpus").join(target);
    for dir in [&grown, &found_dir()] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let corpus = workspace::root().join("tests").join("corpus");
    let mut command = tool::command(fuzzer);
    command.env("FUZZ_TARGET", target).arg(&grown).arg(corpus.join(target));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={TIMEOUT_S}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MB}"));
    command.arg(format!("-artifact_prefix={}/{target}-", found_dir().display()));
    let words = corpus.join(format!("{target}.dict"));
    if words.exists() {
        command.arg(format!("-dict={}", words.display()));
    }
    Ok(command)
}

/// Parses a time such as `60s`, `5m` or `1h`.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no time; use one such as 60s, 5m or 1h");
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_anything_else_is_answered_with_what_would_be_right() {
        assert_eq!((seconds("60s"), seconds("5m"), seconds("1h")), (Ok(60), Ok(300), Ok(3600)));
        for text in ["", "60", "s", "0s", "-1s", "9999999999s", "2000000h", "1é", "1d"] {
            assert!(seconds(text).unwrap_err().ends_with("use one such as 60s, 5m or 1h"), "{text}");
        }
    }

    #[test]
    fn a_run_is_summed_up_from_its_last_line() {
        let said = "#2\tINITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #63903\tDONE   cov: 871 ft: 3380 corp: 868/10Kb lim: 49 exec/s: 31951 rss: 34Mb\n";
        let figures = Figures { executions: 63_903, edges: 871, inputs: 868 };
        assert_eq!(Figures::of(said), Some(figures));
        // A run that crashed has no such line.
        assert_eq!(Figures::of("#2\tINITED cov: 3\nSUMMARY: libFuzzer: deadly signal\n"), None);
    }

    #[test]
    fn every_target_has_a_corpus_and_every_corpus_a_target() {
        let mut dirs: Vec<String> = fs::read_dir(workspace::root().join("tests/corpus"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        dirs.sort();
        assert_eq!(dirs, TARGETS);
    }
}
