//! The counters at one moment, as plain numbers for every view.

pub mod attack_state;
pub mod feed;
pub mod flow;
pub mod history;
pub mod known_packets;
pub mod named_counters;
pub mod owners;
pub mod rates;
pub mod remaining;
pub mod sampled;
pub mod talkers;
pub mod view;

use ratelimit_common::abi::{Counter, Reason, Verdict, counter::Fate};
use serde::{Deserialize, Serialize};

use self::{known_packets::KnownPackets, named_counters::CountedServices};
use crate::compile::Places;

/// One counter of the kernel program, added up over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// 0, or one more than the index of a service.
    pub service: u32,
    /// The reason that the frames ended with.
    pub reason: Reason,
    /// The fate of the frames.
    pub fate: Fate,
    /// How many frames, and how many bytes.
    pub counter: Counter,
}

/// Frames and bytes of one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Name of the reason.
    pub reason: String,
    /// What happened to these frames.
    pub verdict: String,
    /// The number of frames.
    pub packets: u64,
    /// The bytes of these frames.
    pub bytes: u64,
}

/// Counts by fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    /// Frames with the verdict of their reason.
    pub reasons: Vec<ReasonCount>,
    /// Frames that passed although a limit refused them, because the service or the whole policy is on trial; only reasons that occurred.
    #[serde(default)]
    pub would_drop: Vec<ReasonCount>,
    /// Frames that passed with another DSCP class although a limit refused them.
    #[serde(default)]
    pub marked: Vec<ReasonCount>,
    /// Frames that a limit refused and whose sender was told.
    #[serde(default)]
    pub rejected: Vec<ReasonCount>,
}

/// The counts of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCount {
    /// The name of the service.
    pub service: String,
    /// The reasons that occurred for the service.
    #[serde(flatten)]
    pub columns: Columns,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// All services together: one entry per reason, even for reasons that never occurred.
    #[serde(flatten)]
    pub columns: Columns,
    /// Frames by service and reason. Frames of no service have an empty name.
    #[serde(default)]
    pub services: Vec<ServiceCount>,
    /// Frames of services that have left the policy, as far as they are known by name. Their counts stay in the sums.
    #[serde(default)]
    pub former_services: Vec<ServiceCount>,
    /// Packets of known clients that came while a total was spent.
    #[serde(flatten)]
    pub known: KnownPackets,
}

/// Sums over reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterTotals {
    /// Frames handed on.
    pub passed_packets: u64,
    /// The frames that were dropped.
    pub dropped_packets: u64,
    /// Bytes handed on.
    pub passed_bytes: u64,
    /// The bytes that were dropped.
    pub dropped_bytes: u64,
    /// Frames that the kernel program answered.
    pub replied_packets: u64,
    /// Bytes of the frames that the kernel program answered.
    pub replied_bytes: u64,
}

