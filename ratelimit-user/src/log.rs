//! The daemon's log: lines on standard error, for the journal to keep.

use std::{
    fmt,
    io::{self, Write as _},
};

/// Something an operator may want to know.
pub(crate) fn info(message: impl fmt::Display) {
    line("", message);
}

/// Something an operator should look at.
pub(crate) fn warning(message: impl fmt::Display) {
    line("warning: ", message);
}

/// Something that did not work.
pub(crate) fn error(message: impl fmt::Display) {
    line("error: ", message);
}

fn line(level: &str, message: impl fmt::Display) {
    // Protection goes on when nobody reads the log any more.
    let _unread = writeln!(io::stderr().lock(), "ratelimit: {level}{message}");
}
