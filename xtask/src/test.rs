//! `cargo xtask test`: runs all tests from a fresh checkout, and ends with one line of totals.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::compile::{self, Compiler};
use crate::outcome::Ending;
use crate::setup::{self, Install, Need};
use crate::suites::{EndedSuite, LaneJob};
use crate::vm::{self, ShortKernel};
use crate::{earlier, lint, mutants, soak, suites};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out formatting and clippy
    #[arg(long)]
    no_lint: bool,
    /// Run the long tests too: failovers and floods that take minutes
    #[arg(long)]
    long: bool,
    /// Passed on to `cargo test`, for example `-- --test wire` or `-- name_of_a_test`
    #[arg(last = true)]
    cargo_test: Vec<String>,
}

pub(crate) fn run(options: &Options, install: Install) -> Result<()> {
    let to_build = [&setup::KERNEL_BUILD[..], &setup::LINTERS].concat();
    let to_run = [
        &setup::NAMESPACES[..],
        &setup::REDIS,
        &setup::REDIS_CLIENTS,
        &setup::PROXIES,
        &setup::RESOLVERS,
        &setup::BROWSER,
        &setup::PAGES,
        &vm::NEEDS,
        &[
            Need::Promtool,
            Need::Executable { name: "nft", package: "nftables" },
            Need::Executable { name: "ethtool", package: "ethtool" },
            soak::CLOCK,
            soak::SYSCTL,
            Need::Executable { name: "tcpdump", package: "tcpdump" },
            Need::Executable { name: "tshark", package: "tshark" },
            // The documentation adds somebody to the group of those who may ask.
            Need::Executable { name: "adduser", package: "adduser" },
        ],
    ]
    .concat();
    if install == Install::PrintOnly {
        setup::ensure(&[&to_build[..], &to_run].concat(), install)?;
    }
    setup::ensure_as_root(&to_build, install, "test")?;
    let compiler = if options.no_lint { Compiler::Rustc } else { Compiler::Clippy };
    let words: &[&str] = if options.long { &[suites::INCLUDE_IGNORED] } else { &[] };
    let (messages, arriving) = mpsc::channel();
    // Programs for the suites are fetched while the suites are compiled: one waits for the network, the other for the processor.
    let (built, early, oldest) = thread::scope(|scope| {
        let fetching = scope.spawn(|| {
            setup::ensure(&to_run, install)?;
            // If single tests are asked for, no other kernel is booted.
            if options.cargo_test.is_empty() { ShortKernel::obtain() } else { Ok(None) }
        });
        // If single tests are asked for, whole programs are not run early.
        let early =
            options.cargo_test.is_empty().then(|| scope.spawn(move || suites::run_early(&arriving, words)));
        let built = build(compiler, !options.no_lint, messages);
        let fetched = fetching.join().map_err(|_panicked| anyhow!("setup ended early"))?;
        let early = early.map_or_else(|| Ok(Ok(Vec::new())), thread::ScopedJoinHandle::join);
        let early = early.map_err(|_panicked| anyhow!("the first programs ended early"))?;
        anyhow::Ok((built?, early?, fetched?))
    })?;
    eprintln!("test: running the suites");
    let totals = match &options.cargo_test[..] {
        [] => all_suites(&built, early, compiler, words, oldest.as_ref())?,
        given => some_suites(given, compiler, options.long)?,
    };
    let verdict = totals.verdict();
    if let Err(why) = &verdict {
        eprintln!("test: {why}");
    }
    // This is the last line, whatever happened, because scripts read it.
    println!("{totals}");
    verdict.map_err(|_told| Ending::Told.into())
}

/// Lints and compiles everything in one build. Cargo's messages go to `messages` too, as long as it has a receiver.
fn build(compiler: Compiler, is_linted: bool, messages: mpsc::Sender<Value>) -> Result<Vec<Value>> {
    if is_linted {
        lint::check_all_but_host_crates()?;
    }
    // The suites start binaries from cargo's directory, and `cargo test` alone would not build all of them.
    eprintln!("test: building");
    earlier::build(earlier::OTHER_LAYOUT)?;
    compile::everything(compiler, move |message| drop(messages.send(message.clone())))
}

/// Runs everything: the test programs a few at a time; then the oldest kernel in a guest, which keeps one CPU busy, and beside it examples in comments
/// and faults that the tests must notice. All packages are built: with fewer, dependencies would have other features and be built again.
fn all_suites(
    built: &[Value],
    early: Vec<EndedSuite>,
    compiler: Compiler,
    words: &[&str],
    oldest: Option<&ShortKernel>,
) -> Result<Totals> {
    // Both build with cargo, so they run one after the other.
    let examples_and_faults: LaneJob<'_> = Box::new(|| {
        let mut text = Vec::new();
        let (examples, status) =
            stream(compile::cargo(compiler).args(["test", "--workspace", "--doc"]), &mut text)?;
        let mut totals = examples.with_crash(status);
        eprintln!("test: putting in a sample of faults that the tests are to notice");
        // If tests fail without a fault, they are counted among the others, and faults cannot be tested.
        totals.join(&mutants::short::run().unwrap_or_else(|error| {
            eprintln!("test: the sample of faults came to no end: {error:#}; counted as one failure");
            Totals::of(0, 1)
        }));
        Ok((totals, text))
    });
    // Jobs are taken from the end of the list.
    let mut jobs = vec![examples_and_faults];
    if let Some(oldest) = oldest {
        jobs.push(Box::new(|| Ok((oldest.run(built)?, Vec::new()))));
    }
    suites::run(built, early, jobs, words, &mut std::io::stdout())
}

