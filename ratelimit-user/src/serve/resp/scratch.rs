//! Buffers of a thread. A connection borrows a pair of them while it answers one batch, so that ten thousand silent connections need none.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// Bytes that are read from a connection at once.
const READ: usize = 16 * 1024;
/// The least room to read into, behind the bytes that were kept.
const MIN_ROOM: usize = 4 * 1024;
/// Buffers that grew beyond this for one caller are not kept for others.
const MAX_KEPT: usize = 64 * 1024;
/// Pairs that a thread keeps. More pairs are in use only while callers are slow to take their answers.
const SPARES: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// Input and output.
#[derive(Debug)]
pub(super) struct Pair {
    buffer: Vec<u8>,
    filled: usize,
    /// The bytes of the answers.
    pub(super) output: Vec<u8>,
}

/// A pair that goes back to its thread.
#[derive(Debug)]
pub(super) struct ScratchBuffers(Option<Pair>);

impl ScratchBuffers {
    /// Borrows a pair, with room behind `kept` bytes.
    pub(super) fn borrow(kept: usize) -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let new = || Pair { buffer: vec![0; READ], filled: 0, output: Vec::with_capacity(READ) };
        let mut pair = spare.unwrap_or_else(new);
        if pair.buffer.len() < kept + MIN_ROOM {
            pair.buffer.resize((kept + MIN_ROOM).next_power_of_two(), 0);
        }
        pair.filled = 0;
        pair.output.clear();
        Self(Some(pair))
    }
}

impl Pair {
    /// The room behind `kept` bytes.
    pub(super) fn room(&mut self, kept: usize) -> &mut [u8] {
        &mut self.buffer[kept..]
    }

    /// Puts the bytes that were kept in front, and records that `read` bytes were read behind them.
    pub(super) fn fill(&mut self, kept: &[u8], read: usize) {
        self.buffer[..kept.len()].copy_from_slice(kept);
        self.filled = kept.len() + read;
    }

    /// Returns the input, and the buffer for its answers.
    pub(super) fn split(&mut self) -> (&[u8], &mut Vec<u8>) {
        (&self.buffer[..self.filled], &mut self.output)
    }
}

/// The pair is there until the value is dropped.
impl Deref for ScratchBuffers {
    type Target = Pair;

    fn deref(&self) -> &Pair {
        self.0.as_ref().expect("a pair until it is dropped")
    }
}

impl DerefMut for ScratchBuffers {
    fn deref_mut(&mut self) -> &mut Pair {
        self.0.as_mut().expect("a pair until it is dropped")
    }
}

impl Drop for ScratchBuffers {
    fn drop(&mut self) {
        let Some(pair) = self.0.take() else { return };
        if pair.buffer.len() > MAX_KEPT || pair.output.capacity() > MAX_KEPT {
            return;
        }
        // A thread that ends has no use for the pair.
        let _ended = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(pair);
            }
        });
    }
}
