//! What an operator reads of it. A store with ten thousand blocks does not make ten thousand lines.

use crate::cluster::blocks::{Change, Fate};

/// Lines from one answer.
const SAID: usize = 20;

/// A change that somebody has made.
pub(super) fn said(Change { prefix, fate, reason, origin, .. }: &Change) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match fate {
        Fate::Holds { left_ms: None } => {
            format!("{origin} blocks {prefix} on all hosts until removed{reason}")
        }
        Fate::Holds { left_ms: Some(ms) } => {
            format!("{origin} blocks {prefix} on all hosts for {} s{reason}", ms.div_ceil(1_000))
        }
        Fate::Removed => format!("{origin} removed the block of {prefix} on all hosts"),
        Fate::RanOut => format!("the block of {prefix} on all hosts by {origin} has run out"),
    }
}

/// The first lines, and how many more there were.
#[derive(Debug, Default)]
pub(super) struct Log {
    lines: Vec<String>,
    more: usize,
}

impl Log {
    pub(super) fn say(&mut self, line: String) {
        if self.lines.len() < SAID {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn lines(mut self) -> Vec<String> {
        let more = self.more;
        self.lines.extend((more > 0).then(|| format!("and {more} more of that kind")));
        self.lines
    }
}
