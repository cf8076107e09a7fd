//! The conversation of guest and host: the script that a guest starts with (`init.sh`), and the reader of its serial console.
//!
//! Lines of the script begin with `vm: `; all other lines are of the suites and the kernel.

use std::path::Path;

use crate::test::Totals;

/// The expectation of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The program loads, and the suites pass.
    Suites,
    /// The program loads; nothing else is checked.
    Loads,
    /// The program loads, a daemon is killed and started again, and a client gets its pages through SYN cookies.
    Short,
    /// The binary refuses with its sentence and exit code 5.
    Refusal,
}

impl Expectation {
    /// Returns what a kernel must do: `asked`, or refusal if it is below the floor.
    pub(super) fn of(release: &str, floor: (u32, u32), asked: Self) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < floor { Self::Refusal } else { asked }
    }

    /// Returns the word on the kernel's command line, from where it reaches the script's environment.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Suites => "suites",
            Self::Loads => "loads",
            Self::Short => "short",
            Self::Refusal => "refusal",
        }
    }
}

/// The arguments that make the program with the suites only load the kernel programs, and print the instructions that the verifier looked at.
pub(super) const LOADING: [&str; 3] =
    ["object::the_kernel_accepts_all_programs_far_from_its_complexity_limit", "--exact", "--nocapture"];
/// The variable that says that the verified instructions are being recorded, and not compared with the record.
pub(super) const RECORDING: &str = "RECORDING";
/// A further word on the command line: only boot, to see whether KVM works.
pub(super) const PROBE: &str = "probe";
const BOOTED: &str = "kernel ";
const DONE: &str = "done";
/// The exit code for "the kernel cannot do it".
const CANNOT: &str = "5";

/// The names of the files in a guest.
pub(super) struct Guest<'a> {
    /// The test program whose modules are suites.
    pub(super) program: &'a str,
    pub(super) suites: &'a [&'a str],
    /// Daemons of earlier commits: one with the map layout of this commit, and one with another.
    pub(super) earlier: [&'a str; 2],
    /// The manifest directory that cargo would set for the test program.
    pub(super) manifest_dir: &'a Path,
}

impl Guest<'_> {
    /// Returns the script that is the guest's first process.
    pub(super) fn init_script(&self) -> String {
        let ([same, other], suites, loading) = (self.earlier, self.suites.join(" "), LOADING.join(" "));
        let (program, manifest_dir) = (self.program, crate::setup::quoted(self.manifest_dir));
        format!(
            "#!/bin/busybox sh\nPROGRAM={program} LOADING='{loading}' SUITES='{suites}' SAME_LAYOUT={same} OTHER_LAYOUT={other}\n\
             CARGO_MANIFEST_DIR={manifest_dir}\n{}",
            include_str!("init.sh")
        )
    }
}

/// Returns the output of loading the programs on this machine in the form of a guest's console.
pub(super) fn as_of_a_guest(release: &str, said: &str, code: i32) -> String {
    format!(
        "vm: {BOOTED}{release}\nvm: suite object begins\n{said}\nvm: suite object ended with {code}\nvm: {DONE}\n"
    )
}

/// The results read from a console.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    /// The guest's `uname -r`; `None` if it never came up.
    pub(super) booted: Option<String>,
    /// Whether the guest reached its end.
    pub(super) finished: bool,
    /// The totals by suite, in the order in which they ran.
    pub(super) suites: Vec<(String, Totals)>,
    /// Lines for the record: kernel series, program, verified instructions, bytes of stack.
    pub(super) verified: Vec<String>,
    /// The message of the binary, if it is expected to refuse.
    pub(super) refusal: Option<String>,
    /// The first test or suite that failed, or its message.
    pub(super) complaint: Option<String>,
}

impl Results {
    pub(super) fn read(console: &str, expectation: Expectation) -> Self {
        let mut results = Self::default();
        let mut running: Option<(String, Totals)> = None;
        let mut lines = console.lines().map(|line| line.trim_end_matches('\r')).peekable();
        while let Some(line) = lines.next() {
            if let Some(own) = line.strip_prefix("vm: ") {
                results.own_line(own, &mut running, expectation);
            } else if let Some((_, totals)) = &mut running {
                totals.add(line);
                results.verified.extend(verified(line));
                if line.contains(" panicked at ") {
                    let said = lines.peek().map_or("", |next| next.trim());
                    results.complaint.get_or_insert_with(|| said.to_owned());
                }
            }
        }
        // A suite that never ended counts as failed: the kernel crashed, or the time was over.
        if let Some((name, mut totals)) = running {
            totals.failed += 1;
            results.complaint.get_or_insert_with(|| format!("suite {name} did not end"));
            results.suites.push((name, totals));
        }
        results
    }

    fn own_line(&mut self, line: &str, running: &mut Option<(String, Totals)>, expectation: Expectation) {
        if let Some(release) = line.strip_prefix(BOOTED) {
            self.booted = Some(release.to_owned());
        } else if line == DONE {
            self.finished = true;
        } else if let Some(said) = line.strip_prefix("said ") {
            // The last line counts: on a slow machine the daemon prints its progress before it finds that it cannot go on.
            self.refusal = Some(said.to_owned());
        } else if let Some(name) = line.strip_prefix("suite ").and_then(|rest| rest.strip_suffix(" begins")) {
            *running = Some((name.to_owned(), Totals::default()));
        } else if let Some((_, code)) = line.rsplit_once(" ended with ") {
            let Some((name, mut totals)) = running.take() else { return };
            let good = match expectation {
                Expectation::Suites | Expectation::Loads | Expectation::Short => code == "0",
                Expectation::Refusal => {
                    code == CANNOT && self.refusal.as_deref().is_some_and(is_our_sentence)
                }
            };
            // This is a suite with a single check, or one that crashed before it could count.
            if good && totals == Totals::default() {
                totals.passed = 1;
            }
            if !good && totals.failed == 0 {
                totals.failed = 1;
                self.complaint.get_or_insert_with(|| format!("{name} ended with exit code {code}"));
            }
            self.suites.push((name, totals));
        }
    }

