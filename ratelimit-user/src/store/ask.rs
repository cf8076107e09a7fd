//! What a host asks the store about one key of requests, and what it is told.

use super::exchange::Entry;
use crate::meter::Meter;

/// What a host asks about one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// About its lease: what it has used and holds, and would like to have. Nothing if the sequence is 0.
    pub lease: Entry,
    /// How long that lease lasts.
    pub life_us: u64,
    /// Units that are to be charged now, or not at all.
    pub spend: u64,
    /// Units that must be left after that, and are not held beforehand.
    pub reserved: u64,
    /// How long whoever spends would wait for units that are not there yet.
    pub patience_us: u64,
    /// Units that were charged and not used.
    pub refund: u64,
    /// How long ago that was; 0 is any time.
    pub age_us: u64,
    /// Whether nothing is to be charged: somebody wants to know.
    pub peek: bool,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether the units were charged, or would have been; of a refund: whether anything came back.
    pub spent: bool,
    /// How long until they are there, or would be; [`crate::meter::NEVER_US`] if never.
    pub wait_us: u64,
    /// Units that may be spent beside those that are held.
    pub granted: u64,
    /// What is free after all that of the limit that is named next, and below its margin.
    pub free: u64,
    /// Which limit makes whoever asks wait longest, or has least left.
    pub nearest: usize,
    /// How long until there is more of that limit; 0 if there is everything.
    pub more_us: u64,
    /// A bit for each limit that refuses.
    pub violated: u64,
    /// Whether what was charged is above a limit, in its margin.
    pub above: bool,
    /// What the host holds by its row in the store, and has not reported as used since the store last heard it.
    pub holds: u64,
    /// The number of the last entry that the store has heard of the host.
    pub heard: u64,
}

/// One limit as the store counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedLimit {
    /// The algorithm that counts the limit.
    pub meter: Meter,
    /// Whether requests wait in it for their turn.
    pub queue: bool,
    /// Units of a window that are above the limit itself.
    pub margin: u64,
    /// Units of a window that nobody gets at the moment.
    pub held_back: u64,
}

impl CountedLimit {
    /// A limit without a margin, in which nobody waits.
    pub fn plain(meter: Meter) -> Self {
        Self { meter, queue: false, margin: 0, held_back: 0 }
    }
}
