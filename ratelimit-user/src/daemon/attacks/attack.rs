//! The attack state of this host, concluded once a second from new sources and totals.

use ratelimit_common::abi::{Event, Reason};

use crate::{
    dataplane::kernel::KernelMaps,
    failure::Failure,
    stats::attack_state::{Pressure, Watch},
};

/// Follows the attack state from second to second.
#[derive(Debug)]
pub(in crate::daemon) struct AttackWatch {
    pub(in crate::daemon) watch: Watch,
    pub(in crate::daemon) last_second: Pressure,
    seen: AttackCounts,
}

/// Counts at the last look, from which the next look subtracts.
#[derive(Clone, Copy, Debug, Default)]
struct AttackCounts {
    promoted: u64,
    refused_newcomers: u64,
    over_total: u64,
}

impl AttackWatch {
    /// Makes a watch that counts from now on.
    pub(in crate::daemon) fn new(maps: &KernelMaps) -> Result<Self, Failure> {
        let seen = AttackCounts::of(maps)?;
        Ok(Self { watch: Watch::default(), last_second: Pressure::default(), seen })
    }

    /// Takes in the counts of the last second. `budget` is the number of new sources that a second may have.
    pub(in crate::daemon) fn observe(&mut self, maps: &KernelMaps, budget: u64) -> Result<(), Failure> {
        let now = AttackCounts::of(maps)?;
        let before = std::mem::replace(&mut self.seen, now);
        self.last_second = Pressure {
            promoted: now.promoted - before.promoted,
            refused_newcomers: now.refused_newcomers - before.refused_newcomers,
            over_total: now.over_total - before.over_total,
            budget,
        };
        let next = self.watch.after(&self.last_second);
        if next.attack_state() != self.watch.attack_state() {
            tracing::warn!(
                event = "attack_state",
                from = self.watch.attack_state().name(),
                to = next.attack_state().name(),
                "posture {} -> {}: in the last second {} new sources, {} packets of others refused, {} over a total",
                self.watch.attack_state().name(),
                next.attack_state().name(),
                self.last_second.promoted,
                self.last_second.refused_newcomers,
                self.last_second.over_total
            );
        }
        self.watch = next;
        Ok(())
    }
}

impl AttackCounts {
    fn of(maps: &KernelMaps) -> Result<Self, Failure> {
        // Only these counters are read, because this happens every second: all counters of 256 services are 13 000 reads.
        Ok(Self {
            promoted: maps.event(Event::Promoted)?,
            refused_newcomers: maps.packets(Reason::NewSourceBudget)?,
            over_total: maps.packets(Reason::ServiceTotal)? + maps.packets(Reason::HostTotal)?,
        })
    }
}
