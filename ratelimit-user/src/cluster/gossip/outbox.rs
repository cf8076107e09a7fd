//! The outbox: edits of this host that the store has not answered yet, in their order.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{
    cluster::blocks::{BlockRecord, HostBlock},
    compile::lists::Prefix,
};

/// The largest number of edits that wait: a store that is away for long must not fill this host's memory.
const WAITING: usize = 20_000;
/// The largest number of edits in one call, which take the server a few milliseconds.
const EDITS_IN_A_CALL: usize = 200;

/// One edit. Every call repeats it until the store answers; the store counts it once.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// The number of the edit, from 1; it goes on across daemons of one incarnation.
    pub(super) sequence: u64,
    pub(super) prefix: Prefix,
    /// The new block; `None` if the edit removes it.
    pub(super) block: Option<BlockRecord>,
    /// Whether the edit gives back what the store lost, and so counts only if the store has heard nothing of the prefix since.
    pub(super) restores: bool,
}

/// An edit as it is saved on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingEdit {
    /// The number of the edit.
    pub sequence: u64,
    /// The prefix that is edited.
    pub prefix: String,
    /// The end, the reason and the host of the block; `None` if the edit removes it.
    pub block: Option<(Option<u64>, String, String)>,
    /// Whether the edit gives back what the store lost, and so counts only if the store has heard nothing of the prefix since.
    pub restores: bool,
}

impl WaitingEdit {
    fn of(edit: &Edit) -> Self {
        let block = edit.block.as_ref();
        Self {
            sequence: edit.sequence,
            prefix: edit.prefix.to_string(),
            block: block.map(|block| {
                (block.host_block.until_ns, block.host_block.reason.clone(), block.origin.clone())
            }),
            restores: edit.restores,
        }
    }

    /// Reads an edit back; `None` if its text is no prefix.
    fn read(&self) -> Option<Edit> {
        let block = self.block.clone().map(|(until_ns, reason, origin)| BlockRecord {
            host_block: HostBlock { until_ns, reason },
            origin,
        });
        let prefix = self.prefix.parse().ok()?;
        Some(Edit { sequence: self.sequence, prefix, block, restores: self.restores })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    edits: VecDeque<Edit>,
    last: u64,
}

impl Outbox {
    /// Takes over the edits that an earlier daemon left. They keep their numbers, by which the store knows the edits that it has carried out already.
    pub(super) fn resumed(waiting: &[WaitingEdit], last: u64) -> Self {
        let mut edits: Vec<Edit> = waiting.iter().filter_map(WaitingEdit::read).collect();
        edits.sort_by_key(|edit| edit.sequence);
        edits.dedup_by_key(|edit| edit.sequence);
        let last = edits.last().map_or(last, |edit| edit.sequence.max(last));
        Self { edits: edits.into(), last }
    }

    /// Returns the number of the last edit.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns all edits that wait for an answer.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter()
    }

    /// Returns the edits with numbers above `sequence`, in the form that is saved.
    pub(super) fn after(&self, sequence: u64) -> impl Iterator<Item = WaitingEdit> {
        let first = self.edits.partition_point(|edit| edit.sequence <= sequence);
        self.edits.range(first..).map(WaitingEdit::of)
    }

    /// Returns the number up to which every edit has been answered.
    pub(super) fn done(&self) -> u64 {
        self.edits.front().map_or(self.last, |edit| edit.sequence - 1)
    }

    /// Returns how many more edits there is room for.
    pub(super) fn room(&self) -> usize {
        WAITING.saturating_sub(self.edits.len())
    }

    pub(super) fn len(&self) -> usize {
        self.edits.len()
    }

    /// Adds an edit and returns its number.
    pub(super) fn push(&mut self, prefix: Prefix, block: Option<BlockRecord>, restores: bool) -> u64 {
        self.last += 1;
        self.edits.push_back(Edit { sequence: self.last, prefix, block, restores });
        self.last
    }

    /// Returns the edits of the next call: always the first ones, so that no number is left out.
    pub(super) fn next_edits(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter().take(EDITS_IN_A_CALL)
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Edit> {
        self.edits.iter().find(|edit| edit.sequence == sequence)
    }

    /// Forgets the edits up to a number, which the store has answered.
    pub(super) fn answered(&mut self, sequence: u64) {
        while self.edits.front().is_some_and(|edit| edit.sequence <= sequence) {
            self.edits.pop_front();
        }
    }
}