    pub(super) fn loaded(&self) -> bool {
        !self.verified.is_empty()
    }

    /// Returns the instructions that the verifier looked at in the main program.
    pub(super) fn verified_instructions(&self) -> Option<u64> {
        let of_main = |line: &String| {
            let mut words = line.split(' ').skip(1);
            if words.next() == Some("ratelimit") { words.next()?.parse().ok() } else { None }
        };
        self.verified.iter().find_map(of_main)
    }
}

fn is_our_sentence(said: &str) -> bool {
    said.starts_with("needs kernel 6.1 or newer, this is ")
}

/// Finds the record in a line with `verified: 6.1 ratelimit 401429 448`, wherever it is in the line.
fn verified(line: &str) -> Option<String> {
    let (_, record) = line.split_once("verified: ")?;
    (record.split(' ').count() == 4).then(|| record.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "SeaBIOS\r\n\r\nvm: kernel 6.1.0-54-cloud-amd64\r\nvm: suite object begins\r\n\
        test a ... verified: 6.1 ratelimit 50320 448\r\nverified: 6.1 prove 40000 416\r\nok\r\n\
        test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured\r\nvm: suite object ended with 0\r\n\
        vm: suite daemon begins\r\nvm: suite daemon ended with 0\r\nvm: done\r\n";

    fn counts(results: &Results) -> Vec<(&str, u64, u64)> {
        results.suites.iter().map(|(name, t)| (&name[..], t.passed, t.failed)).collect()
    }

    #[test]
    fn a_good_console_gives_release_suites_and_verified_instructions() {
        let results = Results::read(GOOD, Expectation::Suites);
        assert_eq!(results.booted.as_deref(), Some("6.1.0-54-cloud-amd64"));
        assert!(results.finished && results.loaded());
        assert_eq!(results.verified_instructions(), Some(50_320));
        assert_eq!(results.verified, ["6.1 ratelimit 50320 448", "6.1 prove 40000 416"]);
        assert_eq!(counts(&results), [("object", 5, 0), ("daemon", 1, 0)]);
        assert_eq!(results.complaint, None);
    }

    #[test]
    fn a_guest_that_stops_in_a_suite_has_failed_it() {
        let (half, _) = GOOD.split_once("vm: suite object ended").unwrap();
        let results = Results::read(half, Expectation::Suites);
        assert!(!results.finished);
        assert_eq!(counts(&results), [("object", 5, 1)]);
        assert_eq!(results.complaint.as_deref(), Some("suite object did not end"));
    }

    #[test]
    fn a_failing_suite_is_reported_with_its_first_words() {
        let console = "vm: suite verdicts begins\n\nthread 'x' (1) panicked at tests/src/loaded.rs:44:33:\n\
            load the program: refused\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n\
            vm: suite verdicts ended with 101\n";
        let results = Results::read(console, Expectation::Suites);
        assert_eq!(counts(&results), [("verdicts", 1, 2)]);
        assert_eq!(results.complaint.as_deref(), Some("load the program: refused"));
    }

    #[test]
    fn a_suite_that_crashes_without_a_result_counts_as_one_failure() {
        let console = "vm: suite cpus begins\nvm: suite cpus ended with 139\n";
        assert_eq!(counts(&Results::read(console, Expectation::Suites)), [("cpus", 0, 1)]);
    }

    #[test]
    fn a_refusal_takes_both_the_sentence_and_the_exit_code() {
        let console = |said: &str, code: u32| {
            format!(
                "vm: suite refusal begins\nvm: said starting for 1 s\nvm: said {said}\nvm: suite refusal ended with {code}\n"
            )
        };
        let read = |console: &str| counts(&Results::read(console, Expectation::Refusal))[0].1;
        let sentence = "needs kernel 6.1 or newer, this is 5.10.0-46-cloud-amd64";
        assert_eq!(read(&console(sentence, 5)), 1);
        assert_eq!(read(&console(sentence, 1)), 0);
        assert_eq!(read(&console("Invalid argument (os error 22)", 5)), 0);
    }

    #[test]
    fn kernels_below_the_floor_are_expected_to_be_refused() {
        let of = |release| Expectation::of(release, (6, 1), Expectation::Suites);
        assert_eq!(of("5.10.0-46-cloud-amd64"), Expectation::Refusal);
        assert_eq!(of("6.0.19"), Expectation::Refusal);
        assert_eq!(of("6.1.0-54-cloud-amd64"), Expectation::Suites);
        let loads = |release| Expectation::of(release, (6, 1), Expectation::Loads);
        assert_eq!((loads("5.10.0"), loads("6.1.0")), (Expectation::Refusal, Expectation::Loads));
    }

    #[test]
    fn what_is_loaded_outside_of_a_guest_is_read_like_a_guest() {
        let said =
            "test a ... verified: 6.18 ratelimit 7 448\nok\ntest result: ok. 1 passed; 0 failed; 0 ignored";
        let results = Results::read(&as_of_a_guest("6.18.44", said, 0), Expectation::Loads);
        assert_eq!((results.booted.as_deref(), results.finished), (Some("6.18.44"), true));
        assert_eq!(results.verified, ["6.18 ratelimit 7 448"]);
        assert_eq!(counts(&results), [("object", 1, 0)]);
    }
}
