//! The counters of the program: frames and bytes by service, reason and fate.

use std::{
    fmt,
    os::fd::AsFd as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aya::{
    Pod,
    maps::{IterableMap as _, Map, MapData, PerCpuArray, PerCpuValues},
};
use ratelimit_common::abi::{
    Counter, Event, Reason, Verdict,
    counter::{Fate, slot},
    service::MAX_SERVICES,
};

use super::KernelMaps;
use crate::{
    compile::Places,
    dataplane::DataplaneError,
    stats::{
        Count,
        known_packets::KnownPackets,
        named_counters::{CountedServices, NamedCounters},
    },
};

impl KernelMaps {
    /// Returns the counters as the kernel has them, summed over all CPUs: those of packets for no service, then those of each service that a policy
    /// had since the maps were opened.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        let (rows, _) = self.meters.named_counters().rows();
        read_counts(&self.counters, rows.into_iter())
    }

    /// Returns a handle that reads the counters without holding up other work: many services take thousands of system calls.
    pub fn meters(&self) -> Meters {
        self.meters.clone()
    }

    /// Returns frames and bytes by reason, summed over all services and CPUs. Frames whose fate was not decided by their reason are left out.
    pub fn counters(&self) -> Result<Vec<(Reason, Counter)>, DataplaneError> {
        let mut sums: Vec<(Reason, Counter)> =
            Reason::ALL.iter().map(|reason| (*reason, Counter { packets: 0, bytes: 0 })).collect();
        for count in self.counts()?.iter().filter(|count| count.fate == Fate::Decided) {
            let (_, sum) = &mut sums[count.reason as usize];
            sum.packets = sum.packets.wrapping_add(count.counter.packets);
            sum.bytes = sum.bytes.wrapping_add(count.counter.bytes);
        }
        Ok(sums)
    }

    /// Returns the frames that ended with a reason, of all services that are and that were. Frames whose fate was not decided by their reason are left
    /// out.
    pub fn packets(&self, reason: Reason) -> Result<u64, DataplaneError> {
        let named_counters = self.meters.take_in(|row| {
            let counter = read_counter(&self.counters, slot(row, reason, Fate::Decided))?;
            Ok(vec![Count { service: row, reason, fate: Fate::Decided, counter }])
        })?;
        Ok(named_counters.packets(reason))
    }

    /// Empties the counters at the indices of new services, so that the next daemon does not take what is there for theirs. What was counted there moves
    /// to a row that no service has.
    ///
    /// Called before the policy with the new services comes into force. A row into which the policy in force still counts is left as it is: this
    /// daemon knows whose counts those are, and the next one takes them for the new service's.
    pub(super) fn empty_counters(&mut self, services: &[u32], next: &Places) -> Result<(), DataplaneError> {
        let mut named_counters = self.meters.named_counters();
        for number in services.iter().map(|index| index + 1) {
            let counts = read_counts(&self.counters, [number].into_iter())?;
            let has_counts = counts.iter().any(|count| count.counter.packets > 0);
            if !has_counts || named_counters.is_in_force(number) {
                continue;
            }
            named_counters.take_in(&counts);
            let is_free = |row: &u32| !named_counters.is_in_force(*row) && next.of_number(*row).is_none();
            let Some(free) = (1..=MAX_SERVICES as u32).rev().find(is_free) else { continue };
            for Count { reason, fate, .. } in counts.iter().filter(|count| count.counter.packets > 0) {
                let [from, to] = [number, free].map(|row| slot(row, *reason, *fate));
                move_counter(&mut self.counters, from, to)?;
            }
            named_counters.moved(number, free, &counts);
        }
        Ok(())
    }
}

/// A handle to the counters, and the names of those whose they are.
#[derive(Clone)]
pub struct Meters {
    counters: Arc<PerCpuArray<MapData, Counter>>,
    events: Arc<PerCpuArray<MapData, u64>>,
    named_counters: Arc<Mutex<NamedCounters>>,
}

impl Meters {
    /// Makes the handle for the counters of maps that were just opened.
    pub(super) fn new(
        counters: &PerCpuArray<MapData, Counter>,
        events: &PerCpuArray<MapData, u64>,
    ) -> Result<Self, DataplaneError> {
        let (counters, events) = (once_more(counters)?, once_more(events)?);
        Ok(Self { counters: Arc::new(counters), events: Arc::new(events), named_counters: Arc::default() })
    }

    /// Reads every counter, summed over all CPUs, by the names of services.
    pub fn counted(&self) -> Result<CountedServices, DataplaneError> {
        let known = read_known_packets(&self.events)?;
        let named_counters = self.take_in(|row| read_counts(&self.counters, [row].into_iter()))?;
        Ok(CountedServices { known, ..named_counters.counted() })
    }

