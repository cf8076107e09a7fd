//! What a host asks the store about one key of requests, and what it is told.

use super::exchange::Entry;
use crate::meter::Meter;

/// What a host asks about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The entry about the host's lease. A sequence of 0 is no entry.
    pub lease: Entry,
    /// How long the lease lasts that the store grants, in microseconds.
    pub life_us: u64,
    /// Units that are to be charged now, or not at all.
    pub spend: u64,
    /// Units that must be left after the charge, and that are not leased.
    pub reserved: u64,
    /// How long the request would wait for units that are not there yet, in microseconds.
    pub patience_us: u64,
    /// Units that were charged and not used.
    pub refund: u64,
    /// How many microseconds ago the refunded units were charged; 0 is any time.
    pub age_us: u64,
    /// Whether nothing is charged, because the caller only wants to know.
    pub peek: bool,
}

/// The answer of the store about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the units were charged, or would have been; of a refund: whether anything came back.
    pub spent: bool,
    /// Microseconds until the units are there, or would be; [`crate::meter::NEVER_US`] if never.
    pub wait_us: u64,
    /// Units that are granted beside those that are held.
    pub granted: u64,
    /// Units of the limit `nearest`, below its margin, that are free after all that was charged and granted.
    pub free: u64,
    /// The index of the limit that makes the request wait longest, or has least left.
    pub nearest: usize,
    /// Microseconds until one unit more of the limit `nearest` is left; 0 if all its units are.
    pub more_us: u64,
    /// A bit for each limit that refuses.
    pub violated: u64,
    /// Whether what was charged is above a limit, in its margin.
    pub above: bool,
    /// Units that the host holds according to its row in the store: reported as held, and granted since.
    pub holds: u64,
    /// The number of the last entry that the store has heard of the host.
    pub heard: u64,
}

/// One limit as the store counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedLimit {
    /// The algorithm that counts the limit.
    pub meter: Meter,
    /// Whether requests wait in the limit for their turn.
    pub queue: bool,
    /// Units of a window that are its soft margin.
    pub margin: u64,
    /// Units of a window that are held back at the moment, so that nobody gets them.
    pub held_back: u64,
}

impl CountedLimit {
    /// Makes a limit without a margin, in which nobody waits.
    pub fn plain(meter: Meter) -> Self {
        Self { meter, queue: false, margin: 0, held_back: 0 }
    }
}
