//! A test program that is run with one fault after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Tests;
use crate::tool;

/// The largest number of tests that are given by name.
const NAMES: usize = 150;

/// How many tests are run before all others, and how long these may take without a fault: they notice most faults.
const FEW: usize = 16;
const SHORT: Duration = Duration::from_millis(400);

/// Tests that take longer than this without a fault are run last: they are few, and take most of the time.
const LONG: Duration = Duration::from_millis(500);

/// The time that starting a program takes, which is weighed against the tests in it.
const START: Duration = Duration::from_millis(5);

/// Memory for a program with a fault, in KiB. An endless loop could take all memory.
const MEMORY: u32 = 8 << 20;

/// The result of running tests with a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// A test failed; this one failed first.
    Noticed(String),
    /// The tests did not end, which a developer would notice.
    NeverEnded,
    NotNoticed,
}

pub(super) struct Witnesses<'a> {
    program: PathBuf,
    dir: &'a Path,
    /// The tests of the program that are run.
    asked: &'a Tests,
    patience: Duration,
    /// How long each test takes without a fault.
    times: BTreeMap<String, Duration>,
    /// The tests that reach each fault.
    reached: BTreeMap<usize, Reached>,
}

/// The tests that reach a fault.
#[derive(Default)]
struct Reached {
    /// The tests, the likeliest to notice first.
    tests: Vec<String>,
    /// Whether a thread that is no test reached the fault: it works for a test that is not known.
    is_by_others: bool,
}

impl<'a> Witnesses<'a> {
    /// Runs all tests without a fault, which they must pass, and notes which faults each one reaches.
    pub(super) fn gather(program: PathBuf, dir: &'a Path, asked: &'a Tests) -> Result<Self> {
        let mut found = Self::of_one_fault(program, dir, asked, Duration::from_secs(1_200));
        let list = tool::output(found.command().args(found.which()).args(["--list", "--format", "terse"]))?;
        let tests: BTreeSet<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        if tests.is_empty() {
            bail!("{} has no tests of these names: {}", found.program.display(), asked.names.join(", "));
        }
        let file = found.program.with_extension("reached");
        let _ = fs::remove_file(&file);
        let begin = Instant::now();
        found.times = found.pass_with(&file)?;
        found.patience = begin.elapsed() * 3 + Duration::from_secs(10);
        found.reached = reached(&fs::read_to_string(&file).unwrap_or_default(), &tests);
        found.rank();
        Ok(found)
    }

    /// Sorts tests, the likeliest to notice first: tests of a narrow part of the code, which reach few faults, and short ones.
    fn rank(&mut self) {
        let mut faults: BTreeMap<&str, u32> = BTreeMap::new();
        for test in self.reached.values().flat_map(|reached| &reached.tests) {
            *faults.entry(test).or_default() += 1;
        }
        let time = |test: &str| self.times.get(test).copied().unwrap_or_default() + START;
        let weights: BTreeMap<String, Duration> =
            faults.iter().map(|(test, faults)| ((*test).to_owned(), time(test) * *faults)).collect();
        for reached in self.reached.values_mut() {
            reached.tests.sort_by_key(|test| weights.get(test));
        }
    }

