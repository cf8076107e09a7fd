//! `cargo xtask mutants`: puts thousands of faults into the code, one at a time, and finds out whether the unit tests notice.
//!
//! ```text
//! cargo-mutants --list -> fault -> switch -> tree -> witnesses -> noticed.txt, missed.txt
//! ```
//! cargo-mutants lists the faults. All faults of an area are compiled into one program, each behind a number (`switch`), and the tests run once for
//! each number (`witnesses`): compiling for each fault would take a minute, the tests take a second. Only faults that cannot be switched, such as in a
//! constant, are compiled alone. A run that is stopped goes on where it was. `.cargo/mutants.toml` lists the faults that are left out, with the reason.

mod computed;
mod fault;
mod operators;
mod sample;
pub(crate) mod short;
mod switch;
mod tree;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::fault::Fault;
use self::tree::{Build, Tree};
use self::witnesses::{Finding, Witnesses};
use crate::outcome::Ending;
use crate::peer::{Peer, Source};
use crate::setup::{self, Install, Need};
use crate::{tool, workspace};

/// The percentage of faults that the tests have to notice.
const WANTED: usize = 90;

/// Faults that no test can notice. `.cargo/mutants.toml` has their reasons, but cargo-mutants 27.1 cannot leave out fields of a structure by an expression,
/// so they are left out here.
const UNNOTICEABLE: [&str; 3] = [
    "delete field start from struct Self expression in Frame<'a>::again",
    "delete field end from struct Self expression in Frame<'a>::again",
    "delete field transport from struct Packet expression in parse_tcp_again",
];

const CARGO_MUTANTS: Need = Need::Peer(Peer {
    executable: "cargo-mutants",
    source: Source::Cargo("cargo-mutants --version 27.1.0 --debug"),
});

/// The word in place of the test that failed first, if the tests did not end.
const NO_END: &str = "no end";

/// An area of the code for faults, and the tests that ought to notice them.
struct Area {
    name: &'static str,
    package: &'static str,
    /// Files of the area, relative to the package; the whole library if there is none.
    files: &'static [&'static str],
    /// The tests, the quick ones first: a fault that the first have noticed is not shown to the next.
    asked: &'static [Tests],
}

/// Tests that are asked about a fault.
#[derive(Clone, Copy)]
struct Tests {
    /// The package of the tests.
    package: &'static str,
    /// The options that select the test program of the package.
    program: &'static [&'static str],
    /// The beginnings of the names of the tests; all tests if there is none.
    names: &'static [&'static str],
    /// The beginnings of the names of tests that are left out.
    without: &'static [&'static str],
}

/// Tests of the packet path that compare the express lane with the limiter, packet by packet. They take a minute, all others together a second.
const LANE: [&str; 4] = [
    "express::tests::crowded::who_is_in_a",
    "express::tests::a_packet_ends_in_the_lane",
    "express::tests::a_limit_in_step",
    "parse::brief::tests::whatever_the_short_way",
];

impl Tests {
    const fn of_library(package: &'static str, names: &'static [&'static str]) -> Self {
        Self { package, program: &["--lib"], names, without: &[] }
    }

    /// The short tests of the packet path.
    const PACKETS: Self = Self { package: "ratelimit-ebpf", program: &["--lib"], names: &[], without: &LANE };
    /// The long tests of the packet path.
    const LANE: Self = Self::of_library("ratelimit-ebpf", &LANE);
}

const AREAS: [Area; 5] = [
    Area {
        name: "common",
        package: "ratelimit-common",
        files: &[],
        // The tests of the promises of buckets and windows are a program of their own, which takes more than a minute.
        asked: &[
            Tests::of_library("ratelimit-common", &[]),
            Tests::PACKETS,
            Tests::LANE,
            Tests { package: "ratelimit-common", program: &["--test", "promises"], names: &[], without: &[] },
        ],
    },
    Area { name: "packets", package: "ratelimit-ebpf", files: &[], asked: &[Tests::PACKETS, Tests::LANE] },
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

/// The packages with areas. Areas of one package are compiled together.
const PACKAGES: [&str; 3] = ["ratelimit-common", "ratelimit-ebpf", "ratelimit-user"];

const NAMES: [&str; 5] = [AREAS[0].name, AREAS[1].name, AREAS[2].name, AREAS[3].name, AREAS[4].name];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to put faults; everywhere, one area after the other, when absent
    #[arg(value_parser = NAMES)]
    areas: Vec<String>,
    /// Only about so many faults of each area, always the same ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Leave out faults that need a build of their own: those in constants
    #[arg(long)]
    quick: bool,
    /// What `cargo xtask test` puts in: a sample of the operators of common and packets, without cargo-mutants and without the promises
    #[arg(long, conflicts_with_all = ["areas", "sample", "quick"])]
    short: bool,
    /// Of all operators that --short chooses from, those with this text in their name
    #[arg(long, value_name = "TEXT", requires = "short")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    if options.short {
        let is_enough = match &options.only {
            Some(text) => short::only(text)?,
            None => short::run()?.failed == 0,
        };
        return if is_enough { Ok(()) } else { Err(Ending::Told.into()) };
    }
    setup::ensure(&[&setup::KERNEL_BUILD[..], &[CARGO_MUTANTS]].concat(), install)?;
    let chosen =
        |area: &&Area| options.areas.is_empty() || options.areas.iter().any(|name| name == area.name);
    let tree = Tree::copy()?;
    let mut is_enough = true;
    for package in PACKAGES {
        let areas: Vec<&Area> = AREAS.iter().filter(chosen).filter(|area| area.package == package).collect();
        if !areas.is_empty() {
            is_enough &= examine(package, &areas, &tree, options)?;
        }
    }
    if is_enough {
        return Ok(());
    }
    println!("a fault that nobody notices wants a test, or a line with its reason in .cargo/mutants.toml");
    Err(Ending::Told.into())
}

