//! Runs the test programs of the workspace, a few at a time, because they wait for much of their time.
//!
//! Programs that need no other binary run while the rest of the workspace is compiled. Compiling does not keep two cores busy: most of the time one
//! large crate is compiled, and others wait for it.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test::Totals;
use crate::{earlier, tool};

/// Programs that run at once. Each has as many threads as there are CPUs, and some of them flood interfaces.
const LANES: usize = 2;
/// The programs that take longest. They begin first, so that the others do not have to wait for them at the end.
const LONGEST: [&str; 5] = ["daemon", "requests", "cluster", "wire", "packets"];
/// The package whose programs start the daemon, Redis and others; they begin when everything is compiled.
const OF_SUITES: &str = "tests";

/// Makes a test program run its long tests too.
pub(crate) const INCLUDE_IGNORED: &str = "--include-ignored";

/// One test program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suite {
    name: String,
    executable: PathBuf,
    /// The directory of the program's package, in which cargo would start it.
    package: PathBuf,
}

/// A program that has ended, with its results and what it printed.
pub(crate) struct EndedSuite {
    suite: Suite,
    totals: Totals,
    text: Vec<u8>,
}

/// Work that is no test program. A lane takes such a job when no program is left.
pub(crate) type LaneJob<'j> = Box<dyn FnOnce() -> Result<(Totals, Vec<u8>)> + Send + 'j>;

/// The largest number of failed tests that are run again, because the machine may be to blame. More failures are a defect.
const FEW: usize = 3;

/// Runs test programs that need no other binary, one at a time, as cargo says that it has built them. The compiler goes first.
pub(crate) fn run_early(built: &Receiver<Value>, words: &[&str]) -> Result<Vec<EndedSuite>> {
    let mut ended = Vec::new();
    for message in built {
        for suite in suites(&[message]).into_iter().filter(|suite| !suite.package.ends_with(OF_SUITES)) {
            let (totals, text) = one(&suite, words, SuitePriority::BehindCompiler, patience(words))?;
            ended.push(EndedSuite { suite, totals, text });
        }
    }
    Ok(ended)
}

/// Runs every test program that cargo has built and that has not ended `early`, with these words, and the jobs. The output of each is shown in
/// one piece when it has ended. If only a few tests failed, they are run once more, alone on the machine; decision 40 says why.
pub(crate) fn run(
    built: &[Value],
    early: Vec<EndedSuite>,
    jobs: Vec<LaneJob<'_>>,
    words: &[&str],
    shown: &mut (impl Write + Send),
) -> Result<Totals> {
    let mut waiting = longest_first(suites(built));
    waiting.retain(|suite| early.iter().all(|ended| ended.suite != *suite));
    let (mut totals, mut failed) = (Totals::default(), Vec::new());
    for ended in early {
        totals.join(&ended.totals);
        failed.extend(failures(&ended.text).map(|test| (ended.suite.clone(), test)));
        shown.write_all(&ended.text)?;
    }
    let (of_lanes, failed_in_lanes) = in_lanes(waiting, jobs, words, shown)?;
    totals.join(&of_lanes);
    failed.extend(failed_in_lanes);
    if (1..=FEW).contains(&failed.len()) && totals.failed == failed.len() as u64 {
        for (suite, test) in failed {
            let words = [INCLUDE_IGNORED, "--exact", &test];
            let (again, text) = one(&suite, &words, SuitePriority::Usual, patience(&[]))?;
            shown.write_all(&text)?;
            if again.failed == 0 && again.passed == 1 {
                eprintln!("test: {} {test} failed among the others and passed alone: mend it", suite.name);
                totals.passed_again();
            }
        }
    }
    Ok(totals)
}

/// Returns the test programs that cargo has built.
fn suites(messages: &[Value]) -> Vec<Suite> {
    let suite = |message: &Value| {
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        Some(Suite {
            name: message["target"]["name"].as_str().filter(|_| is_test)?.to_owned(),
            executable: message["executable"].as_str()?.into(),
            package: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        })
    };
    messages.iter().filter_map(suite).collect()
}

fn longest_first(mut suites: Vec<Suite>) -> VecDeque<Suite> {
    let rank = |suite: &Suite| LONGEST.iter().position(|name| *name == suite.name).unwrap_or(LONGEST.len());
    suites.sort_by_key(rank);
    suites.into()
}

/// Runs all programs, and returns their results and each failed test with its program.
fn in_lanes(
    suites: VecDeque<Suite>,
    jobs: Vec<LaneJob<'_>>,
    words: &[&str],
    shown: &mut (impl Write + Send),
) -> Result<(Totals, Vec<(Suite, String)>)> {
    let (waiting, jobs) = (Mutex::new(suites), Mutex::new(jobs));
    let done = Mutex::new((Totals::default(), Vec::new(), shown));
    std::thread::scope(|scope| {
        let lane = || -> Result<()> {
            loop {
                let suite = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let (totals, text) = match &suite {
                    Some(suite) => one(suite, words, SuitePriority::Usual, patience(words))?,
                    None => match jobs.lock().unwrap_or_else(PoisonError::into_inner).pop() {
                        Some(job) => job()?,
                        None => return Ok(()),
                    },
                };
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.0.join(&totals);
                if let Some(suite) = suite {
                    done.1.extend(failures(&text).map(|test| (suite.clone(), test)));
                }
                done.2.write_all(&text)?;
                done.2.flush()?;
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a lane of suites ended early"),
        })
    })?;
    let (totals, failed, _shown) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((totals, failed))
}

