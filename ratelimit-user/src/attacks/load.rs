//! The load of each target between two looks at the counters.

use std::collections::BTreeMap;

use ratelimit_common::abi::{Counter, Reason, Verdict, counter::Fate};
use serde::{Deserialize, Serialize};

use super::AttackTarget;
use crate::stats::{known_packets::KnownPackets, named_counters::CountedServices};

/// Packets and their bytes; requests have no bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Packets or requests.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
}

impl Volume {
    /// Adds packets and bytes of another volume.
    pub fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Reasons that refuse packets of senders who are within their own limits.
const SHARED: [Reason; 6] = [
    Reason::LimitPrefix,
    Reason::ServiceTotal,
    Reason::HostTotal,
    Reason::LinkCap,
    Reason::NewSourceBudget,
    Reason::TableFull,
];

/// The packets or requests that came in for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Packets that passed within every limit.
    pub passed: Volume,
    /// Packets that were refused because their source is blocked.
    pub blocked: Volume,
    /// Refused packets by reason: dropped, rejected, marked, or let pass by a trial. SYNs answered with cookies count if nobody acknowledged the cookie.
    pub refused: BTreeMap<&'static str, Volume>,
    /// Of the refused packets, those that passed because the policy or the service is on trial.
    pub waived: Volume,
    /// Sources that got an entry in the table; of the host alone.
    pub new_sources: u64,
}

impl Load {
    /// Returns all refused packets, without those of blocked sources.
    pub fn all_refused(&self) -> Volume {
        let mut all = Volume::default();
        self.refused.values().for_each(|volume| all.add(*volume));
        all
    }

    /// Returns the packets that were refused because of an amount that all senders share, so that senders within their own limits lose packets too.
    pub fn refused_to_all(&self) -> Volume {
        let mut all = Volume::default();
        SHARED
            .iter()
            .filter_map(|reason| self.refused.get(reason.name()))
            .for_each(|volume| all.add(*volume));
        all
    }

    /// Adds another load.
    pub fn add(&mut self, other: &Self) {
        self.passed.add(other.passed);
        self.blocked.add(other.blocked);
        self.waived.add(other.waived);
        self.new_sources += other.new_sources;
        for (reason, volume) in &other.refused {
            self.refused.entry(reason).or_default().add(*volume);
        }
    }

    fn count(&mut self, reason: Reason, fate: Fate, volume: Volume) {
        match (reason, fate) {
            (Reason::Blocked, _) => self.blocked.add(volume),
            (Reason::CookieSent, _) => self.refused.entry(reason.name()).or_default().add(volume),
            (_, Fate::Decided) if reason.verdict() == Verdict::Pass => self.passed.add(volume),
            _ => {
                self.refused.entry(reason.name()).or_default().add(volume);
                if fate == Fate::Waived {
                    self.waived.add(volume);
                }
            }
        }
    }

    /// Takes SYNs whose cookies were acknowledged out of the refused packets.
    fn forgive_acknowledged(&mut self, acknowledged: u64) {
        let Some(sent) = self.refused.get_mut(Reason::CookieSent.name()) else { return };
        let left = sent.packets.saturating_sub(acknowledged);
        sent.bytes = sent.bytes.checked_div(sent.packets).unwrap_or(0) * left;
        sent.packets = left;
        self.refused.retain(|_, volume| volume.packets > 0);
    }
}

/// The counters at one look, by the names of services and APIs.
#[derive(Clone, Debug, Default)]
pub struct Tallied {
    packets: BTreeMap<String, Vec<(Reason, Fate, Counter)>>,
    /// Requests served and refused so far, by API.
    requests: BTreeMap<String, (u64, u64)>,
    /// Sources that got an entry in the table so far.
    new_sources: u64,
    /// Packets of known clients that came while a total was spent so far.
    known: KnownPackets,
}