    /// Makes the witnesses of a program in which one fault is always on.
    pub(super) fn of_one_fault(
        program: PathBuf,
        dir: &'a Path,
        asked: &'a Tests,
        patience: Duration,
    ) -> Self {
        Self { program, dir, asked, patience, times: BTreeMap::new(), reached: BTreeMap::new() }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Runs tests with a fault switched on. Only tests that reach it are run, a few of them first.
    pub(super) fn ask(&self, number: usize) -> Result<Finding> {
        let Some(reached) = self.reached.get(&number) else { return Ok(Finding::NotNoticed) };
        let number = number.to_string();
        let fault = [("RATELIMIT_FAULT", number.as_str())];
        let (few, others) = reached.tests.split_at(self.few(&reached.tests));
        let finding = self.watch_some(few, &fault)?;
        if finding != Finding::NotNoticed {
            return Ok(finding);
        }
        let (long, short): (Vec<String>, Vec<String>) =
            others.iter().cloned().partition(|test| self.is_long(test));
        let finding = if reached.is_by_others || short.len() > NAMES {
            let long: Vec<&str> =
                self.times.keys().map(String::as_str).filter(|test| self.is_long(test)).collect();
            let skipped: Vec<&str> = long.iter().flat_map(|test| ["--skip", test]).collect();
            self.watch(&[], self.patience_without(&long), &skipped, &fault, &mut |_| {})?
        } else {
            self.watch_some(&short, &fault)?
        };
        if finding != Finding::NotNoticed {
            return Ok(finding);
        }
        if !reached.is_by_others {
            return self.watch_some(&long, &fault);
        }
        let long: Vec<String> = self.times.keys().filter(|test| self.is_long(test)).cloned().collect();
        self.watch_some(&long, &fault)
    }

    fn is_long(&self, test: &str) -> bool {
        self.times.get(test).is_some_and(|time| *time > LONG)
    }

    /// Runs these tests, if there are any.
    fn watch_some(&self, tests: &[String], fault: &[(&str, &str)]) -> Result<Finding> {
        if tests.is_empty() {
            return Ok(Finding::NotNoticed);
        }
        self.watch(tests, self.patience_for(tests), &[], fault, &mut |_| {})
    }

    /// Returns how many of these tests are run before the others.
    fn few(&self, tests: &[String]) -> usize {
        let mut all = Duration::ZERO;
        let is_within = |test: &&String| {
            all += self.times.get(*test).copied().unwrap_or_default();
            all <= SHORT
        };
        tests.iter().take(FEW).take_while(is_within).count().max(tests.len().min(1))
    }

    /// Returns how long these tests may take. Other programs run beside them.
    fn patience_for(&self, tests: &[String]) -> Duration {
        let times = tests.iter().filter_map(|test| self.times.get(test));
        (times.sum::<Duration>() * 5 + Duration::from_secs(10)).min(self.patience)
    }

    /// Returns how long all tests but these may take.
    fn patience_without(&self, long: &[&str]) -> Duration {
        let short = self.times.iter().filter(|(test, _)| !long.contains(&test.as_str()));
        (short.map(|(_, time)| *time).sum::<Duration>() * 5 + Duration::from_secs(10)).min(self.patience)
    }

    /// Runs all tests.
    pub(super) fn ask_all(&self) -> Result<Finding> {
        self.watch(&[], self.patience, &[], &[], &mut |_| {})
    }

    /// Runs all tests without a fault while they note which faults they reach, and returns how long each takes.
    fn pass_with(&self, reached: &Path) -> Result<BTreeMap<String, Duration>> {
        let mut times = BTreeMap::new();
        let reached = reached.to_string_lossy();
        // The test library shows the time of each test only with an unstable option.
        let env = [("RATELIMIT_FAULTS_REACHED", reached.as_ref()), ("RUSTC_BOOTSTRAP", "1")];
        let options = ["-Z", "unstable-options", "--report-time"];
        let finding = self.watch(&[], self.patience, &options, &env, &mut |line| times.extend(time(line)))?;
        match finding {
            Finding::NotNoticed => Ok(times),
            Finding::Noticed(test) => bail!("{test} fails without a fault; it must pass first"),
            Finding::NeverEnded => {
                bail!("{} does not come to an end without a fault", self.program.display())
            }
        }
    }

    /// Returns the words that tell the program which tests to run.
    fn which(&self) -> impl Iterator<Item = &'static str> {
        let without = self.asked.without.iter().flat_map(|name| ["--skip", name]);
        self.asked.names.iter().copied().chain(without)
    }

