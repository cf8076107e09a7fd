//! `cargo xtask mutants`: faults put into the code by the thousand, one at a time, and whether the unit tests notice.
//!
//! cargo-mutants makes the faults and runs the tests. What is chosen here is where the faults go and which tests ought to notice: those beside the
//! code, and nothing that needs a kernel, a server or a wire. A run that is stopped goes on where it was; faults that were noticed are not put in
//! again. `.cargo/mutants.toml` has what is left out, with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::outcome::Ending;
use crate::peer::{Peer, Source};
use crate::setup::{self, Install, Need};
use crate::{tool, workspace};

/// What is enough, in percent.
const WANTED: usize = 90;

/// Faults that nobody can notice and that `.cargo/mutants.toml` has with their reasons, in vain: cargo-mutants 27.1 leaves out no field of a structure by
/// an expression.
const UNNOTICEABLE: [&str; 3] = [
    "delete field start from struct Self expression in Frame<'a>::again",
    "delete field end from struct Self expression in Frame<'a>::again",
    "delete field transport from struct Packet expression in parse_tcp_again",
];

const CARGO_MUTANTS: Need =
    Need::Peer(Peer { executable: "cargo-mutants", source: Source::Cargo("cargo-mutants --version 27.1.0") });

/// Where faults go, and who ought to notice.
struct Area {
    name: &'static str,
    package: &'static str,
    /// Below the package; all of its library if there is none.
    files: &'static [&'static str],
    /// One after the other: a fault that the first have noticed is not shown to the next. Those that are quick come first.
    asked: &'static [Tests],
}

/// Tests that are asked about a fault.
struct Tests {
    /// The package that they are in.
    package: &'static str,
    /// Which programs of it.
    programs: &'static [&'static str],
    /// What their names begin with; all of them if there is none.
    names: &'static [&'static str],
}

impl Tests {
    const fn of_library(package: &'static str, names: &'static [&'static str]) -> Self {
        Self { package, programs: &["--lib"], names }
    }
}

const AREAS: [Area; 5] = [
    Area {
        name: "common",
        package: "ratelimit-common",
        files: &[],
        // The promises of buckets and windows are a program of their own, which takes more than a minute.
        asked: &[
            Tests::of_library("ratelimit-common", &[]),
            Tests::of_library("ratelimit-ebpf", &[]),
            Tests { package: "ratelimit-common", programs: &["--test", "promises"], names: &[] },
        ],
    },
    Area {
        name: "packets",
        package: "ratelimit-ebpf",
        files: &[],
        asked: &[Tests::of_library("ratelimit-ebpf", &[])],
    },
    Area {
        name: "compile",
        package: "ratelimit-user",
        files: &["src/compile/**"],
        asked: &[Tests::of_library("ratelimit-user", &["compile::"])],
    },
    Area {
        name: "decisions",
        package: "ratelimit-user",
        files: &["src/requests/**", "src/meter/**"],
        asked: &[Tests::of_library("ratelimit-user", &["requests::", "meter::"])],
    },
    Area {
        name: "leases",
        package: "ratelimit-user",
        files: &["src/cluster/**", "src/store/record.rs", "src/store/lease_batch.rs"],
        asked: &[Tests::of_library("ratelimit-user", &["cluster::", "store::"])],
    },
];

const NAMES: [&str; 5] = [AREAS[0].name, AREAS[1].name, AREAS[2].name, AREAS[3].name, AREAS[4].name];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to put faults; everywhere, one area after the other, when absent
    #[arg(value_parser = NAMES)]
    areas: Vec<String>,
    /// Only about so many faults of each area, always the same ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    setup::ensure(&[&setup::KERNEL_BUILD[..], &[CARGO_MUTANTS]].concat(), install)?;
    let chosen =
        |area: &&Area| options.areas.is_empty() || options.areas.iter().any(|name| name == area.name);
    let mut is_enough = true;
    for area in AREAS.iter().filter(chosen) {
        let score = examine(area, options.sample)?;
        println!("{}: {score}", area.name);
        is_enough &= score.is_enough();
    }
    if is_enough {
        return Ok(());
    }
    println!("a fault that nobody notices wants a test, or a line with its reason in .cargo/mutants.toml");
    Err(Ending::Told.into())
}

/// Puts the faults of an area in.
fn examine(area: &Area, sample: Option<u32>) -> Result<Score> {
    let dir = workspace::target_dir().join("mutants").join(match sample {
        Some(count) => format!("{}-{count}", area.name),
        None => area.name.to_owned(),
    });
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut known = NoticedFaults::open(&dir)?;
    let mut faults = which(area);
    if let Some(count) = sample {
        let listed = tool::output(tool::cargo().args(["mutants", "--list"]).args(&faults))?;
        faults.extend(["--sharding", "round-robin", "--shard"].map(str::to_owned));
        faults.push(format!("0/{}", shards(listed.lines().count(), count)));
    }
    for tests in area.asked {
        ask(&faults, tests, &dir)?;
        known.take_in(&dir)?;
        if known.score(&dir)?.missed == 0 {
            break;
        }
    }
    known.score(&dir)
}