impl Tallied {
    /// Sorts the counters by the names of services, and decisions, as (API, outcome, count), by API.
    pub fn new(
        CountedServices { counts, names, known, .. }: &CountedServices,
        decisions: &[(String, String, u64)],
    ) -> Self {
        let names: BTreeMap<u32, &str> = names.iter().map(|(index, name)| (index as u32 + 1, name)).collect();
        let mut counted = Self { known: *known, ..Self::default() };
        for count in counts {
            let name = match count.service {
                0 => "",
                index => match names.get(&index) {
                    Some(name) => name,
                    // The policy does not have this service any more.
                    None => continue,
                },
            };
            // Most reasons never occur for most services.
            if count.counter.packets > 0 || !counted.packets.contains_key(name) {
                let row = (count.reason, count.fate, count.counter);
                counted.packets.entry(name.to_owned()).or_default().push(row);
            }
        }
        for (api, outcome, count) in decisions {
            let (served, refused) = counted.requests.entry(api.clone()).or_default();
            if outcome == REFUSED { *refused += count } else { *served += count }
        }
        counted
    }

    /// Adds how many sources have got an entry in the table so far.
    #[must_use]
    pub fn with_new_sources(self, new_sources: u64) -> Self {
        Self { new_sources, ..self }
    }

    /// Returns the packets of known clients since an earlier look that came while a total was spent.
    pub fn known_since(&self, before: &Self) -> KnownPackets {
        self.known.since(before.known)
    }

    /// Returns the loads since an earlier look. Services and APIs that the earlier look did not have are left out.
    pub fn since(&self, before: &Self) -> BTreeMap<AttackTarget, Load> {
        let mut loads = BTreeMap::new();
        for (name, counters) in &self.packets {
            let Some(earlier) = before.packets.get(name) else { continue };
            let target = match name.as_str() {
                "" => AttackTarget::Host,
                name => AttackTarget::Service(name.to_owned()),
            };
            loads.insert(target, load(counters, earlier));
        }
        if let Some(host) = loads.get_mut(&AttackTarget::Host) {
            host.new_sources = self.new_sources.saturating_sub(before.new_sources);
        }
        for (api, (served, refused)) in &self.requests {
            let Some((served_before, refused_before)) = before.requests.get(api) else { continue };
            let volume = |now: &u64, then: &u64| Volume { packets: now.saturating_sub(*then), bytes: 0 };
            let mut load = Load { passed: volume(served, served_before), ..Load::default() };
            let refused = volume(refused, refused_before);
            if refused.packets > 0 {
                load.refused.insert(REFUSED, refused);
            }
            loads.insert(AttackTarget::Api(api.clone()), load);
        }
        loads
    }
}

/// The result of one look at the counters.
#[derive(Clone, Debug)]
pub struct Glance {
    /// Now, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Milliseconds since the look before.
    pub span_ms: u64,
    /// The load of every target since the look before.
    pub loads: BTreeMap<AttackTarget, Load>,
    /// Packets of known clients since the look before that came while a total was spent.
    pub known: KnownPackets,
    /// Whether the attack state is `flood`.
    pub flood: bool,
}

/// Returns how many there were in a second of a span.
pub(super) fn per_second(count: u64, span_ms: u64) -> u64 {
    count.saturating_mul(1_000) / span_ms.max(1)
}

/// The outcome of a request that was refused, which is also its reason here.
pub const REFUSED: &str = "refused";

