//! The host under guard: who looks after what of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ratelimit_common::abi::Event;

use super::{
    attacks::{Attacks, attack::AttackWatch},
    cluster::Cluster,
    conditions::{headroom::HeadroomWatch, interfaces::InterfaceCell, warnings::Conditions},
    in_force::{
        PolicyInForce,
        enforcer::{EnforcedPolicy, Enforcer},
    },
    line::requests::Requests,
    lists::{ListBook, ListEditor},
    traffic::{Traffic, drops::Drops},
};
use crate::{
    attacks::Tallied,
    compile::Places,
    dataplane::{kernel::Meters, table::SourceTable},
    failure::Failure,
    policy::Policy,
    stats::attack_state::AttackState,
};

/// The running host: one owner for each thing that it takes.
#[derive(Debug)]
pub(super) struct Host {
    /// The policy, and what a restart goes on with.
    pub(super) in_force: PolicyInForce,
    /// What the kernel maps hold of the policy.
    pub(super) enforced: EnforcedPolicy,
    /// The block list and the allow list.
    pub(super) lists: ListBook,
    pub(super) interfaces: InterfaceCell,
    pub(super) conditions: Conditions,
    pub(super) attack: AttackWatch,
    /// Attacks that were recognised.
    pub(super) attacks: Attacks,
    pub(super) headroom: HeadroomWatch,
    pub(super) drops: Drops,
    pub(super) traffic: Arc<Traffic>,
    pub(super) requests: Requests,
    /// This host's part in the cluster, if it is in one.
    pub(super) cluster: Option<Cluster>,
    pub(super) started: Instant,
}

impl Host {
    /// The policy in force.
    pub(super) fn policy(&self) -> &Policy {
        self.in_force.policy()
    }

    /// The policy in force, and everything that another one is put in force with.
    pub(super) fn change(&mut self) -> (&mut PolicyInForce, Enforcer<'_>) {
        let enforcer = Enforcer {
            enforced: &mut self.enforced,
            lists: &mut self.lists.lists,
            has_headroom: self.headroom.is_there(),
            requests: &self.requests,
        };
        (&mut self.in_force, enforcer)
    }

    /// The lists, and everything that a change of them reaches.
    pub(super) fn list_editor(&mut self) -> ListEditor<'_> {
        ListEditor {
            book: &mut self.lists,
            maps: &mut self.enforced.maps,
            cluster: self.cluster.as_mut(),
            policy: self.in_force.policy(),
        }
    }

    /// The table of sources, to be read without holding up anything else.
    pub(super) fn table(&self) -> Arc<SourceTable> {
        self.enforced.maps.table()
    }

    /// The counters, to be read without holding up anything else, and the services that they are of.
    pub(super) fn meters(&self) -> (Meters, Places) {
        (self.enforced.maps.meters(), self.enforced.desired.names.services.clone())
    }

    /// How often something has happened in the kernel program.
    pub(super) fn event(&self, event: Event) -> Result<u64, Failure> {
        Ok(self.enforced.maps.event(event)?)
    }

    /// Takes in what the kernel program has told of refused packets.
    pub(super) fn take_in_drops(&mut self) {
        let attacks = &mut self.attacks;
        let services = &self.enforced.desired.names.services;
        self.drops.take_in(self.in_force.policy(), services, |sighting| attacks.see(sighting));
    }

    /// Says by which interfaces nobody is answered although the policy says so, when that begins.
    pub(super) fn say_silence(&self) {
        self.interfaces.with(|interfaces| interfaces.say_silence(self.policy()));
    }

    /// Looks at what the last second brought, and follows it. Called once a second.
    pub(super) fn observe(&mut self) -> Result<(), Failure> {
        let (maps, policy) = (&self.enforced.maps, self.in_force.policy());
        let budget =
            u64::from(policy.prefilter().new_sources_per_cpu()) * u64::from(self.enforced.facts.cpus);
        self.attack.observe(maps, budget)?;
        self.conditions.follow_arrivals(maps, policy)
    }

    /// Recognises attacks by the counters. Called once a second, apart from the rest: counters are read beside everything else.
    pub(super) fn observe_attacks(&mut self, tallied: Tallied) {
        let flood = self.attack.watch.attack_state() == AttackState::Flood;
        self.attacks.observe(tallied, flood, self.in_force.policy());
    }

    /// Follows the host's headroom and the kernel's settings. Called once a second.
    pub(super) fn follow_facts(&mut self, now: Instant) {
        self.headroom.look(now);
        self.requests.set_headroom(self.headroom.is_there());
        let (in_force, mut enforcer) = self.change();
        enforcer.follow_facts(&in_force.version);
    }
}

/// The host, for one at a time.
#[derive(Debug)]
pub(super) struct HostCell(Mutex<Host>);

impl HostCell {
    /// A host that several work with from now on.
    pub(super) fn new(host: Host) -> Arc<Self> {
        Arc::new(Self(Mutex::new(host)))
    }

    /// The host, when nobody else works with it.
    pub(super) fn host(&self) -> MutexGuard<'_, Host> {
        // Every change to the host is made in the kernel first and recorded last: a panic half way leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
