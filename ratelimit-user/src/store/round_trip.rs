//! How long the store takes to answer, and how long it is worth waiting for. Pure.
//!
//! A store nearby answers within a millisecond, one on another continent within 200 ms. What a host waits for, and how much it likes to hold,
//! follows what was measured: with a deadline that is shorter than the way there and back no answer is ever heard.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stretched_tick::{LONGEST_WAY, StretchedTick};

/// The shortest deadline: a busy store takes that long now and then.
const SHORTEST: Duration = Duration::from_millis(50);
/// Round trips that connecting takes: the connection, TLS, a first word, password, database, and the script if the server does not have it.
const TO_CONNECT: u32 = 8;
/// How much longer connecting may take while nothing has been measured.
const UNKNOWN: u32 = 4;
/// Doublings of the deadline, one for each answer in a row that did not come in time.
const DOUBLINGS: u32 = 4;

/// The measured time from questions to the store to its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip {
    tick: Duration,
    lease: Duration,
    /// The time of the last answer.
    last: Duration,
    /// The mean time of the last answers, and how far from it they usually are.
    usual: Option<(Duration, Duration)>,
    /// Answers in a row that did not come in time.
    missed: u32,
    /// How often this host talks to the store while the store is busy.
    stretched: StretchedTick,
}

impl RoundTrip {
    /// Makes the measurements of a store that has not answered yet.
    pub fn new(tick: Duration, lease: Duration) -> Self {
        Self {
            tick,
            lease,
            last: Duration::ZERO,
            usual: None,
            missed: 0,
            stretched: StretchedTick::new(tick, lease),
        }
    }

    /// Returns what a front process says that it has measured, within what can be: tick and lease are this host's. A front that was taken over may say
    /// anything, and times that cannot be doubled must not end the exchange of leases.
    pub fn believed(self, told: Self) -> Self {
        let short = |time: Duration| time.min(LONGEST_WAY);
        Self {
            last: short(told.last),
            usual: told.usual.map(|(mean, deviation)| (short(mean), short(deviation))),
            missed: told.missed.min(DOUBLINGS),
            stretched: self.stretched.believed(told.stretched),
            ..self
        }
    }

    /// Records that an answer about `records` records came after `time`.
    pub fn took(&mut self, time: Duration, records: usize) {
        (self.missed, self.last) = (0, time);
        self.stretched.answered(time, records);
        self.usual = Some(match self.usual {
            None => (time, time / 2),
            Some((mean, deviation)) => ((mean * 7 + time) / 8, (deviation * 3 + mean.abs_diff(time)) / 4),
        });
    }

    /// Records that an answer did not come in time: perhaps answers take longer than they used to.
    pub fn missed(&mut self) {
        self.missed = (self.missed + 1).min(DOUBLINGS);
        self.stretched.busy();
    }

    /// The time of the last answer; 0 while none has come.
    pub fn last(&self) -> Duration {
        self.last
    }

    /// The time to be reckoned with for an answer; 0 while none has come.
    pub fn usual(&self) -> Duration {
        self.usual.map_or(Duration::ZERO, |(mean, deviation)| mean + deviation)
    }

    /// Records that the store said that it has too much to do.
    pub fn busy(&mut self) {
        self.stretched.busy();
    }

    /// Returns how much longer than a tick it is to the next lease batch while the store is loaded. The tick is the one that round trips are measured against,
    /// which may be that of the policy before.
    pub fn stretched_by(&self) -> Duration {
        self.stretched.stretched_by()
    }

    /// Returns how long after a tick the units are there that are asked for: the time of an answer, and as much as the tick is stretched by.
    pub fn beyond_tick(&self) -> Duration {
        self.usual() + self.stretched_by()
    }

    /// Returns how long an answer is waited for: long enough not to give up on a busy store, and never so long that the lease which the answer brings would
    /// be over.
    pub fn deadline(&self) -> Duration {
        let shortest = (self.tick * 2).max(SHORTEST).min(self.lease / 4);
        let (mean, deviation) = self.usual.unwrap_or_default();
        let slow = mean * 2 + deviation * 4;
        (shortest.max(slow) * (1 << self.missed)).min(self.lease * 3 / 4)
    }

