//! The rig's own programs that limit: one that only counts what it passes, one that does the least that a limiter of sources does, and a peer
//! with a table of sources.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use aya::{Ebpf, EbpfLoader, maps};
use ratelimit_common::{abi::prefix::PREFIX_LEVEL_CELLS, limit::prefilter};
use rustix::time::{ClockId, clock_getres};

use crate::{
    case::{Case, SourceLimit},
    rig, traffic,
};

/// What they go by, in units of the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Packets that pass in one tick of the kernel's clock.
    per_tick: u32,
    has_total: bool,
    has_prefixes: bool,
    per_window: u64,
    window_ns: u64,
    table_entries: u32,
    listed: u32,
}

impl Terms {
    pub(super) fn of(case: &Case) -> Result<Self> {
        // The coarse clock moves once in a tick.
        let tick = clock_getres(ClockId::MonotonicCoarse);
        let tick_ns = u64::try_from(tick.tv_nsec).context("the kernel has no tick")?;
        Ok(Self::with_tick(case, tick_ns))
    }

    fn with_tick(case: &Case, tick_ns: u64) -> Self {
        let SourceLimit { packets, per, burst } = case.limit;
        let admitted = u64::from(case.admitted().unwrap_or(0));
        Self {
            per_tick: ((admitted * tick_ns + 500_000_000) / 1_000_000_000) as u32,
            has_total: case.total.is_some_and(|total| case.admitted() == Some(total)),
            // Light sources end at the total, and one source alone at its own limit: the prefix around them is not asked.
            has_prefixes: case.total.is_none(),
            // A count that begins anew has no burst beside its limit.
            per_window: u64::from(packets.max(burst)),
            window_ns: per.seconds() * 1_000_000_000,
            table_entries: case.table_entries,
            listed: case.listed,
        }
    }

    fn load(&self) -> Result<Ebpf> {
        let flag = |is_set: bool| u32::from(is_set);
        EbpfLoader::new()
            .override_global("PER_TICK", &self.per_tick, true)
            .override_global("HAS_TOTAL", &flag(self.has_total), true)
            .override_global("HAS_PREFIXES", &flag(self.has_prefixes), true)
            .override_global("HAS_BLOCKS", &flag(self.listed > 0), true)
            .override_global("PER_WINDOW", &self.per_window, true)
            .override_global("WINDOW_NS", &self.window_ns, true)
            .override_global("PORT", &traffic::PORT, true)
            // The sources of a hash share a word, and there are as many words as the limiter's prefilter has cells.
            .map_max_entries("REFUSED_UNTIL", prefilter::CELLS)
            .map_max_entries("PREFIX_CELLS", PREFIX_LEVEL_CELLS)
            .map_max_entries("COUNTED", self.table_entries)
            .map_max_entries("BLOCKED", self.listed.max(1))
            .load(rig::OBJECT)
            .context("cannot load the rig's object")
    }
}

/// Passes so many packets per tick and drops all others, without a look at them.
pub(super) fn pass_some(terms: Terms, interface: &str) -> Result<Ebpf> {
    rig::attached(terms.load()?, "pass_some", interface)
}

/// Reads the headers, one word of the source and one of its prefix where prefixes have limits, counts, and drops all but what a total admits in a tick.
pub(super) fn know_and_drop(terms: Terms, interface: &str) -> Result<Ebpf> {
    rig::attached(terms.load()?, "know_and_drop", interface)
}

/// A count for each source in an LRU hash, behind a hash of blocked addresses.
pub(super) fn count_in_lru(
    terms: Terms,
    blocked: impl Iterator<Item = Ipv4Addr>,
    interface: &str,
) -> Result<Ebpf> {
    let mut ebpf = terms.load()?;
    let map = ebpf.map_mut("BLOCKED").context("the rig has no map BLOCKED")?;
    let mut list: maps::HashMap<_, u64, u64> = map.try_into().context("BLOCKED is not a hash")?;
    for address in blocked {
        list.insert(u64::from(address.to_bits()), 1, 0).context("cannot fill BLOCKED")?;
    }
    rig::attached(ebpf, "count_in_lru", interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn terms(name: &str) -> Terms {
        let case = case::all(64).into_iter().find(|case| case.name == name).unwrap();
        Terms::with_tick(&case, 4_000_000)
    }

    #[test]
    fn a_rate_is_shared_out_among_the_ticks_of_a_second() {
        assert_eq!((terms("spoofed").per_tick, terms("1").per_tick), (400, 4));
        assert!(terms("spoofed").has_total && !terms("1").has_total && !terms("heavy").has_total);
        assert!(terms("heavy").has_prefixes && !terms("1").has_prefixes && !terms("spoofed").has_prefixes);
    }
}
