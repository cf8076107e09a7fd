//! What the run is at, on one line of the terminal; nothing where nobody watches.

use std::io::{IsTerminal as _, Write as _, stderr};

/// Shows a line in place of the last one.
pub(crate) fn show(what: &str) {
    let mut out = stderr();
    if out.is_terminal() {
        let _shown = write!(out, "\r\x1b[Kbench: {what}").and_then(|()| out.flush());
    }
}

/// Takes the line away.
pub(crate) fn clear() {
    let mut out = stderr();
    if out.is_terminal() {
        let _shown = write!(out, "\r\x1b[K").and_then(|()| out.flush());
    }
}
