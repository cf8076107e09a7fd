//! Rates of counters between two snapshots. Pure.

use serde::Serialize;

use super::{
    Columns, CounterTotals, ReasonCount, ServiceCount, Snapshot,
    flow::{Flow, ReasonFlow, ServiceFlow},
    known_packets::KnownFlow,
};

/// All rates over one span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Length of the span in milliseconds.
    pub span_ms: u64,
    /// The traffic that passed.
    pub passed: Flow,
    /// Traffic that was dropped.
    pub dropped: Flow,
    /// Traffic that the kernel program answered.
    pub replied: Flow,
    /// The traffic of each reason that occurred in the span; verdicts are those of metrics, including `would_drop`, `marked` and `rejected`.
    pub reasons: Vec<ReasonFlow>,
    /// The traffic of each service.
    pub services: Vec<ServiceFlow>,
    /// Packets of known clients that came while a total was spent.
    #[serde(flatten)]
    pub known: KnownFlow,
}

impl Rates {
    /// The rates between two snapshots; `None` if no time passed, or if counters started again from zero.
    pub fn between(before: &Snapshot, after: &Snapshot, span_ms: u64) -> Option<Self> {
        if span_ms == 0 {
            return None;
        }
        let grown = grown(&before.totals(), &after.totals())?;
        let mut reasons = Vec::new();
        for (verdict, count) in counts(&after.columns) {
            let mut known = counts(&before.columns);
            let known = known.find(|(other, known)| *other == verdict && known.reason == count.reason);
            let (packets, bytes) = known.map_or((0, 0), |(_, known)| (known.packets, known.bytes));
            let packets = count.packets.checked_sub(packets)?;
            if packets > 0 {
                let flow = per_second(packets, count.bytes.checked_sub(bytes)?, span_ms);
                reasons.push(ReasonFlow { reason: count.reason.clone(), verdict: verdict.to_owned(), flow });
            }
        }
        let service = |service: &ServiceCount| {
            let known = before.services.iter().find(|known| known.service == service.service);
            let then = known.map(|known| known.columns.totals()).unwrap_or_default();
            let now = service.columns.totals();
            // Another daemon may know less of a service than the one before.
            let grown = self::grown(&then, &now).unwrap_or(now);
            ServiceFlow {
                service: service.service.clone(),
                passed: per_second(grown.passed_packets, grown.passed_bytes, span_ms),
                dropped: per_second(grown.dropped_packets, grown.dropped_bytes, span_ms),
                replied: per_second(grown.replied_packets, grown.replied_bytes, span_ms),
                totals: Vec::new(),
            }
        };
        Some(Self {
            span_ms,
            passed: per_second(grown.passed_packets, grown.passed_bytes, span_ms),
            dropped: per_second(grown.dropped_packets, grown.dropped_bytes, span_ms),
            replied: per_second(grown.replied_packets, grown.replied_bytes, span_ms),
            reasons,
            services: after.services.iter().map(service).collect(),
            known: after.known.since(before.known).per_second(span_ms),
        })
    }

    /// The traffic of a reason with a verdict; zero if it did not occur.
    pub fn of(&self, verdict: &str, reason: &str) -> Flow {
        let found = self.reasons.iter().find(|one| one.reason == reason && one.verdict == verdict);
        found.map(|one| one.flow).unwrap_or_default()
    }
}

/// All counts, each with the word for its verdict or fate.
pub(super) fn counts(columns: &Columns) -> impl Iterator<Item = (&str, &ReasonCount)> {
    let Columns { reasons, would_drop, marked, rejected } = columns;
    let decided = reasons.iter().map(|count| (count.verdict.as_str(), count));
    let others = [("would_drop", would_drop), ("marked", marked), ("rejected", rejected)];
    decided.chain(others.into_iter().flat_map(|(word, counts)| counts.iter().map(move |count| (word, count))))
}

