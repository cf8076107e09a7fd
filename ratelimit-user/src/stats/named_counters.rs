//! The counts of services by name. Pure.
//!
//! The kernel counts by the index of a service, and an index passes from a service that has left the policy to another one. The daemon adds what each
//! row of counters has grown by to the service that has the row, so that counts stay with their name and never become smaller.

use std::collections::{BTreeMap, BTreeSet};

use ratelimit_common::abi::{
    Counter, Reason,
    counter::{Fate, SERVICE_SLOTS, slot},
};

use super::{Count, known_packets::KnownPackets};
use crate::compile::Places;

/// The name of packets for no service.
const NO_SERVICE: &str = "";
/// The number under which counts are given whose service is not known any more.
const FORGOTTEN: u32 = u32::MAX;
const ZERO: Counter = Counter { packets: 0, bytes: 0 };

/// The counters at one moment, and whose they are.
#[derive(Clone, Debug, Default)]
pub struct CountedServices {
    /// Counts by the number of a service. Every service in force has one at least; numbers without a name belong to services that are forgotten.
    pub counts: Vec<Count>,
    /// The services in force.
    pub names: Places,
    /// Services that have left the policy.
    pub former: Places,
    /// Packets of known clients that came while a total was spent.
    pub known: KnownPackets,
}

/// Counts of services by name, and what has been read from the kernel so far.
#[derive(Debug)]
pub struct NamedCounters {
    /// The services in force; `None` before the first policy.
    places: Option<Places>,
    /// The rows of counters that belong to a service or to packets of none, by number.
    rows: BTreeMap<u32, CounterRow>,
    names: BTreeMap<String, Sums>,
    forgotten: Sums,
    /// The number of times that a row was emptied or given to another service.
    changes: u64,
}

/// A row of counters in the kernel.
#[derive(Debug)]
struct CounterRow {
    name: String,
    /// The counters as they were last read.
    read: Sums,
}

/// The counters of one service.
#[derive(Clone, Debug)]
struct Sums(Vec<Counter>);

impl Sums {
    fn add(&mut self, other: &Self) {
        for (sum, other) in self.0.iter_mut().zip(&other.0) {
            *sum = plus(*sum, *other);
        }
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self(vec![ZERO; SERVICE_SLOTS as usize])
    }
}

impl Default for NamedCounters {
    fn default() -> Self {
        let none = CounterRow { name: NO_SERVICE.to_owned(), read: Sums::default() };
        Self {
            places: None,
            rows: BTreeMap::from([(0, none)]),
            names: BTreeMap::from([(NO_SERVICE.to_owned(), Sums::default())]),
            forgotten: Sums::default(),
            changes: 0,
        }
    }
}

impl NamedCounters {
    /// The numbers of the rows to read, and a stamp for [`Self::take_in_since`].
    pub fn rows(&self) -> (Vec<u32>, u64) {
        (self.rows.keys().copied().collect(), self.changes)
    }

    /// Adds what was read without a lock. Returns false and adds nothing if rows have been emptied or given away since `stamp`.
    pub fn take_in_since(&mut self, stamp: u64, counts: &[Count]) -> bool {
        if stamp != self.changes {
            return false;
        }
        self.take_in(counts);
        true
    }

    /// Adds what rows have grown by since they were last read. A reader that was overtaken by another one adds nothing.
    pub fn take_in(&mut self, counts: &[Count]) {
        for Count { service, reason, fate, counter } in counts {
            let Some(row) = self.rows.get_mut(service) else { continue };
            let at = slot(0, *reason, *fate) as usize;
            let read = row.read.0[at];
            if counter.packets <= read.packets {
                continue;
            }
            row.read.0[at] = *counter;
            let grown = Counter {
                packets: counter.packets - read.packets,
                bytes: counter.bytes.saturating_sub(read.bytes),
            };
            let sums = self.names.entry(row.name.clone()).or_default();
            sums.0[at] = plus(sums.0[at], grown);
        }
    }

    /// Adds counts of rows that no service has.
    pub fn take_in_forgotten(&mut self, counts: &[Count]) {
        for Count { reason, fate, counter, .. } in counts {
            let sum = &mut self.forgotten.0[slot(0, *reason, *fate) as usize];
            *sum = plus(*sum, *counter);
        }
    }

    /// Whether no policy has been followed yet.
    pub fn is_new(&self) -> bool {
        self.places.is_none()
    }

    /// Whether a service in force has this row.
    pub fn is_in_force(&self, number: u32) -> bool {
        self.places.as_ref().is_some_and(|places| places.of_number(number).is_some())
    }

    /// Whether a row passes to another service with these services.
    pub fn passes_on(&self, number: u32, next: &Places) -> bool {
        let (row, next) = (self.rows.get(&number), next.of_number(number));
        row.zip(next).is_some_and(|(row, next)| row.name != next)
    }

