//! The counters of the program: frames and bytes by service, reason and fate.

use std::{fmt, sync::Arc};

use aya::maps::{MapData, PerCpuArray};
use ratelimit_common::abi::{
    Counter, Reason, Verdict,
    counter::{Fate, slot},
};

use super::KernelMaps;
use crate::{dataplane::DataplaneError, stats::Count};

impl KernelMaps {
    /// Returns every counter that may have moved, summed over all CPUs: those of packets for no service, then those of each service
    /// that a policy had since the maps were opened.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        read_counts(&self.counters, self.counted.iter().copied())
    }

    /// Returns a handle that reads the counters without holding up other work: many services take thousands of system calls.
    pub fn meters(&self) -> Meters {
        Meters { counters: Arc::clone(&self.counters), services: self.counted.iter().copied().collect() }
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

    /// Returns the frames that ended with a reason, summed over all services and CPUs. Frames whose fate was not decided by their reason are left out.
    pub fn packets(&self, reason: Reason) -> Result<u64, DataplaneError> {
        self.counted
            .iter()
            .map(|service| Ok(self.counter(slot(*service, reason, Fate::Decided))?.packets))
            .sum()
    }

    fn counter(&self, slot: u32) -> Result<Counter, DataplaneError> {
        read_counter(&self.counters, slot)
    }
}

/// A handle to the counters of some services.
pub struct Meters {
    counters: Arc<PerCpuArray<MapData, Counter>>,
    services: Vec<u32>,
}

impl Meters {
    /// Reads every counter, summed over all CPUs.
    pub fn counts(&self) -> Result<Vec<Count>, DataplaneError> {
        read_counts(&self.counters, self.services.iter().copied())
    }
}

// aya's arrays by CPU have no Debug of their own.
impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("services", &self.services).finish_non_exhaustive()
    }
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

fn read_counter(counters: &PerCpuArray<MapData, Counter>, slot: u32) -> Result<Counter, DataplaneError> {
    let per_cpu = counters.get(&slot, 0).map_err(DataplaneError::map("read the counters"))?;
    Ok(per_cpu.iter().fold(Counter { packets: 0, bytes: 0 }, |sum, one| Counter {
        packets: sum.packets.wrapping_add(one.packets),
        bytes: sum.bytes.wrapping_add(one.bytes),
    }))
}
