//! Prints the matrix as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::console::{Expectation, Results};
use super::kernel::Kernel;
use super::machine::{Boot, Host};
use crate::test::Totals;

/// The results of one kernel.
pub(super) struct Row {
    kernel: String,
    mode: String,
    expectation: Option<Expectation>,
    seconds: f64,
    results: Results,
    /// What went wrong with the guest itself, whatever its suites reported.
    trouble: Option<String>,
}

impl Row {
    pub(super) fn from_boot(kernel: &Kernel, host: &Host, expectation: Expectation, boot: &Boot) -> Self {
        let row = Self::of(&host.mode().to_string(), expectation, boot);
        let other = row.results.booted.as_ref().filter(|release| **release != kernel.release);
        let trouble = other.map(|release| format!("is {release} when booted")).or(row.trouble);
        Self { kernel: kernel.release.clone(), trouble, ..row }
    }

    /// Makes the row of this machine, on which the programs were loaded.
    pub(super) fn of_this_machine(boot: &Boot) -> Self {
        Self::of("here", Expectation::Loads, boot)
    }

    fn of(mode: &str, expectation: Expectation, boot: &Boot) -> Self {
        let results = Results::read(&boot.console, expectation);
        let last = boot.console.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim();
        let seconds = boot.took.as_secs_f64();
        let trouble = match &results.booted {
            None => Some(format!("did not boot within {seconds:.0} s; its last line: {last}")),
            Some(_) if boot.out_of_time => Some(format!("ended after {seconds:.0} s, its time was up")),
            Some(_) if !results.finished => Some(format!("stopped before its end; its last line: {last}")),
            Some(_) => None,
        };
        let kernel = results.booted.clone().unwrap_or_default();
        Self { kernel, mode: mode.to_owned(), expectation: Some(expectation), seconds, results, trouble }
    }

    pub(super) fn without_kernel(series: &str, why: &anyhow::Error) -> Self {
        Self {
            kernel: series.to_owned(),
            mode: "-".into(),
            expectation: None,
            seconds: 0.0,
            results: Results::default(),
            trouble: Some(format!("{why:#}")),
        }
    }

    /// Returns the lines for the record of verified instructions.
    pub(super) fn verified(&self) -> &[String] {
        &self.results.verified
    }

    /// Returns the totals of this kernel, to add to those of other suites.
    pub(super) fn totals(&self) -> Totals {
        Totals::of(self.passed(), self.failed())
    }

    fn passed(&self) -> u64 {
        self.results.suites.iter().map(|(_, totals)| totals.passed).sum()
    }

    /// Returns the number of failures. A guest in trouble counts as failed, even if none of its tests has.
    pub(super) fn failed(&self) -> u64 {
        let tests: u64 = self.results.suites.iter().map(|(_, totals)| totals.failed).sum();
        tests.max(u64::from(self.trouble.is_some()))
    }

    fn loaded(&self) -> &'static str {
        match (self.results.loaded(), self.expectation) {
            (true, _) => "yes",
            (false, Some(Expectation::Refusal)) if self.failed() == 0 => "refused",
            (false, _) => "no",
        }
    }

    fn suites(&self) -> String {
        let shown = |(name, totals): &(String, Totals)| match totals.failed {
            0 => format!("{name} {}", totals.passed),
            failed => format!("{name} {} ({failed} FAILED)", totals.passed),
        };
        self.results.suites.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    fn cells(&self) -> [String; 7] {
        let verified = self.results.verified_instructions();
        [
            self.kernel.clone(),
            self.mode.clone(),
            self.loaded().into(),
            verified.map_or_else(|| "-".into(), |count| count.to_string()),
            format!("{:.0} s", self.seconds),
            self.suites(),
            self.ending(),
        ]
    }

    fn ending(&self) -> String {
        let words =
            self.trouble.as_ref().or(self.results.complaint.as_ref()).or(self.results.refusal.as_ref());
        words.map_or_else(|| "all suites passed".into(), |words| words.chars().take(160).collect())
    }
}

const HEADINGS: [&str; 7] = ["kernel", "boot", "loaded", "verified", "time", "suites", "ending"];

/// Returns the line about one kernel as soon as it is done. Each cell has its heading, because the widths of the table's columns are not known yet.
pub(super) fn line(row: &Row) -> String {
    let [kernel, rest @ ..] = row.cells();
    let rest = HEADINGS[1..].iter().zip(rest).filter(|(_, cell)| !cell.is_empty());
    let rest: Vec<_> = rest.map(|(heading, cell)| format!("{heading} {cell}")).collect();
    format!("{kernel} is done: {}", rest.join("; "))
}

