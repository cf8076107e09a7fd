//! A problem at a place in a file, and the pile they are collected on.

use std::{fmt, ops::Range};

use super::{LoadError, Loaded};
use crate::policy::Policy;

/// A problem, or a warning, at its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// Everything found in one file so far.
#[derive(Debug)]
pub(super) struct Problems<'t> {
    file: &'t str,
    text: &'t str,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'t> Problems<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self { file, text, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Something that makes the policy useless.
    pub(super) fn error(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        let problem = self.problem(at.start, message);
        self.errors.push(problem);
    }

    /// Something that is probably not meant.
    pub(super) fn warning(&mut self, at: &Range<usize>, message: impl fmt::Display) {
        let problem = self.problem(at.start, message);
        self.warnings.push(problem);
    }

    /// The text at a place, with its quotes.
    pub(super) fn source(&self, at: &Range<usize>) -> &'t str {
        self.text.get(at.clone()).unwrap_or_default()
    }

    /// The outcome: a policy only if nothing was wrong.
    pub(super) fn finish(mut self, policy: Option<Policy>) -> Result<Loaded, LoadError> {
        self.errors.sort();
        self.errors.dedup();
        match policy {
            Some(policy) if self.errors.is_empty() => Ok(Loaded { policy, warnings: self.warnings }),
            _ => Err(LoadError::Problems(self.errors)),
        }
    }

    fn problem(&self, at: usize, message: impl fmt::Display) -> Problem {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Problem {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.to_string(),
        }
    }
}
