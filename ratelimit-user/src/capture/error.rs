//! Why a capture cannot be read.

use std::{fmt, io};

use crate::failure::{ExitCode, Failure};

/// Why a file cannot be read any further, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureError {
    file: String,
    /// Bytes before the place; `None` if the file could not be opened.
    offset: Option<u64>,
    what: String,
    code: ExitCode,
}

impl CaptureError {
    /// An error about the content at an offset of the file.
    pub(super) fn at(file: &str, offset: u64, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), offset: Some(offset), what: what.to_string(), code: ExitCode::Usage }
    }

    /// An error of the system when the file was opened.
    pub(super) fn unreadable(file: &str, error: &io::Error) -> Self {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let code = if denied { ExitCode::NotPermitted } else { ExitCode::Usage };
        Self { file: file.to_owned(), offset: None, what: error.to_string(), code }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, what, .. } = self;
        match offset {
            Some(offset) => write!(f, "cannot read the capture {file}: at byte {offset}: {what}"),
            None => write!(f, "cannot read the capture {file}: {what}"),
        }
    }
}

impl std::error::Error for CaptureError {}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        Self::new(error.code, &error)
    }
}
