//! The test programs of the workspace, a few at a time: most of what they do is wait for something to happen.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test::Totals;
use crate::{earlier, tool};

/// Programs that run at once. Each has as many threads as there are CPUs, and some of them flood interfaces.
const LANES: usize = 2;
/// They take longest, so they begin first: nobody waits for them at the end.
const LONGEST: [&str; 4] = ["requests", "daemon", "cluster", "wire"];

/// One test program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suite {
    name: String,
    executable: PathBuf,
    /// The directory of its package, where cargo would start it.
    package: PathBuf,
}

/// Tests that may have failed for the machine's sake. More of them at once are a defect.
const FEW: usize = 3;

/// Runs every test program that cargo says it has built, with these words. What each prints is shown in one piece when it has ended.
/// A few tests that failed are run once more, with the machine to themselves; decision 40 says why.
pub(crate) fn run(built: &[Value], words: &[&str], shown: &mut (impl Write + Send)) -> Result<Totals> {
    let (mut totals, failed) = in_lanes(longest_first(suites(built)), words, shown)?;
    if (1..=FEW).contains(&failed.len()) && totals.failed == failed.len() as u64 {
        for (suite, test) in failed {
            let (again, text) = one(&suite, &["--include-ignored", "--exact", &test])?;
            shown.write_all(&text)?;
            if again.failed == 0 && again.passed == 1 {
                eprintln!("test: {} {test} failed among the others and passed alone: mend it", suite.name);
                totals.passed_again();
            }
        }
    }
    Ok(totals)
}

/// The test programs that cargo says it has built.
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

/// The results of all programs, and each test that failed with its program.
fn in_lanes(
    suites: VecDeque<Suite>,
    words: &[&str],
    shown: &mut (impl Write + Send),
) -> Result<(Totals, Vec<(Suite, String)>)> {
    let waiting = Mutex::new(suites);
    let done = Mutex::new((Totals::default(), Vec::new(), shown));
    std::thread::scope(|scope| {
        let lane = || -> Result<()> {
            loop {
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(suite) = next else { return Ok(()) };
                let (totals, text) = one(&suite, words)?;
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.0.join(&totals);
                done.1.extend(failures(&text).map(|test| (suite.clone(), test)));
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

/// The names in lines such as `test packets::a_name ... FAILED`.
fn failures(text: &[u8]) -> impl Iterator<Item = String> {
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    String::from_utf8_lossy(text).lines().filter_map(name).collect::<Vec<_>>().into_iter()
}

/// Runs one program to its end. One that ends without a result counts as a failure.
fn one(suite: &Suite, words: &[&str]) -> Result<(Totals, Vec<u8>)> {
    let began = Instant::now();
    let mut program = tool::command(&suite.executable);
    program.args(words).current_dir(&suite.package).env("CARGO_MANIFEST_DIR", &suite.package);
    // For the test of an upgrade; built before the suites.
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
        let programs = [suite("a", "echo"), suite("b", "false"), suite("c", "echo")];
        let (totals, failed) = in_lanes(programs.to_vec().into(), &[word], &mut shown).unwrap();
        assert_eq!(failed, [], "no test is named");
        assert_eq!(totals.to_string(), "4 passed, 1 failed, 2 skipped");
        assert!(String::from_utf8_lossy(&shown).contains("Running b ("));
    }

    #[test]
    fn failed_tests_are_found_by_name_in_what_a_program_prints() {
        let text = b"test a::b ... ok\ntest a::c ... FAILED\n\xff\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(failures(text).collect::<Vec<_>>(), ["a::c"]);
    }
}
