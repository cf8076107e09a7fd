//! Findings: the lines of doctor's answer.

use std::fmt;

use serde::Serialize;

/// The grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Everything is in order.
    Ok,
    /// The thing could not be read; the sentence says why.
    Unknown,
    /// Protection works, and is slower or covers less than it could.
    Warn,
    /// Protection does not start, or does not hold.
    Fail,
}

impl Grade {
    /// The word for the grade in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// Whether the finding calls for action.
    pub fn is_found(self) -> bool {
        self >= Self::Warn
    }
}

/// The result of one check of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFinding {
    /// The name of the check: a word that scripts can look for.
    pub check: &'static str,
    /// The interface that was checked, if the check is about one.
    pub interface: Option<String>,
    /// The grade of the finding.
    pub grade: Grade,
    /// The finding, as a sentence.
    pub message: String,
    /// The remedy, as a sentence.
    pub remedy: Option<String>,
}

impl HostFinding {
    /// A finding that everything is in order.
    pub(super) fn ok(check: &'static str, message: impl fmt::Display) -> Self {
        Self::of(check, Grade::Ok, message, None)
    }

    /// A finding that something could not be read, and why.
    pub(super) fn unknown(check: &'static str, why: impl fmt::Display) -> Self {
        Self::of(check, Grade::Unknown, format!("not known: {why}"), None)
    }

    /// A finding that protection is slower or covers less than it could.
    pub(super) fn warn(check: &'static str, message: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::of(check, Grade::Warn, message, Some(remedy.to_string()))
    }

    /// A finding that protection does not start, or does not hold.
    pub(super) fn fail(check: &'static str, message: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self::of(check, Grade::Fail, message, Some(remedy.to_string()))
    }

    /// The finding with the interface that it is about.
    pub(super) fn about(self, interface: &str) -> Self {
        Self { interface: Some(interface.to_owned()), ..self }
    }

    fn of(check: &'static str, grade: Grade, message: impl fmt::Display, remedy: Option<String>) -> Self {
        Self { check, interface: None, grade, message: message.to_string(), remedy }
    }
}