/// Puts in the faults of some areas of a package, and returns whether enough of them are noticed in each area.
fn examine(package: &str, areas: &[&Area], tree: &Tree, options: &Options) -> Result<bool> {
    let listed = areas.iter().map(|area| faults(area, options)).collect::<Result<Vec<_>>>()?;
    let findings = areas.iter().map(|area| Findings::open(area)).collect::<Result<Vec<_>>>()?;
    let mut found: Vec<(&Area, Vec<Fault>, Findings)> = areas
        .iter()
        .zip(listed)
        .zip(findings)
        .map(|((area, faults), findings)| (*area, faults, findings))
        .collect();
    let open = |(_, faults, findings): &(&Area, Vec<Fault>, Findings)| -> Vec<Fault> {
        faults.iter().filter(|fault| !findings.is_settled(fault)).cloned().collect()
    };
    let asked: Vec<Vec<Fault>> = found.iter().map(open).collect();
    let all: Vec<&Fault> = asked.iter().flatten().collect();
    let board =
        if all.is_empty() { None } else { Some(tree.switchboard(&[package], areas[0].asked, &all)?) };
    let mut is_enough = true;
    let mut first = 1;
    for ((area, faults, findings), asked) in found.iter_mut().zip(&asked) {
        let begin = Instant::now();
        if let Some(board) = &board {
            let patience = switch_on(area.asked, tree, asked, first, board, findings)?;
            if !options.quick {
                put_in_alone(area, tree, asked, &patience, findings)?;
            }
        }
        first += asked.len();
        let score = findings.close(faults)?;
        println!("{}: {score}, asked in {} s", area.name, begin.elapsed().as_secs());
        is_enough &= score.is_enough();
    }
    Ok(is_enough)
}

/// Returns the faults of an area, or a sample of them.
fn faults(area: &Area, options: &Options) -> Result<Vec<Fault>> {
    let listed = tool::output(tool::cargo().args(["mutants", "--list", "--json"]).args(which(area)))?;
    let mut faults = fault::listed(&listed)?;
    faults.retain(|fault| !UNNOTICEABLE.iter().any(|name| fault.name.ends_with(name)));
    let every = options.sample.map_or(1, |count| shards(faults.len(), count));
    let sample = sample::one_of(every, &faults);
    println!("{}: {} of {} faults", area.name, sample.len(), faults.len());
    Ok(sample)
}

/// The number of faults that are tested at a time, each in a process of its own.
const AT_A_TIME: usize = 2;

