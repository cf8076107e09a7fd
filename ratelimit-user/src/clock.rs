//! The wall clock, and the clock that decisions are made by.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time since 1970 by the wall clock; zero if the wall clock is set to an earlier time.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Milliseconds since 1970 by the wall clock.
pub(crate) fn unix_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// The clock that decisions are made by: it starts at the wall clock's time and continues with the monotonic clock. Setting the wall clock neither refills
/// buckets nor opens windows; the next start of the process takes over the new time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_us: u64,
}

impl Clock {
    /// A clock that starts at the wall clock's time.
    pub fn start() -> Self {
        Self { started: Instant::now(), started_us: since_1970().as_micros() as u64 }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.started_us + self.started.elapsed().as_micros() as u64
    }
}