    /// Notes that the counters of a row, which have been taken in, were added to those of another row and emptied.
    pub fn moved(&mut self, from: u32, to: u32, counts: &[Count]) {
        if let Some(row) = self.rows.get_mut(&from) {
            row.read = Sums::default();
        }
        if let Some(row) = self.rows.get_mut(&to) {
            for Count { reason, fate, counter, .. } in counts {
                let read = &mut row.read.0[slot(0, *reason, *fate) as usize];
                *read = plus(*read, *counter);
            }
        }
        self.changes += 1;
    }

    /// Gives rows to the services that have come into force. A row that was not known belongs to its service with everything that it holds. The
    /// counts of a service that has lost its last row stay in the sums alone.
    pub fn follow(&mut self, places: &Places) {
        for (index, name) in places.iter() {
            let row = self.rows.entry(index as u32 + 1);
            let row = row.or_insert_with(|| CounterRow { name: name.to_owned(), read: Sums::default() });
            row.name = name.to_owned();
            self.names.entry(name.to_owned()).or_default();
        }
        let named: BTreeSet<&str> = self.rows.values().map(|row| row.name.as_str()).collect();
        self.names.retain(|name, sums| {
            let is_named = named.contains(name.as_str());
            if !is_named {
                self.forgotten.add(sums);
            }
            is_named
        });
        self.places = Some(places.clone());
        self.changes += 1;
    }

    /// The frames counted for a reason, of all services that are and that were.
    pub fn packets(&self, reason: Reason) -> u64 {
        let at = slot(0, reason, Fate::Decided) as usize;
        self.names.values().chain([&self.forgotten]).map(|sums| sums.0[at].packets).sum()
    }

    /// The counts of all services, without packets of known clients.
    pub fn counted(&self) -> CountedServices {
        let names = self.places.clone().unwrap_or_default();
        let mut counts = Vec::new();
        let mut former = Vec::new();
        for (name, sums) in &self.names {
            let number = match names.of(name) {
                Some(index) => index as u32 + 1,
                None => {
                    let row = self.rows.iter().find(|(_, row)| row.name == *name);
                    let number = row.map_or(FORGOTTEN, |(number, _)| *number);
                    if let Some(index) = number.checked_sub(1) {
                        former.push((name.as_str(), index as usize));
                    }
                    number
                }
            };
            counts.extend(occurred(number, sums));
        }
        counts.extend(occurred(FORGOTTEN, &self.forgotten));
        let former = Places::known(former.into_iter());
        CountedServices { counts, names, former, known: KnownPackets::default() }
    }
}

/// The counters that are not zero, and the first one in any case: a service without packets is there too.
fn occurred(service: u32, sums: &Sums) -> impl Iterator<Item = Count> {
    let all = Reason::ALL.iter().flat_map(|reason| Fate::ALL.map(|fate| (*reason, fate)));
    let counts = all.map(move |(reason, fate)| Count {
        service,
        reason,
        fate,
        counter: sums.0[slot(0, reason, fate) as usize],
    });
    counts.enumerate().filter(|(nth, count)| *nth == 0 || count.counter.packets > 0).map(|(_, count)| count)
}