/// Returns the names of tests in lines such as `test packets::a_name ... FAILED`.
fn failures(text: &[u8]) -> impl Iterator<Item = String> {
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    String::from_utf8_lossy(text).lines().filter_map(name).collect::<Vec<_>>().into_iter()
}

/// The priority of a program when both cores are busy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SuitePriority {
    Usual,
    BehindCompiler,
}

/// How long a program may run, as `timeout` takes it. A test that never ends is a failure, and must not keep everybody waiting for the others' results.
fn patience(words: &[&str]) -> &'static str {
    if words.contains(&INCLUDE_IGNORED) { "6h" } else { "25m" }
}

/// Runs one program to its end, or ends it when `patience` is over. One that ends without a result counts as a failure.
fn one(suite: &Suite, words: &[&str], priority: SuitePriority, patience: &str) -> Result<(Totals, Vec<u8>)> {
    let began = Instant::now();
    // Ctrl-C reaches the program too because of --foreground.
    let mut program = tool::command("timeout");
    program.args(["--foreground", "--kill-after", "10s", patience]);
    if priority == SuitePriority::BehindCompiler {
        program.args(["nice", "-n", "5"]);
    }
    program
        .arg(&suite.executable)
        .args(words)
        .current_dir(&suite.package)
        .env("CARGO_MANIFEST_DIR", &suite.package);
    // The test of an upgrade uses this build, which is made before the suites.
    program.env("RATELIMIT_EARLIER", earlier::aside(earlier::OTHER_LAYOUT));
    let ended = program
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", suite.executable.display()))?;
    let mut text =
        format!("     Running {} ({:.1} s)\n", suite.name, began.elapsed().as_secs_f64()).into_bytes();
    text.extend(&ended.stdout);
    text.extend(&ended.stderr);
    let mut totals = Totals::default();
    String::from_utf8_lossy(&ended.stdout).lines().for_each(|line| totals.add(line));
    Ok((totals.with_crash(ended.status), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, test: bool) -> Value {
        serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": "/w/tests/Cargo.toml", "target": { "name": name },
            "profile": { "test": test }, "executable": if test { Some(format!("/t/{name}-1")) } else { None },
        })
    }

    #[test]
    fn test_programs_are_found_among_what_cargo_says_and_the_longest_come_first() {
        let said = [artifact("gate", true), artifact("serde", false), artifact("cluster", true), Value::Null];
        let found = longest_first(suites(&said));
        assert_eq!(found.iter().map(|suite| suite.name.as_str()).collect::<Vec<_>>(), ["cluster", "gate"]);
        assert_eq!(found[1].package, Path::new("/w/tests"));
    }

    #[test]
    fn results_of_all_lanes_are_added_up_and_a_program_without_a_result_is_a_failure() {
        let suite = |name: &str, program: &str| Suite {
            name: name.to_owned(),
            executable: program.into(),
            package: "/".into(),
        };
        let word = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured";
        let mut shown = Vec::new();
        let jobs: Vec<LaneJob<'_>> = vec![Box::new(|| Ok((Totals::of(5, 0), b"said by a job".to_vec())))];
        let programs = [suite("a", "echo"), suite("b", "false"), suite("c", "echo")];
        let (totals, failed) = in_lanes(programs.to_vec().into(), jobs, &[word], &mut shown).unwrap();
        assert_eq!(failed, [], "no test is named");
        assert_eq!(totals.to_string(), "9 passed, 1 failed, 2 skipped");
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("Running b (") && shown.contains("said by a job"));
    }

    #[test]
    fn a_program_that_needs_no_other_binary_runs_early_and_only_once() {
        let built = |name: &str, package: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": format!("{package}/Cargo.toml"), "target": { "name": name },
                "profile": { "test": true }, "executable": "echo",
            })
        };
        // The directories must exist, because a program is started in that of its package.
        let folder = std::env::temp_dir().join(format!("suites-{}", std::process::id())).join(OF_SUITES);
        std::fs::create_dir_all(&folder).unwrap();
        let messages = [built("unit", "/"), built("cluster", folder.to_str().unwrap())];
        let (sender, receiver) = std::sync::mpsc::channel();
        messages.iter().for_each(|message| sender.send(message.clone()).unwrap());
        drop(sender);
        let word = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        let early = run_early(&receiver, &[word]).unwrap();
        assert_eq!(early.iter().map(|ended| ended.suite.name.as_str()).collect::<Vec<_>>(), ["unit"]);
        let mut shown = Vec::new();
        let totals = run(&messages, early, Vec::new(), &[word], &mut shown).unwrap();
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        assert_eq!(totals, Totals::of(4, 0));
        let shown = String::from_utf8_lossy(&shown);
        assert_eq!((shown.matches("Running unit").count(), shown.matches("Running cluster").count()), (1, 1));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_and_counts_as_a_failure() {
        let suite = Suite { name: "endless".to_owned(), executable: "sleep".into(), package: "/".into() };
        let (totals, text) = one(&suite, &["600"], SuitePriority::Usual, "0.1s").unwrap();
        assert_eq!(totals, Totals::of(0, 1));
        assert!(String::from_utf8_lossy(&text).contains("Running endless ("));
    }

    #[test]
    fn failed_tests_are_found_by_name_in_what_a_program_prints() {
        let text = b"test a::b ... ok\ntest a::c ... FAILED\n\xff\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(failures(text).collect::<Vec<_>>(), ["a::c"]);
    }
}
