//! The part of a limit that one of many hosts gives while it cannot reach the store.

use super::allowance::AllowanceLimit;
use crate::{meter::Meter, policy::Alone};

/// The hosts that count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fleet {
    hosts: u64,
    /// Thousandths of a limit that hosts keep for themselves, where a policy says so.
    permille: u64,
}

impl Fleet {
    pub(super) fn new(hosts: u32, permille: u32) -> Self {
        Self { hosts: u64::from(hosts.max(1)), permille: permille.into() }
    }

    /// Returns the limits of a host that cannot reach the store, not laid out yet; `None` if it refuses everything then.
    pub(super) fn alone(self, rule: Alone, limits: &[AllowanceLimit]) -> Option<Vec<AllowanceLimit>> {
        let mut alone = Vec::with_capacity(limits.len());
        for limit in limits {
            let meter = self.part(rule, &limit.meter)?;
            alone.push(AllowanceLimit {
                name: limit.name.clone(),
                quota: limit.quota,
                window_s: limit.window_s,
                meter,
                margin: None,
                queue: limit.queue,
                at: 0,
                kin: limit.kin.clone(),
            });
        }
        Some(alone)
    }

    fn part(self, rule: Alone, meter: &Meter) -> Option<Meter> {
        match rule {
            Alone::Share => Some(meter.share(self.hosts)),
            Alone::Reserve => meter.part(self.permille, 1_000 * self.hosts),
            Alone::Local => Some(meter.clone()),
            Alone::Refuse => None,
        }
    }

    /// Takes out of a limit the parts that all hosts keep for themselves.
    pub(super) fn keep_back(self, limit: &mut AllowanceLimit) {
        limit.meter = limit.meter.without_parts(self.permille, self.hosts);
        if let Some(margin) = &mut limit.margin {
            margin.meter = margin.meter.without_parts(self.permille, self.hosts);
        }
    }
}