/// Puts in the faults that nobody has noticed so far, and shows each to these tests.
fn ask(faults: &[String], tests: &Tests, dir: &Path) -> Result<()> {
    let mut cargo = tool::command("nice");
    cargo.args(["-n", "10", "cargo", "mutants", "--iterate", "--no-times", "--minimum-test-timeout", "60"]);
    cargo.args(faults).arg("--output").arg(dir);
    // For the build too: without it every program of the package is linked for every fault.
    cargo.args(tests.programs.iter().map(|word| format!("--cargo-arg={word}")));
    cargo.args(["--test-package", tests.package, "--", "--"]).args(tests.names);
    // One build directory for all areas. Nobody reads line numbers in a backtrace, and what is compiled anew for each fault is much more than
    // what the tests then take, so what can be kept of the last compilation is.
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("mutants").join("build"));
    cargo.envs([
        ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_INCREMENTAL", "1"),
    ]);
    let status = cargo.status().context("cannot start cargo-mutants")?;
    // 2: some were not noticed; 3: some never came to an end, which is noticed too.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("cargo-mutants ended with {status}; the tests of {} must pass without a fault", tests.package);
    }
    Ok(())
}

fn which(area: &Area) -> Vec<String> {
    let mut words = vec!["--package".to_owned(), area.package.to_owned()];
    for file in area.files {
        words.extend(["--file".to_owned(), format!("{}/{file}", area.package)]);
    }
    words
}

/// Every so many faults, so that about as many are left as were asked for.
fn shards(faults: usize, wanted: u32) -> usize {
    faults.div_ceil(wanted as usize).max(1)
}

/// What has been found out in earlier runs as well: cargo-mutants itself tells of the last one.
struct NoticedFaults {
    file: PathBuf,
    noticed: BTreeSet<String>,
}

impl NoticedFaults {
    fn open(dir: &Path) -> Result<Self> {
        let file = dir.join("noticed.txt");
        let mut known = Self { noticed: lines(&file)?, file };
        // What a run had found out that was stopped.
        known.take_in(dir)?;
        Ok(known)
    }

    fn take_in(&mut self, dir: &Path) -> Result<()> {
        for name in ["caught.txt", "timeout.txt"] {
            self.noticed.extend(lines(&dir.join("mutants.out").join(name))?);
        }
        let text: String = self.noticed.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))
    }

    fn score(&self, dir: &Path) -> Result<Score> {
        let mut missed = lines(&dir.join("mutants.out").join("missed.txt"))?;
        missed.retain(|fault| !UNNOTICEABLE.iter().any(|name| fault.ends_with(name)));
        Ok(Score { noticed: self.noticed.difference(&missed).count(), missed: missed.len() })
    }
}

/// The lines of a file that need not be there.
fn lines(file: &Path) -> Result<BTreeSet<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// How many faults were noticed, of those that compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    noticed: usize,
    missed: usize,
}

impl Score {
    fn is_enough(self) -> bool {
        self.noticed * 100 >= (self.noticed + self.missed) * WANTED
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.noticed + self.missed;
        let percent = self.noticed as f64 * 100.0 / all.max(1) as f64;
        write!(f, "{} of {all} faults noticed ({percent:.1} %)", self.noticed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_about_as_large_as_was_asked_for_and_never_empty() {
        for (faults, wanted, shards_of) in [(1_000, 100, 10), (1_001, 100, 11), (50, 100, 1), (0, 5, 1)] {
            assert_eq!(shards(faults, wanted), shards_of, "{wanted} of {faults}");
        }
    }

    #[test]
    fn nine_of_ten_are_enough_and_eight_are_not() {
        let score = |noticed, missed| Score { noticed, missed };
        assert!(score(9, 1).is_enough() && score(0, 0).is_enough() && !score(89, 11).is_enough());
        assert_eq!(score(89, 11).to_string(), "89 of 100 faults noticed (89.0 %)");
    }

    #[test]
    fn files_of_every_area_are_there() {
        for area in &AREAS {
            let package = workspace::root().join(area.package);
            assert!(package.join("src/lib.rs").exists(), "{}", area.name);
            for file in area.files {
                assert!(package.join(file.trim_end_matches("/**")).exists(), "{file}");
            }
        }
    }

    #[test]
    fn a_fault_that_is_not_noticed_any_more_does_not_count_as_noticed() {
        let dir = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        fs::create_dir_all(dir.join("mutants.out")).unwrap();
        fs::write(dir.join("noticed.txt"), "a\nb\n").unwrap();
        fs::write(dir.join("mutants.out/caught.txt"), "c\n").unwrap();
        fs::write(dir.join("mutants.out/missed.txt"), "b\nd\n").unwrap();
        let known = NoticedFaults::open(&dir).unwrap();
        assert_eq!(known.score(&dir).unwrap(), Score { noticed: 2, missed: 2 });
        assert_eq!(fs::read_to_string(dir.join("noticed.txt")).unwrap(), "a\nb\nc\n");
        fs::remove_dir_all(&dir).unwrap();
    }
}
