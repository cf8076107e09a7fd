//! The record of the instructions that the verifier looks at in each program on each kernel: `tests/verified.txt`.
//!
//! A line has the kernel series, the program, verified instructions, and bytes of stack along the deepest chain of calls. The suite `object` compares the
//! running kernel with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace;

/// Replaces the lines of the kernels that were run, keeps those of others, and returns the path of the file.
pub(super) fn write(measured: &[String]) -> Result<PathBuf> {
    let path = workspace::root().join("tests").join("verified.txt");
    let before = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(&path, merged(&before, measured))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Merges lines, sorted by kernel number and program.
fn merged(before: &str, measured: &[String]) -> String {
    let lines = before.lines().chain(measured.iter().map(String::as_str));
    let by_program: BTreeMap<(Vec<u64>, &str), &str> =
        lines.filter_map(|line| Some((subject(line)?, line))).collect();
    by_program.into_values().map(|line| format!("{line}\n")).collect()
}

/// Returns the kernel and the program that a line is about.
fn subject(line: &str) -> Option<(Vec<u64>, &str)> {
    let (series, rest) = line.split_once(' ')?;
    let (program, _) = rest.split_once(' ')?;
    Some((series.split('.').filter_map(|number| number.parse().ok()).collect(), program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_were_run_have_new_lines_and_others_keep_theirs() {
        let before = "6.1 mark 10 96\n6.1 ratelimit 100 448\n6.12 ratelimit 90 448\n";
        let measured = ["6.1 ratelimit 105 416".to_owned(), "6.2 ratelimit 1 32".to_owned()];
        assert_eq!(
            merged(before, &measured),
            "6.1 mark 10 96\n6.1 ratelimit 105 416\n6.2 ratelimit 1 32\n6.12 ratelimit 90 448\n"
        );
    }
}
