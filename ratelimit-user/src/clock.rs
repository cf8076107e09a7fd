//! The wall clock, and the clock that decisions are made by.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the wall clock says now, as the time since 1970. A wall clock that is set to a time before 1970 counts as 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What the wall clock says now, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// The clock that decisions are made by: it starts at the wall clock's time and goes on with the monotonic clock. Setting the wall clock neither refills
/// buckets nor opens windows; the next start of the process takes the new time over.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_us: u64,
}

impl Clock {
    /// A clock that shows the wall's time now.
    pub fn start() -> Self {
        Self { started: Instant::now(), started_us: since_1970().as_micros() as u64 }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.started_us + self.started.elapsed().as_micros() as u64
    }
}
