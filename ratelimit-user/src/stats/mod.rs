//! What the counters said at one moment, as plain numbers for every view.

pub mod posture;

use ratelimit_common::abi::{Counter, Reason, Verdict};
use serde::{Deserialize, Serialize};

/// Frames and bytes of one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Name of the reason.
    pub reason: String,
    /// What happened to these frames.
    pub verdict: String,
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// One entry per reason, also for those that never occurred.
    pub reasons: Vec<ReasonCount>,
}

/// Sums over reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Frames handed on.
    pub passed_packets: u64,
    /// Frames dropped.
    pub dropped_packets: u64,
    /// Bytes handed on.
    pub passed_bytes: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Frames answered on the spot.
    pub replied_packets: u64,
    /// Bytes of the frames that were answered.
    pub replied_bytes: u64,
}

impl Snapshot {
    /// From summed counters.
    pub fn new(counters: &[(Reason, Counter)]) -> Self {
        let count = |(reason, counter): &(Reason, Counter)| ReasonCount {
            reason: reason.name().to_owned(),
            verdict: reason.verdict().name().to_owned(),
            packets: counter.packets,
            bytes: counter.bytes,
        };
        Self { reasons: counters.iter().map(count).collect() }
    }

    /// Frames counted for a reason.
    pub fn packets(&self, reason: Reason) -> u64 {
        self.reasons.iter().find(|count| count.reason == reason.name()).map_or(0, |count| count.packets)
    }

    /// Sums over reasons.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for count in &self.reasons {
            if count.verdict == Verdict::Pass.name() {
                totals.passed_packets += count.packets;
                totals.passed_bytes += count.bytes;
            } else if count.verdict == Verdict::Reply.name() {
                totals.replied_packets += count.packets;
                totals.replied_bytes += count.bytes;
            } else {
                totals.dropped_packets += count.packets;
                totals.dropped_bytes += count.bytes;
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_by_verdict() {
        let counter = |packets, bytes| Counter { packets, bytes };
        let snapshot = Snapshot::new(&[
            (Reason::Conforming, counter(5, 500)),
            (Reason::Arp, counter(1, 60)),
            (Reason::Blocked, counter(7, 700)),
            (Reason::LimitSyns, counter(2, 120)),
            (Reason::CookieSent, counter(3, 222)),
        ]);
        let expected = Totals {
            passed_packets: 6,
            dropped_packets: 9,
            passed_bytes: 560,
            dropped_bytes: 820,
            replied_packets: 3,
            replied_bytes: 222,
        };
        assert_eq!(snapshot.totals(), expected);
    }
}
