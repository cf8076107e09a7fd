//! The guarded host: its owners, and what work across owners gets.

use std::{
    io,
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
    state::saved_clients::ClientKeeper,
    traffic::{Traffic, drops::Drops},
};
use crate::{
    attacks::Tallied,
    compile::Places,
    dataplane::{clients::ClientMemory, kernel::Meters, table::SourceTable},
    failure::Failure,
    policy::Policy,
    stats::{attack_state::AttackState, history::TrafficHistory},
};

/// The running host, with one owner for each responsibility.
#[derive(Debug)]
pub(super) struct Host {
    /// The policy in force, and the record that a restart goes on with.
    pub(super) in_force: PolicyInForce,
    /// The kernel maps, and the desired state that they hold.
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
    /// The traffic of the last minutes, for the dashboard.
    pub(super) history: TrafficHistory,
    pub(super) requests: Requests,
    /// Saves known clients.
    pub(super) client_keeper: Arc<ClientKeeper>,
    /// This host's part in the cluster, if it is in one.
    pub(super) cluster: Option<Cluster>,
    pub(super) started: Instant,
}

impl Host {
    /// Returns the policy in force.
    pub(super) fn policy(&self) -> &Policy {
        self.in_force.policy()
    }

    /// Returns the policy in force, and the enforcer that puts another one in force.
    pub(super) fn change(&mut self) -> (&mut PolicyInForce, Enforcer<'_>) {
        let enforcer = Enforcer {
            enforced: &mut self.enforced,
            lists: &mut self.lists.lists,
            has_headroom: self.headroom.is_there(),
            requests: &self.requests,
        };
        (&mut self.in_force, enforcer)
    }

    /// Returns the editor of the lists, with everything that a change of them reaches.
    pub(super) fn list_editor(&mut self) -> ListEditor<'_> {
        ListEditor {
            book: &mut self.lists,
            maps: &mut self.enforced.maps,
            cluster: self.cluster.as_mut(),
            policy: self.in_force.policy(),
        }
    }

    /// Returns the table of sources, which can be read without the lock of the host.
    pub(super) fn table(&self) -> Arc<SourceTable> {
        self.enforced.maps.table()
    }

    /// Returns the memory of known clients, which can be read without the lock of the host.
    pub(super) fn clients(&self) -> Arc<ClientMemory> {
        self.enforced.maps.clients()
    }

    /// Returns the work of saving known clients, to be done without the lock of the host.
    pub(super) fn saving_clients(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (keeper, clients) = (Arc::clone(&self.client_keeper), self.clients());
        let secret = self.enforced.desired.policy.prefilter.secret;
        move || keeper.save(&clients, secret)
    }

    /// Returns the counters, which can be read without the lock of the host.
    pub(super) fn meters(&self) -> Meters {
        self.enforced.maps.meters()
    }

    /// Returns the names of services at their indices.
    pub(super) fn services(&self) -> Places {
        self.enforced.desired.names.services.clone()
    }

    /// Reads how often an event has happened in the kernel program.
    pub(super) fn event(&self, event: Event) -> Result<u64, Failure> {
        Ok(self.enforced.maps.event(event)?)
    }

    /// Takes in the drop events of the kernel program.
    pub(super) fn take_in_drops(&mut self) {
        let attacks = &mut self.attacks;
        let services = &self.enforced.desired.names.services;
        self.drops.take_in(self.in_force.policy(), services, |sighting| attacks.see(sighting));
    }

    /// Returns warnings about conditions of this host that keep the policy from working as it should.
    pub(super) fn warnings(&self) -> Vec<String> {
        let policy = self.policy();
        [self.conditions.warnings(policy), self.enforced.translation.warnings(policy)].concat()
    }

    /// Logs new warnings about interfaces on which packets are not answered although the policy wants answers.
    pub(super) fn say_silence(&self) {
        self.interfaces.with(|interfaces| interfaces.say_silence(self.policy()));
    }

    /// Follows the attack state, and the arrivals of clients that connect by cookie. Called once a second.
    pub(super) fn observe(&mut self) -> Result<(), Failure> {
        let (maps, policy) = (&self.enforced.maps, self.in_force.policy());
        let budget =
            u64::from(policy.prefilter().new_sources_per_cpu()) * u64::from(self.enforced.facts.cpus);
        self.attack.observe(maps, budget)?;
        self.conditions.follow_arrivals(maps, policy)
    }

    /// Recognises attacks by the counters, which were read at `read`. Called once a second; the counters are read without the lock of the host.
    pub(super) fn observe_attacks(&mut self, tallied: Tallied, read: Instant) {
        let flood = self.attack.watch.attack_state() == AttackState::Flood;
        self.attacks.observe((tallied, read), flood, self.in_force.policy());
        self.attack.follow(self.attacks.is_any_ongoing());
    }

    /// Follows the host's headroom and the kernel's settings. Called once a second.
    pub(super) fn follow_facts(&mut self, now: Instant) {
        self.headroom.look(now);
        self.requests.set_headroom(self.headroom.is_there());
        let (in_force, mut enforcer) = self.change();
        enforcer.follow_facts(&in_force.version);
        enforcer.enforced.translation.say(in_force.policy());
    }
}

/// The host behind a lock.
#[derive(Debug)]
pub(super) struct HostCell(Mutex<Host>);

impl HostCell {
    /// Makes a host that several threads can share.
    pub(super) fn new(host: Host) -> Arc<Self> {
        Arc::new(Self(Mutex::new(host)))
    }

    /// Locks the host.
    pub(super) fn host(&self) -> MutexGuard<'_, Host> {
        // Every change to the host is made in the kernel first and recorded last, so the host stays usable after a panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
