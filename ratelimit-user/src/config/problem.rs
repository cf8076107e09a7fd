//! Collects the problems of one file while the file is read.

use std::{collections::BTreeSet, fmt, ops::Range};

use super::loaded::{LoadError, Loaded, Problem};
use crate::policy::Policy;

/// Problems shown of one file; a file with more is probably not a policy.
const SHOWN: usize = 50;

/// The kind of a problem. It decides which other problems are mere consequences. Sorted: the first of a place counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Broken TOML. What the parser made of the rest of the line is a guess.
    Syntax,
    /// An invalid key or value.
    Meaning,
    /// A missing table or key. In a file with broken syntax it may well be there.
    Missing,
}

#[derive(Debug, PartialEq, Eq)]
struct ProblemPlace {
    at: usize,
    kind: Kind,
    message: String,
}

/// All problems found in one file so far.
#[derive(Debug)]
pub(super) struct Problems<'t> {
    file: &'t str,
    text: &'t str,
    homes: &'static [KeyHome],
    errors: Vec<ProblemPlace>,
    warnings: Vec<ProblemPlace>,
}

/// Keys that are often written below the wrong table, and where they belong.
#[derive(Debug)]
pub(super) struct KeyHome {
    pub(super) keys: &'static [&'static str],
    pub(super) place: &'static str,
}

impl<'t> Problems<'t> {
    pub(super) fn new(file: &'t str, text: &'t str, homes: &'static [KeyHome]) -> Self {
        Self { file, text, homes, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Keys that are often written below the wrong table.
    pub(super) fn homes(&self) -> &'static [KeyHome] {
        self.homes
    }

    /// Reports broken TOML syntax.
    pub(super) fn syntax(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Syntax, message: message.to_string() });
    }

    /// Reports a problem that makes the policy unusable.
    pub(super) fn error(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Meaning, message: message.to_string() });
    }

    /// Reports a missing table or key.
    pub(super) fn missing(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Missing, message: message.to_string() });
    }

    /// Reports something that is allowed but probably not intended.
    pub(super) fn warning(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.warnings.push(ProblemPlace { at: at.start, kind: Kind::Meaning, message: message.to_string() });
    }

    /// Whether the text has broken TOML syntax.
    pub(super) fn broken(&self) -> bool {
        self.errors.iter().any(|finding| finding.kind == Kind::Syntax)
    }

    /// The number of errors so far.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// The source text at a place, with quotes.
    pub(super) fn source(&self, at: &Range<usize>) -> &'t str {
        self.text.get(at.clone()).unwrap_or_default()
    }

    /// Translates the places of all problems to another text.
    pub(super) fn moved<'o>(self, text: &'o str, place: impl Fn(usize) -> usize) -> Problems<'o>
    where
        't: 'o,
    {
        let there = |finding: ProblemPlace| ProblemPlace { at: place(finding.at), ..finding };
        let Self { file, homes, errors, warnings, .. } = self;
        let errors = errors.into_iter().map(&there).collect();
        Problems { file, text, homes, errors, warnings: warnings.into_iter().map(there).collect() }
    }

    /// The errors alone, for a caller that needs no policy.
    pub(super) fn only_errors(self) -> LoadError {
        let errors = placed(self.file, self.text, self.errors);
        LoadError::Problems(errors.into_iter().map(|(_, problem)| problem).collect())
    }

    /// The result: a policy if there are no errors.
    pub(super) fn finish(self, policy: Option<Policy>) -> Result<Loaded, LoadError> {
        let broken = self.broken();
        let errors = without_consequences(placed(self.file, self.text, self.errors), broken);
        match policy {
            Some(policy) if errors.is_empty() => {
                let warnings = placed(self.file, self.text, self.warnings);
                Ok(Loaded { policy, warnings: warnings.into_iter().map(|(_, warning)| warning).collect() })
            }
            _ => Err(LoadError::Problems(shortened(errors))),
        }
    }
}

/// Lines and columns of all problems, sorted by place, in one pass over the text.
fn placed(file: &str, text: &str, mut findings: Vec<ProblemPlace>) -> Vec<(Kind, Problem)> {
    // A stable sort: of two problems at one place, the parser's first is the most precise.
    findings.sort_by_key(|finding| (finding.at, finding.kind));
    findings.dedup();
    let (mut line, mut column, mut passed) = (1, 1, 0);
    let place = |finding: ProblemPlace| {
        let between = text.get(passed..finding.at).unwrap_or_default();
        passed += between.len();
        for c in between.chars() {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        (finding.kind, Problem { file: file.to_owned(), line, column, message: finding.message })
    };
    findings.into_iter().map(place).collect()
}

/// Drops what only follows from broken syntax: of a line that is not TOML its first error remains, and in a file that
/// is not TOML nothing counts as missing.
fn without_consequences(mut found: Vec<(Kind, Problem)>, broken: bool) -> Vec<Problem> {
    if broken {
        let lines = found.iter().filter(|(kind, _)| *kind == Kind::Syntax).map(|(_, problem)| problem.line);
        let mut unreported: BTreeSet<usize> = lines.collect();
        let broken_lines = unreported.clone();
        found.retain(|(kind, problem)| match kind {
            Kind::Syntax => unreported.remove(&problem.line),
            Kind::Meaning => !broken_lines.contains(&problem.line),
            Kind::Missing => false,
        });
    }
    found.into_iter().map(|(_, problem)| problem).collect()
}

fn shortened(mut errors: Vec<Problem>) -> Vec<Problem> {
    let more = errors.len().saturating_sub(SHOWN);
    if more > 0 {
        errors.truncate(SHOWN);
        let first_hidden = errors.last().cloned();
        errors.extend(
            first_hidden.map(|last| Problem { message: format!("and {more} more from here on"), ..last }),
        );
    }
    errors
}
