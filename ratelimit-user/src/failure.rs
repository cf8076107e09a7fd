//! A failure for users: one sentence and a documented exit code.

use std::{fmt, io, path::Path};

use serde::{Deserialize, Serialize};

/// The documented exit codes other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitCode {
    /// Ran, and found something.
    Found = 1,
    /// Wrong usage or a bad file.
    Usage = 2,
    /// No daemon reachable.
    NoDaemon = 3,
    /// The process lacks a permission.
    NotPermitted = 4,
    /// The kernel or driver cannot do it.
    Unsupported = 5,
}

/// What went wrong, and the exit code for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The exit code.
    pub code: ExitCode,
    /// The failure, as a sentence.
    pub message: String,
}

impl Failure {
    /// A failure with this code.
    pub fn new(code: ExitCode, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// A failure to write a file: not permitted, or impossible, such as on a full disk.
    pub fn cannot_write(path: &Path, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            _ => ExitCode::Usage,
        };
        Self::new(code, format!("cannot write {}: {error}", path.display()))
    }

    /// The failure with more text behind its sentence.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        Self { message: format!("{}; {more}", self.message), ..self }
    }

    /// A failure by wrong usage or a bad value.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(ExitCode::Usage, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