fn grown(then: &CounterTotals, now: &CounterTotals) -> Option<CounterTotals> {
    Some(CounterTotals {
        passed_packets: now.passed_packets.checked_sub(then.passed_packets)?,
        passed_bytes: now.passed_bytes.checked_sub(then.passed_bytes)?,
        dropped_packets: now.dropped_packets.checked_sub(then.dropped_packets)?,
        dropped_bytes: now.dropped_bytes.checked_sub(then.dropped_bytes)?,
        replied_packets: now.replied_packets.checked_sub(then.replied_packets)?,
        replied_bytes: now.replied_bytes.checked_sub(then.replied_bytes)?,
    })
}

fn per_second(packets: u64, bytes: u64, span_ms: u64) -> Flow {
    let over = |count: u64| count as f64 * 1e3 / span_ms as f64;
    Flow { packets_per_second: over(packets), bytes_per_second: over(bytes) }
}

#[cfg(test)]
mod tests {
    use ratelimit_common::abi::{Counter, Reason, counter::Fate};

    use super::*;
    use crate::{compile::Places, stats::Count};

    fn snapshot(counts: &[(u32, Reason, Fate, u64)]) -> Snapshot {
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let count = |&(service, reason, fate, packets): &(u32, Reason, Fate, u64)| Count {
            service,
            reason,
            fate,
            counter: Counter { packets, bytes: 100 * packets },
        };
        Snapshot::new(&counts.iter().map(count).collect::<Vec<_>>(), &names)
    }

    #[test]
    fn rates_are_what_came_between_two_looks_by_verdict_reason_and_service() {
        let before = snapshot(&[
            (0, Reason::Conforming, Fate::Decided, 10),
            (1, Reason::LimitPackets, Fate::Decided, 5),
            (1, Reason::LimitPackets, Fate::Waived, 3),
        ]);
        let after = snapshot(&[
            (0, Reason::Conforming, Fate::Decided, 30),
            (1, Reason::LimitPackets, Fate::Decided, 9),
            (1, Reason::LimitPackets, Fate::Waived, 5),
            (1, Reason::LimitPackets, Fate::Marked, 8),
        ]);
        let rates = Rates::between(&before, &after, 2_000).unwrap();
        let flow = |packets: f64| Flow { packets_per_second: packets, bytes_per_second: 100.0 * packets };
        assert_eq!((rates.passed, rates.dropped, rates.replied), (flow(15.0), flow(2.0), flow(0.0)));
        for (verdict, reason, rate) in [
            ("pass", "conforming", 10.0),
            ("drop", "limit_packets", 2.0),
            ("would_drop", "limit_packets", 1.0),
            ("marked", "limit_packets", 4.0),
            ("drop", "blocked", 0.0),
        ] {
            assert_eq!(rates.of(verdict, reason), flow(rate), "{verdict} {reason}");
        }
        assert_eq!(rates.reasons.len(), 4, "what did not occur is left out");
        let services: Vec<_> =
            rates.services.iter().map(|one| (one.service.as_str(), one.passed, one.dropped)).collect();
        assert_eq!(services, [("", flow(10.0), flow(0.0)), ("dns", flow(5.0), flow(2.0))]);
    }

    #[test]
    fn there_are_no_rates_without_time_and_none_when_counters_began_anew() {
        let (few, many) = (
            snapshot(&[(0, Reason::Conforming, Fate::Decided, 1)]),
            snapshot(&[(0, Reason::Conforming, Fate::Decided, 2)]),
        );
        assert!(Rates::between(&few, &many, 0).is_none());
        assert!(Rates::between(&many, &few, 1_000).is_none());
        assert!(Rates::between(&few, &few, 1_000).is_some());
        // The counter of one reason started again, while the sum grew.
        let other = snapshot(&[(0, Reason::Allowed, Fate::Decided, 9)]);
        assert!(Rates::between(&many, &other, 1_000).is_none());
    }

    #[test]
    fn a_service_that_came_back_is_counted_from_nothing() {
        let before = snapshot(&[
            (0, Reason::Conforming, Fate::Decided, 1),
            (1, Reason::Conforming, Fate::Decided, 50),
        ]);
        let after = snapshot(&[
            (0, Reason::Conforming, Fate::Decided, 60),
            (1, Reason::Conforming, Fate::Decided, 4),
        ]);
        let rates = Rates::between(&before, &after, 1_000).unwrap();
        assert_eq!(rates.services[1].passed.packets_per_second, 4.0);
    }
}