    /// Adds what `read` finds in each row to the counts by name. These are not locked meanwhile.
    fn take_in(
        &self,
        read: impl Fn(u32) -> Result<Vec<Count>, DataplaneError>,
    ) -> Result<MutexGuard<'_, NamedCounters>, DataplaneError> {
        loop {
            let (rows, stamp) = self.named_counters().rows();
            let mut counts = Vec::new();
            for row in rows {
                counts.extend(read(row)?);
            }
            let mut named_counters = self.named_counters();
            if named_counters.take_in_since(stamp, &counts) {
                return Ok(named_counters);
            }
        }
    }

    /// Follows a policy that has come into force. Never fails, because the policy is in force: a row that cannot be read is read again later.
    pub(super) fn follow(&self, next: &Places) {
        let mut named_counters = self.named_counters();
        let rows = 1..=MAX_SERVICES as u32;
        if named_counters.is_new() {
            let without = rows.clone().filter(|number| next.of_number(*number).is_none());
            named_counters.take_in_forgotten(&read_counts(&self.counters, without).unwrap_or_default());
        }
        let passing: Vec<u32> = rows.filter(|number| named_counters.passes_on(*number, next)).collect();
        named_counters.take_in(&read_counts(&self.counters, passing.into_iter()).unwrap_or_default());
        named_counters.follow(next);
    }

    fn named_counters(&self) -> MutexGuard<'_, NamedCounters> {
        // What a thread that panicked has added is right as far as it came.
        self.named_counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// aya's arrays by CPU have no Debug of their own.
impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("named_counters", &self.named_counters).finish_non_exhaustive()
    }
}

/// Opens an array by CPU once more.
fn once_more<T: Pod>(array: &PerCpuArray<MapData, T>) -> Result<PerCpuArray<MapData, T>, DataplaneError> {
    let fd = array.map().fd().as_fd().try_clone_to_owned();
    let fd = fd.map_err(DataplaneError::io("open the counters once more"))?;
    let array = MapData::from_fd(fd).and_then(|map| PerCpuArray::try_from(Map::PerCpuArray(map)));
    array.map_err(DataplaneError::map("open the counters once more"))
}

/// Reads how often an event happened, summed over all CPUs.
pub(in crate::dataplane) fn read_event(
    events: &PerCpuArray<MapData, u64>,
    event: Event,
) -> Result<u64, DataplaneError> {
    let per_cpu = events.get(&(event as u32), 0).map_err(DataplaneError::map("read the events"))?;
    Ok(per_cpu.iter().sum())
}

/// Reads the packets of known clients that came while a total was spent.
pub(in crate::dataplane) fn read_known_packets(
    events: &PerCpuArray<MapData, u64>,
) -> Result<KnownPackets, DataplaneError> {
    Ok(KnownPackets {
        admitted: read_event(events, Event::KnownAdmitted)?,
        refused: read_event(events, Event::KnownRefused)?,
    })
}

/// Reads every counter of the given services, summed over all CPUs. Service 0 stands for packets of no service.
pub(in crate::dataplane) fn read_counts(
    counters: &PerCpuArray<MapData, Counter>,
    services: impl Iterator<Item = u32>,
) -> Result<Vec<Count>, DataplaneError> {
    let mut counts = Vec::new();
    for service in services {
        for reason in Reason::ALL.iter().copied() {
            // Only frames that a reason drops can have another fate.
            let dropped = reason.verdict() == Verdict::Drop;
            for fate in Fate::ALL.into_iter().filter(|fate| dropped || *fate == Fate::Decided) {
                let counter = read_counter(counters, slot(service, reason, fate))?;
                counts.push(Count { service, reason, fate, counter });
            }
        }
    }
    Ok(counts)
}

/// Adds the counters of one slot to those of another, and empties them. No CPU may count into either.
fn move_counter(
    counters: &mut PerCpuArray<MapData, Counter>,
    from: u32,
    to: u32,
) -> Result<(), DataplaneError> {
    let failed = || DataplaneError::map("move the counters of a service that is gone");
    let (moved, there) = (counters.get(&from, 0), counters.get(&to, 0));
    let (moved, there) = (moved.map_err(failed())?, there.map_err(failed())?);
    let empty = vec![Counter { packets: 0, bytes: 0 }; moved.len()];
    let sums: Vec<Counter> = moved.iter().zip(there.iter()).map(|(one, other)| plus(*one, *other)).collect();
    for (slot, values) in [(to, sums), (from, empty)] {
        let values = PerCpuValues::try_from(values).map_err(DataplaneError::io("count the CPUs"))?;
        counters.set(slot, values, 0).map_err(failed())?;
    }
    Ok(())
}

fn read_counter(counters: &PerCpuArray<MapData, Counter>, slot: u32) -> Result<Counter, DataplaneError> {
    let per_cpu = counters.get(&slot, 0).map_err(DataplaneError::map("read the counters"))?;
    Ok(per_cpu.iter().fold(Counter { packets: 0, bytes: 0 }, |sum, one| plus(sum, *one)))
}

fn plus(one: Counter, other: Counter) -> Counter {
    Counter { packets: one.packets.wrapping_add(other.packets), bytes: one.bytes.wrapping_add(other.bytes) }
}
