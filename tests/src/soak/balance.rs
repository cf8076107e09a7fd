//! Whether every packet that came in was judged: what the interfaces say they received against what the programs counted.
//!
//! A program counts each packet under exactly one reason, and `unlimited` is the reason of a packet that no policy judged. A packet that
//! arrived while no program was there is in no counter at all. Counters of builds with another layout are in maps of their own, which
//! stay readable here after the daemon has removed them.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use aya::maps::{Map, MapData, PerCpuArray};
use ratelimit_common::abi::{
    Counter, Reason,
    counter::{Fate, SERVICE_SLOTS, slot},
    names,
    service::MAX_SERVICES,
};

use crate::netns::Wire;

/// Services whose counters are read: more than the policies of a soak have.
const SERVICES: u32 = 8;

/// Received by all interfaces that are guarded, and judged by all programs that there have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) received: u64,
    pub(super) judged: u64,
    /// Judged without a policy.
    pub(super) unlimited: u64,
}

impl Balance {
    /// Packets that no policy judged.
    pub(super) fn missed(&self) -> i64 {
        self.received as i64 - self.judged as i64 + self.unlimited as i64
    }
}

/// The counters of every layout that there has been, and what interfaces received that are gone.
#[derive(Default)]
pub(super) struct PacketCounters {
    counters: BTreeMap<u32, PerCpuArray<MapData, Counter>>,
    gone: u64,
}

impl PacketCounters {
    /// Opens counters that were not there before. Called whenever a daemon may have made some, and before one may remove them.
    pub(super) fn find_counters(&mut self, pins: &Path) {
        for layout in fs::read_dir(pins).into_iter().flatten().flatten() {
            let Ok(map) = MapData::from_pin(layout.path().join(names::COUNTERS)) else { continue };
            let Ok(id) = map.info().map(|info| info.id()) else { continue };
            if let Ok(counters) = PerCpuArray::try_from(Map::PerCpuArray(map)) {
                self.counters.entry(id).or_insert(counters);
            }
        }
    }

    /// How many maps of counters there have been.
    pub(super) fn layouts(&self) -> usize {
        self.counters.len()
    }

    /// Says that an interface is about to go. Nothing may arrive there any more.
    pub(super) fn interface_goes(&mut self, wire: &Wire, name: &str) {
        self.gone += received(wire, name);
    }

    /// Reads both sides, when nothing more comes.
    pub(super) fn read(&self, wire: &Wire, interfaces: &[&str]) -> Balance {
        let mut last = Balance::default();
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(10));
            let now = self.read_once(wire, interfaces);
            if now == last {
                break;
            }
            last = now;
        }
        last
    }

    fn read_once(&self, wire: &Wire, interfaces: &[&str]) -> Balance {
        let here: u64 = interfaces.iter().map(|name| received(wire, name)).sum();
        let (mut judged, mut unlimited) = (0, 0);
        for counters in self.counters.values() {
            let packets = |at: u32| -> u64 {
                let by_cpu = counters.get(&at, 0);
                by_cpu.map_or(0, |by_cpu| by_cpu.iter().map(|counter| counter.packets).sum())
            };
            // What services counted that are gone may have moved to the last row.
            let rows = || (0..SERVICES).chain([MAX_SERVICES as u32]);
            let slots = rows().flat_map(|row| row * SERVICE_SLOTS..(row + 1) * SERVICE_SLOTS);
            judged += slots.map(packets).sum::<u64>();
            unlimited += rows().map(|row| packets(slot(row, Reason::Unlimited, Fate::Decided))).sum::<u64>();
        }
        Balance { received: self.gone + here, judged, unlimited }
    }
}

/// Packets that an interface of the edge host has received since it was made.
pub(super) fn received(wire: &Wire, name: &str) -> u64 {
    let table = wire.as_edge(|| fs::read_to_string("/proc/thread-self/net/dev").expect("the interfaces"));
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
