//! Edits of this host that the store has not answered yet, in their order.

use std::collections::VecDeque;

use crate::{cluster::blocks::Block, compile::lists::Prefix};

/// Edits that wait at most: a store that is away for long must not fill this host's memory.
const WAITING: usize = 20_000;
/// Edits in one call: a few milliseconds of the server's time.
const TOLD: usize = 200;

/// One edit. It is told with every call until there is an answer, and counts once.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// Counts the edits of this daemon, from 1.
    pub(super) sequence: u64,
    pub(super) prefix: Prefix,
    /// None: it is removed.
    pub(super) block: Option<Block>,
    /// It only counts if the store has heard nothing of the prefix since it lost something.
    pub(super) restores: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    edits: VecDeque<Edit>,
    last: u64,
}

impl Outbox {
    /// How many more there may be.
    pub(super) fn room(&self) -> usize {
        WAITING.saturating_sub(self.edits.len())
    }

    pub(super) fn len(&self) -> usize {
        self.edits.len()
    }

    /// Its number.
    pub(super) fn push(&mut self, prefix: Prefix, block: Option<Block>, restores: bool) -> u64 {
        self.last += 1;
        self.edits.push_back(Edit { sequence: self.last, prefix, block, restores });
        self.last
    }

    /// What the next call says: always the first ones, so that no number is left out.
    pub(super) fn told(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter().take(TOLD)
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Edit> {
        self.edits.iter().find(|edit| edit.sequence == sequence)
    }

    /// Those up to this number are done.
    pub(super) fn answered(&mut self, sequence: u64) {
        while self.edits.front().is_some_and(|edit| edit.sequence <= sequence) {
            self.edits.pop_front();
        }
    }
}
