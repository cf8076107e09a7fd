//! The ring buffer in which the kernel program tells of refused packets.

use std::fmt;

use aya::maps::{MapData, RingBuf};
use ratelimit_common::abi::{DropEvent, drop_event::RING_BYTES};

/// What fits into the ring buffer, or more.
const MOST: usize = RING_BYTES / size_of::<DropEvent>();

/// Refused packets, in the order in which they were told of.
pub struct DropRing(RingBuf<MapData>);

impl DropRing {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self(ring)
    }

    /// Those that have not been read. Not more than were there: under a flood there is always one more.
    pub fn unread(&mut self) -> impl Iterator<Item = DropEvent> {
        // A record of another size would not be ours.
        let records = std::iter::from_fn(|| self.0.next().map(|record| DropEvent::from_bytes(&record)));
        records.take(MOST).flatten()
    }
}

// aya's ring buffer has no Debug of its own.
impl fmt::Debug for DropRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DropRing").finish_non_exhaustive()
    }
}