pub(super) fn text(rows: &[Row]) -> String {
    let mut cells = vec![HEADINGS.map(String::from)];
    cells.extend(rows.iter().map(Row::cells));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &cells {
        let line: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _infallible = writeln!(text, "{}", line.join("  ").trim_end());
    }
    let (passed, failed) = totals(rows);
    let _infallible = writeln!(text, "{passed} passed, {failed} failed");
    text
}

pub(super) fn json(rows: &[Row]) -> Value {
    let kernels = rows.iter().map(|row| {
        let suites = row.results.suites.iter().map(|(name, totals)| {
            (name.clone(), json!({ "passed": totals.passed, "failed": totals.failed }))
        });
        json!({
            "kernel": row.kernel,
            "boot": row.mode,
            "expected": row.expectation.map(Expectation::word),
            "loaded": row.results.loaded(),
            "verified_instructions": row.results.verified_instructions(),
            "seconds": row.seconds,
            "suites": suites.collect::<serde_json::Map<_, _>>(),
            "passed": row.passed(),
            "failed": row.failed(),
            "ending": row.ending(),
        })
    });
    let kernels: Vec<_> = kernels.collect();
    let (passed, failed) = totals(rows);
    json!({ "kernels": kernels, "totals": { "passed": passed, "failed": failed } })
}

fn totals(rows: &[Row]) -> (u64, u64) {
    (rows.iter().map(Row::passed).sum(), rows.iter().map(Row::failed).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(console: &str, expectation: Expectation) -> Row {
        let results = Results::read(console, expectation);
        let trouble = results.booted.is_none().then(|| "did not boot".to_owned());
        Row {
            kernel: "6.1.0-54".into(),
            mode: "emulation".into(),
            expectation: Some(expectation),
            seconds: 61.4,
            results,
            trouble,
        }
    }

    const GOOD: &str = "vm: kernel 6.1.0-54\nvm: suite object begins\nverified: 6.1 ratelimit 7 32\n\
        test result: ok. 5 passed; 0 failed; 0 ignored\nvm: suite object ended with 0\nvm: done\n";
    const OLD: &str = "vm: kernel 5.10.0-46\nvm: suite refusal begins\n\
        vm: said needs kernel 6.1 or newer, this is 5.10.0-46\nvm: suite refusal ended with 5\nvm: done\n";

    #[test]
    fn the_last_line_has_the_totals_of_all_kernels() {
        let rows = [row(GOOD, Expectation::Suites), row(OLD, Expectation::Refusal)];
        let text = text(&rows);
        assert!(
            text.contains("6.1.0-54  emulation  yes      7         61 s  object 5   all suites passed\n"),
            "{text}"
        );
        assert!(text.contains("refused"), "{text}");
        assert!(text.ends_with("this is 5.10.0-46\n6 passed, 0 failed\n"), "{text}");
    }

    #[test]
    fn a_kernel_that_is_done_is_told_in_a_line_that_needs_no_table() {
        assert_eq!(
            line(&row(GOOD, Expectation::Suites)),
            "6.1.0-54 is done: boot emulation; loaded yes; verified 7; time 61 s; suites object 5; ending all suites passed"
        );
        let row = Row::without_kernel("6.1", &anyhow::anyhow!("apt offers no cloud kernel 6.1"));
        assert_eq!(
            line(&row),
            "6.1 is done: boot -; loaded no; verified -; time 0 s; ending apt offers no cloud kernel 6.1"
        );
    }

    #[test]
    fn a_kernel_that_does_not_boot_is_a_failure_and_not_a_skip() {
        let row = row("Kernel panic - not syncing\n", Expectation::Suites);
        assert_eq!((row.passed(), row.failed()), (0, 1));
        let row = Row::without_kernel("6.1", &anyhow::anyhow!("apt offers no cloud kernel 6.1"));
        assert_eq!(row.failed(), 1);
        assert_eq!(row.ending(), "apt offers no cloud kernel 6.1");
    }

    #[test]
    fn json_has_the_same_numbers_by_name() {
        let json = json(&[row(GOOD, Expectation::Suites)]);
        assert_eq!(json["kernels"][0]["suites"]["object"]["passed"], 5);
        assert_eq!(json["kernels"][0]["verified_instructions"], 7);
        assert_eq!(json["totals"], serde_json::json!({ "passed": 5, "failed": 0 }));
    }
}
