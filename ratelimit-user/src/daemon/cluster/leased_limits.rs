//! The leases of limits that hold on all hosts together: follows the policy, reads spent units from the kernel, and writes leases into it.

use std::time::Instant;

use ratelimit_common::{
    abi::{Lease, LimitSet, lease::lease_place},
    limit::{gcra, rate::Rate},
};

use super::Cluster;
use crate::{
    cluster::leases::LeasedLimit,
    compile::{self, HostFacts},
    daemon::in_force::enforcer::EnforcedPolicy,
    dataplane::probe,
    failure::Failure,
    policy::{Policy, User, WithoutStore, is_leased, terms::Terms},
};

impl Cluster {
    /// Reads the units that packets have spent, and gives the kernel leases that have changed.
    pub(in crate::daemon) fn look_after_leases(
        &mut self,
        policy: &Policy,
        enforced: &mut EnforcedPolicy,
    ) -> Result<(), Failure> {
        self.follow_policy(policy, enforced)?;
        let now_ns = probe::now_ns();
        self.wake_up(now_ns);
        let spent = enforced.maps.all_spent(&self.leases.places())?;
        self.leases.observe(now_ns, |place| spent.of(place));
        if self.is_cut_off() && self.policy.without_store() == WithoutStore::LastRate {
            self.leases.go_on(now_ns);
        }
        self.tell_leases(enforced)
    }

    /// Gives up every lease, so that other hosts can have the units.
    pub(in crate::daemon) fn give_up_leases(&mut self, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        self.leases.give_up(probe::now_ns());
        self.batch_due = Instant::now();
        self.tell_leases(enforced)
    }

    /// Marks the store records of a user to be reset with the next exchange that the store answers. Returns why the last exchange had no answer, if it had none.
    pub(in crate::daemon) fn reset_in_store(&mut self, user: &User) -> Option<&str> {
        let keys = named(user.network()).map(|(name, _)| self.keys.record(user.name(), &name));
        self.resets.extend(keys);
        self.problem.as_deref()
    }

    /// Goes over to the limits of the policy in force, if it is another one.
    fn follow_policy(&mut self, policy: &Policy, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        let generation = enforced.desired.policy.generation;
        if self.follows == Some(generation) {
            return Ok(());
        }
        let mut limits = Vec::new();
        for user in policy.users().iter() {
            let Some(index) = enforced.desired.names.users.of(user.name()) else { continue };
            let Some(set) = enforced.desired.user_set(index as u32) else { continue };
            limits.extend(self.leased_limits(user, index as u32, set, &enforced.facts));
        }
        let places: Vec<u32> = limits.iter().map(|limit| limit.place).collect();
        let spent = enforced.maps.all_spent(&places)?;
        let gone = self.leases.follow(limits, probe::now_ns(), |place| spent.of(place));
        self.follows = Some(generation);
        for place in gone {
            enforced.maps.set_lease(place, Lease::NONE)?;
        }
        Ok(())
    }

    /// Returns the limits of a user that hold on all hosts together.
    fn leased_limits(&self, user: &User, index: u32, set: &LimitSet, facts: &HostFacts) -> Vec<LeasedLimit> {
        let rates = user.network();
        let places = compile::places(rates, set, facts.headroom, facts.reserve);
        let leased = |((name, rate), place): ((String, &Rate), Option<usize>)| {
            let place = place.filter(|_| is_leased(rate))?;
            Some(LeasedLimit {
                key: self.keys.record(user.name(), &name),
                place: lease_place(index, place as u32),
                // These terms were checked when the policy was read.
                terms: Terms::of(rate, self.policy.reserve()).ok()?,
            })
        };
        named(rates).zip(places).filter_map(leased).collect()
    }

    /// Writes leases that have changed into the kernel.
    pub(super) fn tell_leases(&mut self, enforced: &mut EnforcedPolicy) -> Result<(), Failure> {
        for (place, lease) in self.leases.news() {
            let expires_q8 = gcra::time_q8(lease.expires_ns);
            enforced
                .maps
                .set_lease(place, Lease { ceiling: lease.ceiling, expires_q8, enough: lease.enough })?;
        }
        Ok(())
    }
}

/// Returns each limit of a user with its name in the store: what the limit counts, and a number from the second limit of this kind on.
fn named(rates: &[Rate]) -> impl Iterator<Item = (String, &Rate)> {
    rates.iter().enumerate().map(|(at, rate)| {
        let before = rates[..at].iter().filter(|other| other.meter == rate.meter).count();
        let number = if before == 0 { String::new() } else { format!("-{}", before + 1) };
        (format!("{}{number}", rate.meter.name()), rate)
    })
}