    fn command(&self) -> Command {
        let mut command = tool::command("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; exec nice -n 10 \"$@\""), "sh"]);
        command.arg(&self.program).current_dir(self.dir);
        // A failing case is enough: it is not shrunk to the smallest one, which takes a minute, and it is not kept for the next fault.
        command.envs([("PROPTEST_MAX_SHRINK_ITERS", "0"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")]);
        command
    }

    /// Runs these tests, or all if none is named, until one fails.
    fn watch(
        &self,
        tests: &[String],
        patience: Duration,
        options: &[&str],
        env: &[(&str, &str)],
        each: &mut dyn FnMut(&str),
    ) -> Result<Finding> {
        let mut command = self.command();
        if tests.is_empty() {
            command.args(self.which());
        } else {
            command.arg("--exact").args(tests);
        }
        command.args(["--test-threads", "2"]).args(options).envs(env.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let output = child.stdout.take().context("a test program has no standard output")?;
        let (sender, receiver) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        let end = Instant::now() + patience;
        let finding = loop {
            match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    each(&line);
                    if let Some(test) = failed(&line) {
                        break Some(Finding::Noticed(test.to_owned()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => break Some(Finding::NeverEnded),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        if finding.is_some() {
            // The program may have ended by itself in the meantime.
            let _ = child.kill();
        }
        drop(receiver);
        let status = child.wait().context("cannot wait for a test program")?;
        let _ = reader.join();
        Ok(finding.unwrap_or_else(|| {
            if status.success() { Finding::NotNoticed } else { Finding::Noticed(format!("all, by {status}")) }
        }))
    }
}

/// Returns the test that has failed according to a line of a test program.
fn failed(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    outcome.starts_with("FAILED").then_some(name)
}

/// Reads a test and how long it took from a line such as `test a::b ... ok <0.012s>`.
fn time(line: &str) -> Option<(String, Duration)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = outcome.strip_prefix("ok <")?.strip_suffix("s>")?.parse().ok()?;
    Some((name.to_owned(), Duration::try_from_secs_f64(seconds).ok()?))
}

/// Reads which tests reached which faults, from lines with the number of a fault and the name of a thread. The thread of a test has the test's name.
fn reached(lines: &str, tests: &BTreeSet<&str>) -> BTreeMap<usize, Reached> {
    let mut threads: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for (number, thread) in lines.lines().filter_map(|line| line.split_once(' ')) {
        if let Ok(number) = number.parse() {
            threads.entry(number).or_default().insert(thread);
        }
    }
    let reached = |threads: BTreeSet<&str>| {
        let (named, others): (Vec<&str>, Vec<&str>) =
            threads.iter().partition(|thread| tests.contains(*thread));
        Reached { tests: named.into_iter().map(str::to_owned).collect(), is_by_others: !others.is_empty() }
    };
    threads.into_iter().map(|(number, threads)| (number, reached(threads))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Tests = Tests::of_library("a", &["a::"]);

    /// Writes a test program with one test that reads the number of the fault as a real one would.
    fn program(name: &str, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("xtask-witness-{name}-{}", std::process::id()));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *--list*) echo 'a::b: test'; exit;; esac\n\
             if [ -n \"$RATELIMIT_FAULTS_REACHED\" ]; then printf '1 a::b\\n2 a::b\\n' >> $RATELIMIT_FAULTS_REACHED; exit; fi\n{body}\n"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_fault_is_noticed_by_a_test_that_fails_and_one_that_no_test_comes_by_is_not() {
        let path = program(
            "fails",
            "[ $RATELIMIT_FAULT = 1 ] && { echo 'test a::b ... FAILED'; exec sleep 60; }; echo 'test a::b ... ok'",
        );
        let dir = std::env::temp_dir();
        let witnesses = Witnesses::gather(path.clone(), &dir, &ALL).unwrap();
        let begin = Instant::now();
        assert_eq!(witnesses.ask(1).unwrap(), Finding::Noticed("a::b".into()));
        assert!(begin.elapsed() < Duration::from_secs(30), "the rest of the tests is not waited for");
        assert_eq!(witnesses.ask(2).unwrap(), Finding::NotNoticed);
        assert_eq!(witnesses.ask(3).unwrap(), Finding::NotNoticed);
        fs::remove_file(path.with_extension("reached")).unwrap();
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn tests_that_do_not_come_to_an_end_are_stopped() {
        let path = program("hangs", "exec sleep 600");
        let dir = std::env::temp_dir();
        let witnesses = Witnesses::of_one_fault(path.clone(), &dir, &ALL, Duration::from_millis(200));
        assert_eq!(witnesses.ask_all().unwrap(), Finding::NeverEnded);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_program_that_crashes_has_noticed() {
        let path = program("crashes", "exit 134");
        let dir = std::env::temp_dir();
        let witnesses = Witnesses::of_one_fault(path.clone(), &dir, &ALL, Duration::from_secs(60));
        assert!(matches!(witnesses.ask_all().unwrap(), Finding::Noticed(_)));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_few_short_tests_of_a_narrow_part_are_asked_first_and_all_others_if_they_do_not_notice() {
        let path = program("ranks", "exit 0");
        let mut witnesses =
            Witnesses::of_one_fault(path.clone(), Path::new("/"), &ALL, Duration::from_secs(60));
        let lines = "1 long\n1 narrow\n1 wide\n2 wide\n2 long\n3 wide\n3 worker\n4 wide\nnonsense\n";
        let tests = BTreeSet::from(["long", "narrow", "wide"]);
        witnesses.reached = reached(lines, &tests);
        let times = [("long", 900), ("narrow", 20), ("wide", 10)];
        witnesses.times =
            times.map(|(test, ms)| (test.to_owned(), Duration::from_millis(ms))).into_iter().collect();
        witnesses.rank();
        assert_eq!(witnesses.reached[&1].tests, ["narrow", "wide", "long"]);
        assert_eq!(witnesses.few(&witnesses.reached[&1].tests), 2);
        assert_eq!(witnesses.few(&["long".to_owned()]), 1, "one is asked, however long it takes");
        assert!(witnesses.reached[&3].is_by_others && !witnesses.reached[&1].is_by_others);
        assert_eq!(witnesses.patience_for(&witnesses.reached[&2].tests), Duration::from_millis(14_550));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_time_of_a_test_stands_behind_its_name() {
        let read = time("test a::b ... ok <0.012s>");
        assert_eq!(read, Some(("a::b".to_owned(), Duration::from_millis(12))));
        assert_eq!(time("test a::b ... ok"), None);
    }

    #[test]
    fn the_line_of_a_failed_test_names_it() {
        assert_eq!(failed("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed("test a::b - should panic ... FAILED"), Some("a::b - should panic"));
        assert_eq!(failed("test a::b ... ok"), None);
        assert_eq!(failed("test result: FAILED. 1 passed"), None);
    }
}
