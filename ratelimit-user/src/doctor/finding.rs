//! One line of the answer.

use std::fmt;

use serde::Serialize;

/// How good a thing is that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The thing is as it should be.
    Ok,
    /// The thing could not be read; the sentence says why.
    Unknown,
    /// Protection works, and is slower or covers less than it could.
    Warn,
    /// Protection does not start, or does not hold.
    Fail,
}

impl Grade {
    /// As text and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// Whether the finding asks for something to be done.
    pub fn is_found(self) -> bool {
        self >= Self::Warn
    }
}

/// The result of one check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFinding {
    /// What was looked at: a word that scripts can look for.
    pub check: &'static str,
    /// The interface that it is about, if it is about one.
    pub interface: Option<String>,
    /// How good it is.
    pub grade: Grade,
    /// The finding, as a sentence.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl HostFinding {
    /// As it should be.
    pub(super) fn ok(check: &'static str, message: impl fmt::Display) -> Self {
        Self::of(check, Grade::Ok, message, None)
    }

    /// Not read, and why.
    pub(super) fn unknown(check: &'static str, why: impl fmt::Display) -> Self {
        Self::of(check, Grade::Unknown, format!("not known: {why}"), None)
    }

    /// Slower or less than it could be.
    pub(super) fn warn(check: &'static str, message: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::of(check, Grade::Warn, message, Some(remedy.to_string()))
    }

    /// In the way of protection.
    pub(super) fn fail(check: &'static str, message: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::of(check, Grade::Fail, message, Some(remedy.to_string()))
    }

    /// About this interface.
    pub(super) fn about(self, interface: &str) -> Self {
        Self { interface: Some(interface.to_owned()), ..self }
    }

    fn of(check: &'static str, grade: Grade, message: impl fmt::Display, remedy: Option<String>) -> Self {
        Self { check, interface: None, grade, message: message.to_string(), remedy }
    }
}
