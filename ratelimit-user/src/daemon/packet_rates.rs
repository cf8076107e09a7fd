//! Counters of packets as rates.

use std::time::Duration;

use serde::Serialize;

use crate::stats::{ReasonCount, Snapshot};

/// Packets and bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Flow {
    packets_per_second: f64,
    bytes_per_second: f64,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ReasonRate {
    reason: String,
    verdict: String,
    #[serde(flatten)]
    flow: Flow,
}

/// One service.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ServiceRate {
    service: String,
    passed: Flow,
    dropped: Flow,
}

/// Everything per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PacketRates {
    passed: Flow,
    dropped: Flow,
    replied: Flow,
    reasons: Vec<ReasonRate>,
    services: Vec<ServiceRate>,
    sources: [(); 0],
    prefixes: [(); 0],
    users: [(); 0],
}

impl PacketRates {
    pub(super) fn between(before: &Snapshot, now: &Snapshot, span: Duration) -> Self {
        let seconds = span.as_secs_f64().max(0.001);
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let (was, is) = (before.totals(), now.totals());
        let flow = |packets: (u64, u64), bytes: (u64, u64)| Flow {
            packets_per_second: rate(packets.0, packets.1),
            bytes_per_second: rate(bytes.0, bytes.1),
        };
        let of = |list: &[ReasonCount], reason: &str| {
            list.iter().find(|one| one.reason == reason).map_or((0, 0), |one| (one.packets, one.bytes))
        };
        let reasons = (now.columns.reasons.iter())
            .map(|one| {
                let (packets, bytes) = of(&before.columns.reasons, &one.reason);
                let flow = flow((packets, one.packets), (bytes, one.bytes));
                ReasonRate { reason: one.reason.clone(), verdict: one.verdict.clone(), flow }
            })
            .filter(|one| one.flow.packets_per_second > 0.0)
            .collect();
        let service = |name: &str, snapshot: &Snapshot| {
            let columns =
                snapshot.services.iter().find(|one| one.service == name).map(|one| one.columns.clone());
            Snapshot { columns: columns.unwrap_or_default(), services: Vec::new() }.totals()
        };
        let services = (now.services.iter())
            .map(|one| {
                let (was, is) = (service(&one.service, before), service(&one.service, now));
                ServiceRate {
                    service: one.service.clone(),
                    passed: flow(
                        (was.passed_packets, is.passed_packets),
                        (was.passed_bytes, is.passed_bytes),
                    ),
                    dropped: flow(
                        (was.dropped_packets, is.dropped_packets),
                        (was.dropped_bytes, is.dropped_bytes),
                    ),
                }
            })
            .collect();
        Self {
            passed: flow((was.passed_packets, is.passed_packets), (was.passed_bytes, is.passed_bytes)),
            dropped: flow((was.dropped_packets, is.dropped_packets), (was.dropped_bytes, is.dropped_bytes)),
            replied: flow((was.replied_packets, is.replied_packets), (was.replied_bytes, is.replied_bytes)),
            reasons,
            services,
            sources: [],
            prefixes: [],
            users: [],
        }
    }
}