    /// Returns how long connecting may take. Nobody waits for a connection, and without one no lease can be renewed; but in a store of several servers, one
    /// that is away holds up the others for that long.
    pub fn connecting(&self) -> Duration {
        let shortest = (self.tick * 2).max(SHORTEST).min(self.lease / 4);
        let first = match self.usual {
            Some((mean, _)) => shortest.max(mean * TO_CONNECT),
            None => shortest * UNKNOWN,
        };
        (first * (1 << self.missed)).min(self.lease * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_front_process_says_was_measured_ends_nothing_however_long_it_is() {
        let (tick, lease) = (Duration::from_millis(50), Duration::from_secs(1));
        let own = RoundTrip::new(tick, lease);
        let long = "{\"secs\":18446744073709551615,\"nanos\":999999999}";
        let none = "{\"secs\":0,\"nanos\":0}";
        for (interval, missed) in [(long, u32::MAX), (none, 40)] {
            let text = format!(
                "{{\"tick\":{long},\"lease\":{long},\"last\":{long},\"usual\":[{long},{long}],\"missed\":{missed},\
                 \"stretched\":{{\"tick\":{long},\"longest\":{none},\"interval\":{interval},\"way\":{long}}}}}"
            );
            let mut told = own.believed(serde_json::from_str(&text).unwrap());
            assert!(told.deadline() <= lease && told.connecting() <= 3 * lease);
            assert!(told.beyond_tick() <= 3 * LONGEST_WAY);
            told.took(Duration::from_millis(1), 1);
            told.missed();
            assert!(told.stretched_by() <= lease);
        }
        let mut measured = own;
        measured.took(Duration::from_millis(3), 1);
        assert_eq!(own.believed(measured), measured, "what can be is believed");
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn measured(tick: u64, lease: u64, trips: impl IntoIterator<Item = u64>) -> RoundTrip {
        let mut round_trip = RoundTrip::new(ms(tick), ms(lease));
        trips.into_iter().for_each(|trip| round_trip.took(ms(trip), 1));
        round_trip
    }

    #[test]
    fn a_store_nearby_has_two_ticks_and_one_far_away_twice_what_it_takes() {
        assert_eq!(measured(50, 1_000, []).deadline(), ms(100));
        assert_eq!(measured(50, 1_000, [1; 40]).deadline(), ms(100));
        assert_eq!(measured(50, 200, []).deadline(), ms(50), "leases must not run out meanwhile");
        for trip in [60, 90, 120, 200, 300] {
            let deadline = measured(50, 1_000, [trip; 40]).deadline();
            assert!(deadline >= ms(2 * trip).min(ms(750)) && deadline <= ms(750), "{trip}: {deadline:?}");
        }
        assert_eq!(measured(50, 1_000, [5_000; 40]).deadline(), ms(750), "the lease would be over");
    }

    #[test]
    fn a_store_that_becomes_slow_is_heard_before_it_counts_as_gone_three_times() {
        let mut round_trip = measured(50, 1_000, [1; 40]);
        let mut waited = Vec::new();
        while round_trip.deadline() < ms(200) {
            waited.push(round_trip.deadline());
            round_trip.missed();
        }
        assert_eq!(waited, [ms(100)]);
        round_trip.took(ms(200), 1);
        for _ in 0..20 {
            assert!(round_trip.deadline() > ms(200), "{round_trip:?}");
            round_trip.took(ms(200), 1);
        }
        assert!(round_trip.usual() >= ms(170) && round_trip.usual() < ms(250), "{:?}", round_trip.usual());
        // Answers become fast again.
        (0..60).for_each(|_| round_trip.took(ms(1), 1));
        assert_eq!(round_trip.deadline(), ms(100));
    }

    #[test]
    fn connecting_has_time_for_every_step_of_it() {
        assert_eq!(measured(50, 1_000, []).connecting(), ms(400));
        assert_eq!(
            measured(50, 1_000, [1; 40]).connecting(),
            ms(100),
            "a part that is away holds up the others"
        );
        assert_eq!(measured(50, 1_000, [200; 40]).connecting(), ms(1_600));
        let mut lost = measured(50, 1_000, []);
        (0..100).for_each(|_| lost.missed());
        assert_eq!((lost.connecting(), lost.deadline()), (ms(3_000), ms(750)));
    }
}