fn load(now: &[(Reason, Fate, Counter)], then: &[(Reason, Fate, Counter)]) -> Load {
    let (mut load, mut acknowledged) = (Load::default(), 0);
    for (reason, fate, counter) in now {
        let before = then.iter().find(|(other, of, _)| other == reason && of == fate);
        // Maps that were made anew count from 0, so a counter may be lower than before: the difference is then 0, not negative.
        let (packets, bytes) = before.map_or((0, 0), |(_, _, before)| (before.packets, before.bytes));
        let volume = Volume {
            packets: counter.packets.saturating_sub(packets),
            bytes: counter.bytes.saturating_sub(bytes),
        };
        if volume.packets == 0 {
            continue;
        }
        if *reason == Reason::CookieValid {
            acknowledged += volume.packets;
        }
        load.count(*reason, *fate, volume);
    }
    load.forgive_acknowledged(acknowledged);
    load
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compile::Places,
        stats::{Count, named_counters::NamedCounters},
    };

    fn tallied(counts: &[(u32, Reason, Fate, u64)]) -> Tallied {
        let names = Places::after(&Places::default(), ["dns"].into_iter(), 1);
        let count = |(service, reason, fate, packets): &(u32, Reason, Fate, u64)| Count {
            service: *service,
            reason: *reason,
            fate: *fate,
            counter: Counter { packets: *packets, bytes: packets * 100 },
        };
        let mut counts: Vec<Count> = counts.iter().map(count).collect();
        // The kernel has every counter.
        for service in [0, 1] {
            counts.insert(0, count(&(service, Reason::Conforming, Fate::Decided, 0)));
        }
        Tallied::new(
            &CountedServices { counts, names, ..CountedServices::default() },
            &[("search".into(), "allowed".into(), 5), ("search".into(), REFUSED.into(), 7)],
        )
    }

    fn volume(packets: u64) -> Volume {
        Volume { packets, bytes: packets * 100 }
    }

    #[test]
    fn what_came_is_told_by_target_and_trials_count_as_refused() {
        let before = tallied(&[(1, Reason::LimitPackets, Fate::Decided, 10)]);
        let now = tallied(&[
            (0, Reason::Conforming, Fate::Decided, 3),
            (0, Reason::Blocked, Fate::Decided, 4),
            (1, Reason::LimitPackets, Fate::Decided, 15),
            (1, Reason::LimitBytes, Fate::Waived, 6),
            (1, Reason::ServiceTotal, Fate::Rejected, 7),
            (1, Reason::ServiceTotal, Fate::Marked, 1),
        ]);
        let loads = now.since(&before);
        let host = &loads[&AttackTarget::Host];
        assert_eq!((host.passed, host.blocked, host.all_refused()), (volume(3), volume(4), volume(0)));
        let dns = &loads[&AttackTarget::Service("dns".into())];
        let refused = BTreeMap::from([
            ("limit_bytes", volume(6)),
            ("limit_packets", volume(5)),
            ("service_total", volume(8)),
        ]);
        assert_eq!((&dns.refused, dns.waived), (&refused, volume(6)));
        assert_eq!(loads[&AttackTarget::Api("search".into())], Load::default(), "nothing new");
    }

    #[test]
    fn passed_packets_are_those_since_the_last_look() {
        let tallied = |packets| {
            let mut named_counters = NamedCounters::default();
            named_counters.follow(&Places::after(&Places::default(), ["dns"].into_iter(), 1));
            let counter = Counter { packets, bytes: 100 * packets };
            named_counters.take_in(&[Count {
                service: 1,
                reason: Reason::Conforming,
                fate: Fate::Decided,
                counter,
            }]);
            Tallied::new(&named_counters.counted(), &[])
        };
        let loads = tallied(1_003).since(&tallied(1_000));
        assert_eq!(loads[&AttackTarget::Service("dns".into())].passed, volume(3));
    }

    #[test]
    fn syns_whose_cookies_come_back_are_no_attack() {
        let before = tallied(&[]);
        let sent = (1, Reason::CookieSent, Fate::Decided, 100);
        let honest = tallied(&[sent, (1, Reason::CookieValid, Fate::Decided, 100)]).since(&before);
        let dns = AttackTarget::Service("dns".into());
        assert_eq!((honest[&dns].all_refused(), honest[&dns].passed), (volume(0), volume(100)));
        let flood = tallied(&[sent, (1, Reason::CookieValid, Fate::Decided, 10)]).since(&before);
        assert_eq!(flood[&dns].all_refused(), volume(90));
    }

    #[test]
    fn counters_that_begin_again_and_services_that_are_new_bring_nothing() {
        let before = tallied(&[(1, Reason::LimitPackets, Fate::Decided, 1_000_000)]);
        let anew = tallied(&[(1, Reason::LimitPackets, Fate::Decided, 5)]).since(&before);
        assert_eq!(anew[&AttackTarget::Service("dns".into())], Load::default());
        assert!(anew.len() == 3 && before.since(&Tallied::default()).is_empty());
    }
}