/// Shows every fault that can be switched on to one test program after the other, until one notices. Returns how long each program may take.
fn switch_on(
    asked: &[Tests],
    tree: &Tree,
    faults: &[Fault],
    first: usize,
    board: &tree::Switchboard,
    found: &mut Findings,
) -> Result<Vec<Duration>> {
    let refused = (first..).zip(faults).filter(|(number, _)| board.refused.contains(number));
    found.refused.extend(refused.map(|(_, fault)| fault.name.clone()));
    let mut patience = Vec::new();
    for (tests, program) in asked.iter().zip(&board.programs) {
        let dir = tree.package(tests.package);
        let witnesses = Witnesses::gather(program.clone(), &dir, tests)?;
        patience.push(witnesses.patience());
        let open =
            |(number, fault): &(usize, &Fault)| board.switched.contains(number) && !found.is_settled(fault);
        let open: Vec<(usize, &Fault)> = (first..).zip(faults).filter(open).collect();
        let (next, findings) = (AtomicUsize::new(0), Mutex::new(&mut *found));
        let ask = || -> Result<()> {
            while let Some((number, fault)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                let finding = witnesses.ask(*number)?;
                findings.lock().unwrap_or_else(PoisonError::into_inner).take_in(fault, finding)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let askers = [(); AT_A_TIME].map(|()| scope.spawn(ask));
            askers.into_iter().try_for_each(|asker| asker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
    }
    Ok(patience)
}

/// Tests the faults that cannot be switched on, each in a build of its own.
fn put_in_alone(
    area: &Area,
    tree: &Tree,
    faults: &[Fault],
    patience: &[Duration],
    found: &mut Findings,
) -> Result<()> {
    for fault in faults.iter().filter(|fault| !found.is_known(fault)).collect::<Vec<_>>() {
        for (tests, patience) in area.asked.iter().zip(patience) {
            // Each test program is built only when it is needed: the last ones take longest to build, and most faults are noticed before.
            let program = match tree.alone(tests, fault)? {
                Build::Programs(programs) => programs.into_iter().next().context("no program was built")?,
                Build::Complaints(_) => {
                    found.cannot_be(fault)?;
                    break;
                }
            };
            let dir = tree.package(tests.package);
            let witnesses = Witnesses::of_one_fault(program, &dir, tests, *patience);
            found.take_in(fault, witnesses.ask_all()?)?;
            if found.is_settled(fault) {
                break;
            }
        }
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

/// Returns the step between faults of a sample, so that about as many are chosen as were asked for.
fn shards(faults: usize, wanted: u32) -> usize {
    faults.div_ceil(wanted as usize).max(1)
}

/// The findings of this run and of earlier ones, kept in files with one line for each fault.
struct Findings {
    dir: PathBuf,
    /// Faults that tests noticed, each with the test that failed first.
    noticed: BTreeMap<String, String>,
    missed: BTreeSet<String>,
    /// Faults that do not compile.
    impossible: BTreeSet<String>,
    /// Faults that do not compile beside the others. Few of them compile alone.
    refused: BTreeSet<String>,
}

impl Findings {
    fn open(area: &Area) -> Result<Self> {
        Self::in_dir(workspace::target_dir().join("mutants").join(area.name))
    }

    fn in_dir(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let noticed = lines(&dir.join("noticed.txt"))?;
        let noticed = noticed.iter().filter_map(|line| line.split_once('\t'));
        let noticed = noticed.map(|(fault, test)| (fault.to_owned(), test.to_owned())).collect();
        let impossible = lines(&dir.join("impossible.txt"))?;
        Ok(Self { dir, noticed, missed: BTreeSet::new(), impossible, refused: BTreeSet::new() })
    }

    /// Whether nothing more can be found out about a fault.
    fn is_settled(&self, fault: &Fault) -> bool {
        self.noticed.contains_key(&fault.name) || self.impossible.contains(&fault.name)
    }

    /// Whether tests have been run with a fault.
    fn is_known(&self, fault: &Fault) -> bool {
        self.is_settled(fault) || self.missed.contains(&fault.name)
    }

    fn take_in(&mut self, fault: &Fault, finding: Finding) -> Result<()> {
        let test = match finding {
            Finding::NotNoticed => {
                self.missed.insert(fault.name.clone());
                return self.write_missed();
            }
            Finding::Noticed(test) => test,
            Finding::NeverEnded => NO_END.to_owned(),
        };
        self.missed.remove(&fault.name);
        self.noticed.insert(fault.name.clone(), test);
        self.write("noticed.txt", self.noticed.iter().map(|(fault, test)| format!("{fault}\t{test}\n")))
    }

    fn cannot_be(&mut self, fault: &Fault) -> Result<()> {
        self.missed.remove(&fault.name);
        self.impossible.insert(fault.name.clone());
        self.write("impossible.txt", self.impossible.iter().map(|fault| format!("{fault}\n")))
    }

    fn write_missed(&self) -> Result<()> {
        self.write("missed.txt", self.missed.iter().map(|fault| format!("{fault}\n")))
    }

    fn write(&self, name: &str, lines: impl Iterator<Item = String>) -> Result<()> {
        let file = self.dir.join(name);
        fs::write(&file, lines.collect::<String>())
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Writes the list of faults that were not noticed, and returns the score.
    fn close(&self, faults: &[Fault]) -> Result<Score> {
        self.write_missed()?;
        let count = |is: &dyn Fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
        Ok(Score {
            noticed: count(&|fault| self.noticed.contains_key(&fault.name)),
            missed: count(&|fault| self.missed.contains(&fault.name)),
            impossible: count(&|fault| self.impossible.contains(&fault.name)),
            endless: count(&|fault| self.noticed.get(&fault.name).is_some_and(|test| test == NO_END)),
            refused: count(&|fault| !self.is_known(fault) && self.refused.contains(&fault.name)),
            unasked: count(&|fault| !self.is_known(fault) && !self.refused.contains(&fault.name)),
        })
    }
}

/// Returns the lines of a file; none if it does not exist.
fn lines(file: &Path) -> Result<BTreeSet<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// The numbers of faults that compile and of those that were noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score {
    noticed: usize,
    /// Of the noticed faults, those whose tests did not end.
    endless: usize,
    missed: usize,
    impossible: usize,
    refused: usize,
    unasked: usize,
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
        write!(
            f,
            "{} of {all} faults noticed ({percent:.1} %), {} of them by no end",
            self.noticed, self.endless
        )?;
        write!(f, ", {} do not compile, {} do not beside the others", self.impossible, self.refused)?;
        write!(f, ", {} left out", self.unasked)
    }
}

#[cfg(test)]
mod tests {
    use super::fault::{Kind, Place};
    use super::*;

    #[test]
    fn a_sample_is_about_as_large_as_was_asked_for_and_never_empty() {
        for (faults, wanted, shards_of) in [(1_000, 100, 10), (1_001, 100, 11), (50, 100, 1), (0, 5, 1)] {
            assert_eq!(shards(faults, wanted), shards_of, "{wanted} of {faults}");
        }
    }

    #[test]
    fn nine_of_ten_are_enough_and_eight_are_not() {
        let score =
            |noticed, missed| Score { noticed, endless: 2, missed, impossible: 7, refused: 3, unasked: 0 };
        assert!(score(9, 1).is_enough() && score(0, 0).is_enough() && !score(89, 11).is_enough());
        assert_eq!(
            score(89, 11).to_string(),
            "89 of 100 faults noticed (89.0 %), 2 of them by no end, 7 do not compile, 3 do not beside the others, 0 left out"
        );
    }

    #[test]
    fn files_of_every_area_are_there() {
        for area in &AREAS {
            let package = workspace::root().join(area.package);
            assert!(package.join("src/lib.rs").exists() && PACKAGES.contains(&area.package), "{}", area.name);
            for file in area.files {
                assert!(package.join(file.trim_end_matches("/**")).exists(), "{file}");
            }
        }
    }

    #[test]
    fn what_an_earlier_run_found_out_is_not_asked_again_and_what_nobody_noticed_is() {
        let dir = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
        let place = Place { line: 1, column: 1 };
        let fault = |name: &str| Fault {
            name: name.to_owned(),
            file: String::new(),
            start: place,
            end: place,
            replacement: String::new(),
            kind: Kind::Operator,
        };
        let faults = ["a", "b", "c", "d"].map(fault);
        let mut first = Findings::in_dir(dir.clone()).unwrap();
        first.take_in(&faults[0], Finding::Noticed("a_test".into())).unwrap();
        first.take_in(&faults[1], Finding::NotNoticed).unwrap();
        first.cannot_be(&faults[2]).unwrap();
        let score = Score { noticed: 1, endless: 0, missed: 1, impossible: 1, refused: 0, unasked: 1 };
        assert_eq!(first.close(&faults).unwrap(), score);
        let mut second = Findings::in_dir(dir.clone()).unwrap();
        assert_eq!(faults.each_ref().map(|fault| second.is_settled(fault)), [true, false, true, false]);
        second.take_in(&faults[1], Finding::NeverEnded).unwrap();
        second.refused.insert(faults[3].name.clone());
        let score = Score { noticed: 2, endless: 1, missed: 0, impossible: 1, refused: 1, unasked: 0 };
        assert_eq!(second.close(&faults).unwrap(), score);
        fs::remove_dir_all(&dir).unwrap();
    }
}
