//! A program of tests that is asked about one fault after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::tool;

/// More names than this are not given one by one.
const NAMES: usize = 150;

/// Memory for a program with a fault, in KiB. A loop without an end would take all there is.
const MEMORY: u32 = 8 << 20;

/// What tests made of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// A test failed: this one was the first.
    Noticed(String),
    /// They did not come to an end, which somebody would notice.
    NeverEnded,
    NotNoticed,
}

pub(super) struct Witnesses<'a> {
    program: PathBuf,
    dir: &'a Path,
    /// What the names of the tests begin with.
    names: &'a [&'a str],
    patience: Duration,
    /// Tests that come by a fault.
    reached: BTreeMap<usize, BTreeSet<String>>,
}

impl<'a> Witnesses<'a> {
    /// Runs them without a fault, which they must pass, and notes down which faults they come by.
    pub(super) fn gather(program: PathBuf, dir: &'a Path, names: &'a [&'a str]) -> Result<Self> {
        let mut found =
            Self { program, dir, names, patience: Duration::from_secs(1_200), reached: BTreeMap::new() };
        let list = tool::output(found.command().args(names).args(["--list", "--format", "terse"]))?;
        let tests: BTreeSet<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        if tests.is_empty() {
            bail!("{} has no tests of these names: {}", found.program.display(), names.join(", "));
        }
        let file = found.program.with_extension("reached");
        let _ = fs::remove_file(&file);
        let begin = Instant::now();
        found.pass_with(&[("RATELIMIT_FAULTS_REACHED", &file.to_string_lossy())])?;
        found.patience = begin.elapsed() * 3 + Duration::from_secs(10);
        for line in fs::read_to_string(&file).unwrap_or_default().lines() {
            if let Some((number, thread)) = line.split_once(' ').and_then(|(n, t)| Some((n.parse().ok()?, t)))
            {
                found.reached.entry(number).or_default().insert(thread.to_owned());
            }
        }
        // A thread that is no test serves one that is not known.
        for threads in found.reached.values_mut() {
            if threads.iter().any(|thread| !tests.contains(thread.as_str())) || threads.len() > NAMES {
                threads.clear();
            }
        }
        Ok(found)
    }

    /// Those that a fault is not switched on in: it is there from the start.
    pub(super) fn of_one_fault(
        program: PathBuf,
        dir: &'a Path,
        names: &'a [&'a str],
        patience: Duration,
    ) -> Self {
        Self { program, dir, names, patience, reached: BTreeMap::new() }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Switches a fault on. Only tests that come by it are asked.
    pub(super) fn ask(&self, number: usize) -> Result<Finding> {
        match self.reached.get(&number) {
            None => Ok(Finding::NotNoticed),
            Some(tests) => self.watch(tests, &[("RATELIMIT_FAULT", &number.to_string())]),
        }
    }

    /// Asks all.
    pub(super) fn ask_all(&self) -> Result<Finding> {
        self.watch(&BTreeSet::new(), &[])
    }

    fn pass_with(&self, env: &[(&str, &str)]) -> Result<()> {
        match self.watch(&BTreeSet::new(), env)? {
            Finding::NotNoticed => Ok(()),
            Finding::Noticed(test) => bail!("{test} fails without a fault; it must pass first"),
            Finding::NeverEnded => {
                bail!("{} does not come to an end without a fault", self.program.display())
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = tool::command("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; exec nice -n 10 \"$@\""), "sh"]);
        command.arg(&self.program).current_dir(self.dir);
        // That a case fails is enough: nobody looks for the smallest one, which takes a minute, and none is kept for the next fault.
        command.envs([("PROPTEST_MAX_SHRINK_ITERS", "0"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")]);
        command
    }

    /// Runs these tests, or all if none is named, until one fails.
    fn watch(&self, tests: &BTreeSet<String>, env: &[(&str, &str)]) -> Result<Finding> {
        let mut command = self.command();
        if tests.is_empty() {
            command.args(self.names);
        } else {
            command.arg("--exact").args(tests);
        }
        command.args(["--test-threads", "2"]).envs(env.iter().copied());
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
        let end = Instant::now() + self.patience;
        let finding = loop {
            match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(test) = failed(&line) {
                        break Some(Finding::Noticed(test.to_owned()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => break Some(Finding::NeverEnded),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        if finding.is_some() {
            // It may have ended by itself in the meantime.
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

/// The test that a line of a test program says has failed.
fn failed(line: &str) -> Option<&str> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    outcome.ends_with("FAILED").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test program of one test, that looks at the fault as a real one would.
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
        let witnesses = Witnesses::gather(path.clone(), &dir, &["a::"]).unwrap();
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
        let witnesses = Witnesses::of_one_fault(path.clone(), &dir, &[], Duration::from_millis(200));
        assert_eq!(witnesses.ask_all().unwrap(), Finding::NeverEnded);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_program_that_crashes_has_noticed() {
        let path = program("crashes", "exit 134");
        let dir = std::env::temp_dir();
        let witnesses = Witnesses::of_one_fault(path.clone(), &dir, &[], Duration::from_secs(60));
        assert!(matches!(witnesses.ask_all().unwrap(), Finding::Noticed(_)));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_line_of_a_failed_test_names_it() {
        assert_eq!(failed("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed("test a::b - should panic ... FAILED"), Some("a::b - should panic"));
        assert_eq!(failed("test a::b ... ok"), None);
        assert_eq!(failed("test result: FAILED. 1 passed"), None);
    }
}