impl Columns {
    /// Sums over reasons.
    pub fn totals(&self) -> CounterTotals {
        let mut totals = CounterTotals::default();
        let Self { reasons, would_drop, marked, rejected } = self;
        for count in [reasons, would_drop, marked, rejected].into_iter().flatten() {
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

    fn column(&mut self, fate: Fate) -> &mut Vec<ReasonCount> {
        match fate {
            Fate::Decided => &mut self.reasons,
            Fate::Waived => &mut self.would_drop,
            Fate::Marked => &mut self.marked,
            Fate::Rejected => &mut self.rejected,
        }
    }
}

impl Snapshot {
    /// A snapshot of the counters by the names of services.
    pub fn of(counted: &CountedServices) -> Self {
        let CountedServices { counts, names, former, known } = counted;
        let former_services = Self::new(counts, former).services.split_off(1);
        Self { former_services, known: *known, ..Self::new(counts, names) }
    }

    /// A snapshot of the counters, with the names of services by index. Counts at an index without a name are in the sums only.
    pub fn new(counts: &[Count], names: &Places) -> Self {
        let mut services = vec![ServiceCount::default()];
        services.extend(
            names.iter().map(|(_, name)| ServiceCount { service: name.to_owned(), ..Default::default() }),
        );
        let mut snapshot = Self { services, ..Self::default() };
        for reason in Reason::ALL {
            add(&mut snapshot.columns.reasons, *reason, reason.verdict(), Counter { packets: 0, bytes: 0 });
        }
        for Count { service, reason, fate, counter } in
            counts.iter().filter(|count| count.counter.packets > 0)
        {
            let verdict = verdict(*fate, *reason);
            add(snapshot.columns.column(*fate), *reason, verdict, *counter);
            let name = if *service == 0 { Some("") } else { names.of_number(*service) };
            let one = snapshot.services.iter_mut().find(|one| Some(one.service.as_str()) == name);
            if let Some(one) = one {
                add(one.columns.column(*fate), *reason, verdict, *counter);
            }
        }
        snapshot
    }

    /// Frames counted for a reason.
    pub fn packets(&self, reason: Reason) -> u64 {
        self.columns
            .reasons
            .iter()
            .find(|count| count.reason == reason.name())
            .map_or(0, |count| count.packets)
    }

    /// Sums over reasons.
    pub fn totals(&self) -> CounterTotals {
        self.columns.totals()
    }
}

/// The verdict on frames with a fate. A rejected packet counts as dropped, because its sender was not served.
fn verdict(fate: Fate, reason: Reason) -> Verdict {
    match fate {
        Fate::Decided => reason.verdict(),
        Fate::Waived | Fate::Marked => Verdict::Pass,
        Fate::Rejected => Verdict::Drop,
    }
}

/// Adds a counter to the entry of its reason, or makes the entry.
fn add(counts: &mut Vec<ReasonCount>, reason: Reason, verdict: Verdict, counter: Counter) {
    match counts.iter_mut().find(|count| count.reason == reason.name()) {
        Some(count) => {
            count.packets += counter.packets;
            count.bytes += counter.bytes;
        }
        None => counts.push(ReasonCount {
            reason: reason.name().to_owned(),
            verdict: verdict.name().to_owned(),
            packets: counter.packets,
            bytes: counter.bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_by_verdict() {
        let counter = |packets, bytes| Counter { packets, bytes };
        let count = |service, reason, fate, counter| Count { service, reason, fate, counter };
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let snapshot = Snapshot::new(
            &[
                count(0, Reason::Conforming, Fate::Decided, counter(4, 400)),
                count(1, Reason::Conforming, Fate::Decided, counter(1, 100)),
                count(0, Reason::Arp, Fate::Decided, counter(1, 60)),
                count(1, Reason::Blocked, Fate::Decided, counter(7, 700)),
                count(0, Reason::LimitSyns, Fate::Decided, counter(2, 120)),
                count(0, Reason::CookieSent, Fate::Decided, counter(3, 222)),
                count(1, Reason::LimitPackets, Fate::Waived, counter(9, 900)),
                count(1, Reason::LimitPackets, Fate::Marked, counter(5, 500)),
                count(1, Reason::LimitBytes, Fate::Rejected, counter(6, 600)),
            ],
            &names,
        );
        assert_eq!(snapshot.services[1].columns.would_drop[0].packets, 9, "{snapshot:?}");
        assert_eq!(snapshot.packets(Reason::Conforming), 5, "all services together");
        let expected = CounterTotals {
            passed_packets: 20,
            dropped_packets: 15,
            passed_bytes: 1960,
            dropped_bytes: 1420,
            replied_packets: 3,
            replied_bytes: 222,
        };
        assert_eq!(snapshot.totals(), expected);
    }

    #[test]
    fn in_json_the_columns_stand_beside_what_they_are_of() {
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let counter = Counter { packets: 6, bytes: 600 };
        let rejected = Count { service: 1, reason: Reason::LimitBytes, fate: Fate::Rejected, counter };
        let snapshot = Snapshot::new(&[rejected], &names);
        let text = serde_json::to_string(&snapshot).unwrap();
        let service = r#"{"service":"dns","reasons":[],"would_drop":[],"marked":[],"rejected":[{"reason":"limit_bytes","verdict":"drop","packets":6,"bytes":600}]}"#;
        assert!(text.starts_with(r#"{"reasons":[{"#) && text.contains(service), "{text}");
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