/// Runs `cargo test` with the words behind `--`.
fn some_suites(given: &[String], compiler: Compiler, long: bool) -> Result<Totals> {
    let mut cargo = compile::cargo(compiler);
    cargo.args(["test", "--no-fail-fast"]);
    if !given.iter().any(|word| word == "-p" || word == "--package" || word.starts_with("--package=")) {
        cargo.arg("--workspace");
    }
    cargo.args(given);
    if long {
        cargo.args(to_include_ignored(given));
    }
    let (totals, status) = stream(&mut cargo, &mut std::io::stdout().lock())?;
    Ok(totals.with_crash(status))
}

/// Returns the words that make test programs run ignored tests too, to put after the given words.
fn to_include_ignored(given: &[String]) -> &'static [&'static str] {
    if given.iter().any(|word| word == "--") { &["--include-ignored"] } else { &["--", "--include-ignored"] }
}

/// Shows the output as it comes while adding up the results in it.
fn stream(cargo: &mut Command, shown: &mut impl Write) -> Result<(Totals, ExitStatus)> {
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let output = child.stdout.take().context("cargo test has no standard output")?;
    let mut totals = Totals::default();
    // Lines are read as bytes, because a test may print anything.
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).context("cannot read what cargo test prints")? > 0 {
        shown.write_all(&line)?;
        shown.flush()?;
        totals.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok((totals, child.wait().context("cannot wait for cargo test")?))
}

#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    skipped: u64,
}

impl Totals {
    /// Adds the counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; ...`; other lines are ignored.
    pub(crate) fn add(&mut self, line: &str) {
        let Some(result) = line.trim().strip_prefix("test result: ") else { return };
        let counts = result.split_once(". ").map_or("", |(_verdict, counts)| counts);
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let (Some(Ok(number)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// Makes the totals of a suite without skipped tests.
    pub(crate) fn of(passed: u64, failed: u64) -> Self {
        Self { passed, failed, skipped: 0 }
    }

    /// Adds other totals.
    pub(crate) fn join(&mut self, others: &Self) {
        self.passed += others.passed;
        self.failed += others.failed;
        self.skipped += others.skipped;
    }

    /// Counts one failed test as passed, because it has passed when it was run alone.
    pub(crate) fn passed_again(&mut self) {
        self.failed -= 1;
        self.passed += 1;
    }

    /// Counts a failure if a suite ended badly without a result line, because it did not compile or a signal ended it.
    pub(crate) fn with_crash(mut self, status: ExitStatus) -> Self {
        if !status.success() && self.failed == 0 {
            eprintln!(
                "test: a suite did not build or did not reach its end ({status}); counted as one failure"
            );
            self.failed = 1;
        }
        self
    }

    fn verdict(&self) -> Result<()> {
        if self.failed > 0 {
            bail!("{} of {} tests failed", self.failed, self.passed + self.failed);
        }
        if self.passed == 0 {
            bail!("no test ran; the filter, if one was given, matches nothing");
        }
        Ok(())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn totals_of(output: &str) -> Totals {
        let mut totals = Totals::default();
        output.lines().for_each(|line| totals.add(line));
        totals
    }

    #[test]
    fn the_results_of_all_suites_are_added_up() {
        let totals = totals_of(
            "running 3 tests\n\
             test a ... ok\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 9 filtered out; finished in 1.00s\n",
        );
        assert_eq!(totals, Totals { passed: 5, failed: 1, skipped: 4 });
        assert_eq!(totals.to_string(), "5 passed, 1 failed, 4 skipped");
    }

    #[test]
    fn long_tests_are_asked_for_behind_the_words_that_were_given() {
        let given = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(to_include_ignored(&given(&["--test", "cluster"])), ["--", "--include-ignored"]);
        assert_eq!(to_include_ignored(&given(&["--", "--nocapture"])), ["--include-ignored"]);
    }

    #[test]
    fn skipped_tests_are_mentioned_only_if_there_are_any() {
        assert_eq!(Totals { passed: 123, failed: 0, skipped: 0 }.to_string(), "123 passed, 0 failed");
    }

    #[test]
    fn a_suite_that_crashed_without_a_result_counts_as_a_failure() {
        let killed = ExitStatus::from_raw(101 << 8);
        assert_eq!(Totals { passed: 7, ..Totals::default() }.with_crash(killed).failed, 1);
        assert_eq!(Totals { passed: 7, failed: 2, skipped: 0 }.with_crash(killed).failed, 2);
        assert_eq!(Totals { passed: 7, ..Totals::default() }.with_crash(ExitStatus::from_raw(0)).failed, 0);
    }

    #[test]
    fn no_test_at_all_is_not_success() {
        assert!(Totals::default().verdict().is_err());
        assert!(Totals { passed: 1, failed: 0, skipped: 0 }.verdict().is_ok());
        assert!(Totals { passed: 1, failed: 1, skipped: 0 }.verdict().is_err());
    }

    #[test]
    fn the_output_is_streamed_and_added_up_from_a_real_process() {
        let mut fake = Command::new("printf");
        fake.arg("test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\\n\\377\\n");
        let mut shown = Vec::new();
        let (totals, status) = stream(&mut fake, &mut shown).unwrap();
        assert!(status.success());
        assert!(shown.starts_with(b"test result: ok.") && shown.ends_with(b"\n\xff\n"));
        assert_eq!(totals, Totals { passed: 2, failed: 0, skipped: 1 });
    }
}
