//! The result of reading a policy file.

use std::fmt;

use crate::{failure::Failure, policy::Policy};

/// A policy and its warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The policy of the file.
    pub policy: Policy,
    /// Warnings: what is allowed but probably not intended.
    pub warnings: Vec<Problem>,
}

/// Why a policy file gives no policy.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read, or is not UTF-8.
    Unreadable {
        /// Name of the file.
        file: String,
        /// Why the file cannot be read.
        reason: String,
    },
    /// The file has problems: all of them, in order.
    Problems(Vec<Problem>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, reason } => write!(f, "cannot read the policy {file}: {reason}"),
            Self::Problems(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::usage(error)
    }
}

/// A problem or warning with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The problem, as a sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}
