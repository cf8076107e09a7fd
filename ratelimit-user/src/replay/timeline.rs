//! Turns the times of a capture into the packet path's clock.

use crate::moment;

/// Where the clock of a replay begins, in nanoseconds: far enough from 0 that every bucket is full.
const START_NS: u64 = 86_400_000_000_000;
/// The longest time in nanoseconds from the first packet to another; later times are taken to be wrong, because the packet path's time words wrap after two years.
const LONGEST_NS: u64 = 365 * 86_400_000_000_000;

/// Turns packet times into a clock that never goes back. CPUs that capture at once write packets a little out of order.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayTimeline {
    first: Option<u64>,
    latest: u64,
    /// Packets with an earlier time than a packet before them.
    behind: u64,
}

/// The error for a packet with a time more than a year after the first one's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a packet of {at} is more than a year after the first, of {first}; cut the capture where its times are wrong"
)]
pub struct TooFar {
    first: String,
    at: String,
}

impl ReplayTimeline {
    /// The clock's time for a packet with this time.
    pub fn now_ns(&mut self, unix_ns: u64) -> Result<u64, TooFar> {
        let first = *self.first.get_or_insert(unix_ns);
        if unix_ns.saturating_sub(first) > LONGEST_NS {
            let [first, at] = [first, unix_ns].map(|ns| moment::utc(ns / 1_000_000_000));
            return Err(TooFar { first, at });
        }
        if unix_ns < self.latest {
            self.behind += 1;
        }
        self.latest = self.latest.max(unix_ns);
        Ok(START_NS + (self.latest - first))
    }

    /// The times of the first and the latest packet, in nanoseconds since 1970.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.first.map(|first| (first, self.latest))
    }

    /// Packets with an earlier time than a packet before them.
    pub fn behind(&self) -> u64 {
        self.behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back_and_says_how_often_packets_did() {
        let mut timeline = ReplayTimeline::default();
        let times = [5_000, 7_000, 6_000, 4_000, 8_000].map(|unix_ns| timeline.now_ns(unix_ns).unwrap());
        assert_eq!(times.map(|now_ns| now_ns - START_NS), [0, 2_000, 2_000, 2_000, 3_000]);
        assert_eq!((timeline.behind(), timeline.span()), (2, Some((5_000, 8_000))));
    }

    #[test]
    fn a_time_that_cannot_be_is_no_time() {
        let mut timeline = ReplayTimeline::default();
        timeline.now_ns(1_700_000_000_000_000_000).unwrap();
        let error = timeline.now_ns(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("more than a year after the first, of 2023-11-14T22:13:20Z"), "{error}");
    }
}
