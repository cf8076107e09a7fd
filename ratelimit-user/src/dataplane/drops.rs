//! The ring buffer through which the kernel program reports drop events.

use std::fmt;

use aya::maps::{MapData, RingBuf};
use ratelimit_common::abi::{DropEvent, drop_event::RING_BYTES};

/// The number of drop events in one look, not less than the ring buffer has room for.
const MOST: usize = RING_BYTES / size_of::<DropEvent>();

/// Drop events, in the order in which the program reported them.
pub struct DropRing(RingBuf<MapData>);

impl DropRing {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self(ring)
    }

    /// Returns the drop events that have not been read, a bounded number: under a flood there is always one more.
    pub fn unread(&mut self) -> impl Iterator<Item = DropEvent> {
        // A record of another size is not a drop event.
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
