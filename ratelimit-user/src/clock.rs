//! The time that decisions are made by: the wall's when it was made, and from then on the monotonic clock's. A wall clock that is set does not
//! refill buckets or open windows; the next start takes it over.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_us: u64,
}

impl Clock {
    /// A clock that shows the wall's time now.
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_us: since.as_micros() as u64 }
    }

    /// Microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.started_us + self.started.elapsed().as_micros() as u64
    }
}
