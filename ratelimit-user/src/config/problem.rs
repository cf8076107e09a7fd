//! The problems of one file, collected while the file is read.

use std::{collections::BTreeSet, fmt, ops::Range};

use super::loaded::{LoadError, Loaded, Problem};
use crate::policy::Policy;

/// Problems shown of one file: who has more has the wrong file.
const SHOWN: usize = 50;

/// What kind of finding it is decides which others it makes worthless. In the order in which they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Not TOML. What the parser then made of the rest of the line is a guess.
    Syntax,
    /// A key or value that means nothing.
    Meaning,
    /// Something that is not there. In a file with broken syntax it may well be there.
    Missing,
}

#[derive(Debug, PartialEq, Eq)]
struct ProblemPlace {
    at: usize,
    kind: Kind,
    message: String,
}

/// Everything found in one file so far.
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

    /// Where keys belong that are often written elsewhere.
    pub(super) fn homes(&self) -> &'static [KeyHome] {
        self.homes
    }

    /// Reports broken TOML syntax.
    pub(super) fn syntax(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Syntax, message: message.to_string() });
    }

    /// Something that makes the policy useless.
    pub(super) fn error(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Meaning, message: message.to_string() });
    }

    /// Something that has to be there and is not.
    pub(super) fn missing(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.errors.push(ProblemPlace { at: at.start, kind: Kind::Missing, message: message.to_string() });
    }

    /// Something that is probably not meant.
    pub(super) fn warning(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        self.warnings.push(ProblemPlace { at: at.start, kind: Kind::Meaning, message: message.to_string() });
    }

    /// Whether the text is TOML at all.
    pub(super) fn broken(&self) -> bool {
        self.errors.iter().any(|finding| finding.kind == Kind::Syntax)
    }

    /// How much is wrong so far.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// The text at a place, with its quotes.
    pub(super) fn source(&self, at: &Range<usize>) -> &'t str {
        self.text.get(at.clone()).unwrap_or_default()
    }

    /// Moves the findings to their places in another text.
    pub(super) fn moved<'o>(self, text: &'o str, place: impl Fn(usize) -> usize) -> Problems<'o>
    where
        't: 'o,
    {
        let there = |finding: ProblemPlace| ProblemPlace { at: place(finding.at), ..finding };
        let Self { file, homes, errors, warnings, .. } = self;
        let errors = errors.into_iter().map(&there).collect();
        Problems { file, text, homes, errors, warnings: warnings.into_iter().map(there).collect() }
    }

    /// What was wrong, where no policy is wanted.
    pub(super) fn only_errors(self) -> LoadError {
        let errors = placed(self.file, self.text, self.errors);
        LoadError::Problems(errors.into_iter().map(|(_, problem)| problem).collect())
    }

    /// The outcome: a policy only if nothing was wrong.
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

/// Lines and columns of all findings, in order of their places: one pass over the text, however many there are.
fn placed(file: &str, text: &str, mut findings: Vec<ProblemPlace>) -> Vec<(Kind, Problem)> {
    // Stable: where two stand at the same place, the parser's first word is the best one.
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
