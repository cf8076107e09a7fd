//! What passed, was answered and was dropped in each second of the last quarter of an hour, whether anybody looked or not.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{CounterTotals, flow::Flow};

/// The seconds that are kept: about 80 kB.
pub const KEPT_SECONDS: usize = 900;

/// One second of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondOfTraffic {
    /// When the second ended, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The traffic that passed.
    pub passed: Flow,
    /// The traffic that the kernel program answered.
    pub replied: Flow,
    /// The traffic that was dropped.
    pub dropped: Flow,
    /// Decisions about requests per second.
    pub decided_per_second: f64,
    /// Requests that were refused per second.
    pub refused_per_second: f64,
}

/// The counters at one look.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountersThen {
    /// When the counters were read, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The counters of packets.
    pub packets: CounterTotals,
    /// Decisions about requests.
    pub decided: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// The last seconds, oldest first.
#[derive(Debug, Default)]
pub struct TrafficHistory {
    seconds: VecDeque<SecondOfTraffic>,
    before: Option<CountersThen>,
}

impl TrafficHistory {
    /// Takes in the counters. Called once a second.
    pub fn observe(&mut self, now: CountersThen) {
        let Some(before) = self.before.replace(now) else { return };
        // A wall clock that was set back makes no second.
        let Some(span_ms @ 1..) = now.unix_ms.checked_sub(before.unix_ms) else { return };
        let per_second =
            |now: u64, then: u64| (now.saturating_sub(then) as f64 * 1e3 / span_ms as f64).round();
        let flow = |of: &dyn Fn(&CounterTotals) -> (u64, u64)| {
            let ((packets, bytes), (packets_then, bytes_then)) = (of(&now.packets), of(&before.packets));
            Flow {
                packets_per_second: per_second(packets, packets_then),
                bytes_per_second: per_second(bytes, bytes_then),
            }
        };
        if self.seconds.len() >= KEPT_SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(SecondOfTraffic {
            unix_ms: now.unix_ms,
            passed: flow(&|totals| (totals.passed_packets, totals.passed_bytes)),
            replied: flow(&|totals| (totals.replied_packets, totals.replied_bytes)),
            dropped: flow(&|totals| (totals.dropped_packets, totals.dropped_bytes)),
            decided_per_second: per_second(now.decided, before.decided),
            refused_per_second: per_second(now.refused, before.refused),
        });
    }

    /// The seconds that are kept, oldest first.
    pub fn seconds(&self) -> Vec<SecondOfTraffic> {
        self.seconds.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, packets: u64) -> CountersThen {
        let packets = CounterTotals {
            passed_packets: packets,
            passed_bytes: 100 * packets,
            replied_packets: 2 * packets,
            dropped_packets: 3 * packets,
            ..CounterTotals::default()
        };
        CountersThen { unix_ms: 1_000 * second, packets, decided: second, refused: 0 }
    }

    #[test]
    fn a_second_has_what_came_since_the_last_look() {
        let mut history = TrafficHistory::default();
        history.observe(at(10, 50));
        assert!(history.seconds().is_empty(), "one look is no second");
        history.observe(at(12, 90));
        let second = history.seconds()[0];
        let rates = [second.passed, second.replied, second.dropped].map(|flow| flow.packets_per_second);
        assert_eq!((second.unix_ms, rates, second.decided_per_second), (12_000, [20.0, 40.0, 60.0], 1.0));
        assert_eq!(second.passed.bytes_per_second, 2_000.0);
        history.observe(at(11, 95));
        assert_eq!(history.seconds().len(), 1, "a clock that was set back makes no second");
    }

    #[test]
    fn history_is_bounded_and_keeps_the_newest() {
        let mut history = TrafficHistory::default();
        for second in 0..2 * KEPT_SECONDS as u64 {
            history.observe(at(second, second));
        }
        let seconds = history.seconds();
        assert_eq!((seconds.len(), seconds[KEPT_SECONDS - 1].unix_ms), (KEPT_SECONDS, 1_799_000));
    }
}