fn plus(one: Counter, other: Counter) -> Counter {
    Counter { packets: one.packets.wrapping_add(other.packets), bytes: one.bytes.wrapping_add(other.bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Snapshot;

    const MANY: usize = 4;

    fn count(service: u32, packets: u64) -> Count {
        let counter = Counter { packets, bytes: 100 * packets };
        Count { service, reason: Reason::Conforming, fate: Fate::Decided, counter }
    }

    /// A kernel whose rows are counted into, and a policy that changes as the daemon changes it.
    #[derive(Default)]
    struct Host {
        named_counters: NamedCounters,
        rows: BTreeMap<u32, u64>,
        places: Places,
    }

    impl Host {
        fn counts(&self) -> Vec<Count> {
            self.rows.iter().map(|(number, packets)| count(*number, *packets)).collect()
        }

        fn apply(&mut self, names: &[&str]) {
            let next = Places::after(&self.places, names.iter().copied(), MANY);
            self.named_counters.take_in(&self.counts());
            for (index, name) in next.iter() {
                let (number, is_new) = (index as u32 + 1, self.places.of(name).is_none());
                let packets = self.rows.get(&number).copied().unwrap_or(0);
                if is_new && packets > 0 && !self.named_counters.is_in_force(number) {
                    let rest = 100;
                    self.rows.insert(number, 0);
                    *self.rows.entry(rest).or_default() += packets;
                    self.named_counters.moved(number, rest, &[count(number, packets)]);
                }
            }
            self.named_counters.follow(&next);
            self.places = next;
        }

        fn send(&mut self, name: &str, packets: u64) {
            let number = self.places.of(name).map_or(0, |index| index as u32 + 1);
            *self.rows.entry(number).or_default() += packets;
        }

        fn snapshot(&mut self) -> Snapshot {
            self.named_counters.take_in(&self.counts());
            Snapshot::of(&self.named_counters.counted())
        }

        fn passed(&mut self, name: &str) -> u64 {
            let snapshot = self.snapshot();
            let service = snapshot.services.iter().find(|service| service.service == name);
            service.map_or(0, |service| service.columns.totals().passed_packets)
        }

        fn total(&mut self) -> u64 {
            self.snapshot().totals().passed_packets
        }
    }

    #[test]
    fn counts_stay_with_a_name_that_leaves_and_returns() {
        let mut host = Host::default();
        host.apply(&["web", "dns"]);
        host.send("web", 500);
        host.send("dns", 7);
        host.send("", 3);
        host.apply(&["dns"]);
        assert_eq!((host.passed(""), host.passed("dns"), host.total()), (3, 7, 510));
        assert_eq!(host.snapshot().former_services[0].service, "web");
        host.apply(&["new", "dns"]);
        assert_eq!((host.passed("new"), host.total()), (0, 510));
        host.apply(&["web", "new", "dns"]);
        host.send("web", 1);
        assert_eq!((host.passed("web"), host.passed(""), host.total()), (501, 3, 511));
        assert!(host.snapshot().former_services.is_empty());
    }

    #[test]
    fn order_and_names_of_others_change_no_counts() {
        let mut host = Host::default();
        host.apply(&["a", "b"]);
        host.send("a", 1);
        host.send("b", 2);
        host.apply(&["b", "a"]);
        assert_eq!((host.passed("a"), host.passed("b")), (1, 2));
        // A service that is renamed is another one.
        host.apply(&["b", "c"]);
        assert_eq!((host.passed("c"), host.passed("b"), host.total()), (0, 2, 3));
    }

    #[test]
    fn an_index_passes_on_no_counts() {
        let mut host = Host::default();
        let mut sent = 0;
        for number in 1..50 {
            let name = number.to_string();
            host.apply(&["stays", &name]);
            assert_eq!(host.passed(&name), 0, "service {name}");
            host.send(&name, number);
            host.send("stays", 1);
            sent += number + 1;
            assert_eq!((host.passed(&name), host.total()), (number, sent));
        }
        assert!(host.named_counters.names.len() <= MANY + 1, "names without a row are forgotten");
    }

    #[test]
    fn services_that_swap_all_indices_keep_their_counts() {
        let mut host = Host::default();
        host.apply(&["a", "b", "c", "d"]);
        host.send("a", 9);
        host.apply(&["e", "f", "g", "h"]);
        host.send("e", 1);
        assert_eq!((host.passed("e"), host.total()), (1, 10), "{:?}", host.rows);
    }

    #[test]
    fn a_new_count_begins_with_what_the_kernel_holds() {
        let mut host = Host::default();
        host.apply(&["web"]);
        host.send("web", 5);
        let mut next = NamedCounters::default();
        next.take_in_forgotten(&[count(9, 4)]);
        next.follow(&host.places);
        next.take_in(&host.counts());
        let snapshot = Snapshot::of(&next.counted());
        assert_eq!(
            (snapshot.services[1].columns.totals().passed_packets, snapshot.totals().passed_packets),
            (5, 9)
        );
        assert_eq!(snapshot.services[0].columns.totals().passed_packets, 0);
    }

    #[test]
    fn every_counter_is_told_once() {
        let mut host = Host::default();
        host.apply(&["web", "idle"]);
        host.send("web", 5);
        host.named_counters.take_in(&host.counts());
        let CountedServices { counts, names, .. } = host.named_counters.counted();
        let told = |name: &str| -> Vec<u64> {
            let number = names.of(name).map_or(0, |index| index as u32 + 1);
            counts.iter().filter(|count| count.service == number).map(|count| count.counter.packets).collect()
        };
        assert_eq!([told("web"), told("idle"), told("")], [vec![5], vec![0], vec![0]]);
    }

    #[test]
    fn a_late_reader_counts_nothing_twice() {
        let mut host = Host::default();
        host.apply(&["web"]);
        host.send("web", 5);
        let (_, stamp) = host.named_counters.rows();
        let early = host.counts();
        host.send("web", 5);
        assert_eq!(host.passed("web"), 10);
        assert!(host.named_counters.take_in_since(stamp, &early));
        assert_eq!(host.passed("web"), 10);
        host.apply(&["dns"]);
        assert!(!host.named_counters.take_in_since(stamp, &early));
    }
}
