//! Lines of the log about gossip. Their number is bounded: a store with ten thousand blocks does not make ten thousand lines.

use crate::cluster::blocks::{RecordChange, RecordFate};

/// The largest number of lines that one answer may add to the log.
const SAID: usize = 20;

/// Returns the line about a change of a block.
pub(super) fn said(RecordChange { prefix, fate, reason, origin, .. }: &RecordChange) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match fate {
        RecordFate::Holds { left_ms: None } => {
            format!("{origin} blocks {prefix} on all hosts until removed{reason}")
        }
        RecordFate::Holds { left_ms: Some(ms) } => {
            format!("{origin} blocks {prefix} on all hosts for {} s{reason}", ms.div_ceil(1_000))
        }
        RecordFate::Removed => format!("{origin} removed the block of {prefix} on all hosts"),
        RecordFate::RanOut => format!("the block of {prefix} on all hosts by {origin} has run out"),
    }
}

/// The first lines about an answer, and how many more there were.
#[derive(Debug, Default)]
pub(super) struct GossipLog {
    lines: Vec<String>,
    more: usize,
}

impl GossipLog {
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
