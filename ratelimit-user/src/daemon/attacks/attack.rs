//! The attack state of this host, concluded once a second from new sources, totals and attacks.

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
    /// Makes a watch that counts from now on. `is_attacked` says whether an attack goes on since before the start.
    pub(in crate::daemon) fn new(maps: &KernelMaps, is_attacked: bool) -> Result<Self, Failure> {
        let seen = AttackCounts::of(maps)?;
        let watch = Watch::default().with_attack(is_attacked);
        Ok(Self { watch, last_second: Pressure::default(), seen })
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
        self.go_over_to(self.watch.after(&self.last_second));
        Ok(())
    }

    /// Takes in whether an attack goes on.
    pub(in crate::daemon) fn follow(&mut self, is_attacked: bool) {
        self.go_over_to(self.watch.with_attack(is_attacked));
    }

    fn go_over_to(&mut self, next: Watch) {
        let before = std::mem::replace(&mut self.watch, next);
        let (from, to) = (before.attack_state().name(), next.attack_state().name());
        if from != to {
            tracing::warn!(
                event = "attack_state",
                from,
                to,
                "attack state {from} -> {to}: in the last second {} new sources, {} packets of others refused, {} over a total",
                self.last_second.promoted,
                self.last_second.refused_newcomers,
                self.last_second.over_total
            );
        }
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
