//! How often a host talks to a store that others keep busy. Pure.
//!
//! A store with more to do than it can makes everybody wait, requests too. The part of an answer's time beyond the way there and back is time in the
//! store's queue, so every host can see by itself how loaded the store is. A host that waits long exchanges less often, and a host that does not goes
//! back to its tick, slowly: many hosts do this at the same time, and together they find a pace that the store bears.
//!
//! ```text
//! waited = round trip - shortest round trip - what the host's own records take
//! waited > slack: twice the interval      waited < slack / 4: an eighth less      busy or late: twice the interval
//! tick <= interval <= a fourth of the lease, at most 500 ms
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest that a stretched tick gets: blocks travel with the exchanges, and are to be everywhere in about a second.
const LONGEST: Duration = Duration::from_millis(500);
/// The longest way to a store that is believed. Nothing is shared over a longer one, and sums of such times stay small.
pub(super) const LONGEST_WAY: Duration = Duration::from_secs(3_600);
/// A lease has this many parts. If it is renewed once in every part, it is renewed in time, also if an answer is lost.
const PART_OF_LEASE: u32 = 4;
/// Time in the store's queue that does no harm: half of the time that requests wait for an answer.
const SLACK: Duration = Duration::from_millis(25);
/// The time that one record takes the server.
const OF_RECORD: Duration = Duration::from_micros(20);
/// After about this many answers, a way that has become longer is believed to be the shortest.
const BELIEVED_AFTER: u32 = 1_024;

/// The interval between exchanges, and what it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StretchedTick {
    tick: Duration,
    longest: Duration,
    interval: Duration,
    /// The shortest round trip.
    way: Option<Duration>,
}

impl StretchedTick {
    /// Makes the tick of a policy whose leases last for `lease`.
    pub fn new(tick: Duration, lease: Duration) -> Self {
        let longest = (lease / PART_OF_LEASE).min(LONGEST).max(tick);
        Self { tick, longest, interval: tick, way: None }
    }

    /// Returns what another process has found, within what can be: the tick and the longest interval are this host's.
    pub(super) fn believed(self, told: Self) -> Self {
        let interval = told.interval.clamp(self.tick, self.longest);
        Self { interval, way: told.way.map(|way| way.min(LONGEST_WAY)), ..self }
    }

    /// Records that an answer about `records` records came after `took`.
    pub fn answered(&mut self, took: Duration, records: usize) {
        let trip = took.saturating_sub(OF_RECORD * u32::try_from(records).unwrap_or(u32::MAX));
        let way = self.way.map_or(trip, |way| trip.min(way + trip.saturating_sub(way) / BELIEVED_AFTER));
        self.way = Some(way);
        let (waited, slack) = (trip - way, SLACK.min(self.tick / 2));
        if waited > slack {
            self.busy();
        } else if waited < slack / 4 {
            self.interval = (self.interval - self.interval / 8).max(self.tick);
        }
    }

    /// Records that the store said that it is busy, or did not answer in time.
    pub fn busy(&mut self) {
        self.interval = (self.interval * 2).min(self.longest);
    }

    /// Returns the time from one exchange to the next.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns how much longer the interval is than the tick.
    pub fn stretched_by(&self) -> Duration {
        self.interval - self.tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn after(trips_ms: impl IntoIterator<Item = u64>) -> StretchedTick {
        let mut tick = StretchedTick::new(ms(50), ms(1_000));
        trips_ms.into_iter().for_each(|trip| tick.answered(ms(trip), 1));
        tick
    }

    #[test]
    fn a_store_that_lets_hosts_wait_is_asked_less_often_and_one_that_does_not_as_often_as_before() {
        assert_eq!(after([1; 20]).interval(), ms(50));
        let mut tick = after([1, 1, 40]);
        assert_eq!((tick.interval(), tick.stretched_by()), (ms(100), ms(50)));
        tick.answered(ms(15), 1);
        assert_eq!(tick.interval(), ms(100), "neither long nor short");
        (0..9).for_each(|_| tick.answered(ms(2), 1));
        assert_eq!(tick.interval(), ms(50));
    }

    #[test]
    fn a_store_that_is_far_away_is_not_a_busy_one() {
        assert_eq!(after([200; 100]).interval(), ms(50));
        assert_eq!(after((0..100).map(|n| 200 + n % 20)).interval(), ms(50));
        assert!(after([200, 200, 260, 260]).interval() > ms(50));
    }

    #[test]
    fn what_a_hosts_own_records_take_is_no_load_of_others() {
        let mut tick = after([1; 10]);
        tick.answered(ms(41), 1_000);
        assert_eq!(tick.interval(), ms(50), "20 ms are its own");
        tick.answered(ms(60), 1_000);
        assert_eq!(tick.interval(), ms(100));
    }

    #[test]
    fn no_interval_is_longer_than_a_fourth_of_a_lease_or_half_a_second_or_shorter_than_the_tick() {
        for (tick_ms, lease_ms, longest_ms) in
            [(50, 1_000, 250), (50, 200, 50), (10, 60_000, 500), (1_000, 60_000, 1_000), (250, 1_000, 250)]
        {
            let mut tick = StretchedTick::new(ms(tick_ms), ms(lease_ms));
            (0..20).for_each(|_| tick.busy());
            assert_eq!(tick.interval(), ms(longest_ms), "tick {tick_ms} ms, lease {lease_ms} ms");
            tick.answered(ms(1), 1);
            (0..40).for_each(|_| tick.answered(ms(1), 1));
            assert_eq!(tick.interval(), ms(tick_ms));
        }
    }

    #[test]
    fn a_way_that_has_become_longer_is_believed_after_a_while() {
        let mut tick = after([1; 10]);
        (0..100).for_each(|_| tick.answered(ms(100), 1));
        assert_eq!(tick.interval(), ms(250), "it may be a queue");
        (0..4_000).for_each(|_| tick.answered(ms(100), 1));
        assert_eq!(tick.interval(), ms(50));
    }
}
