//! Puts a policy in force: compiles it, writes it into the kernel maps, and tells everything that follows the policy.

use ratelimit_common::{abi::LimitSet, limit::gcra};

use super::translation::TranslationWatch;
use crate::{
    compile::{self, Before, Desired, HostFacts, lists::Lists},
    daemon::{line::requests::Requests, state::version::PolicyVersion},
    dataplane::{DataplaneError, kernel::KernelMaps, probe, sysctl::TcpSettings},
    failure::Failure,
    log,
    policy::Policy,
};

/// The maps, and the desired state that they hold.
#[derive(Debug)]
pub(in crate::daemon) struct EnforcedPolicy {
    pub(in crate::daemon) maps: KernelMaps,
    /// The desired state that the maps hold. A change of the policy writes only the differences.
    pub(in crate::daemon) desired: Desired,
    /// The facts about the host that the policy in force was compiled for.
    pub(in crate::daemon) facts: HostFacts,
    /// The ports that this host translates.
    pub(in crate::daemon) translation: TranslationWatch,
}

impl EnforcedPolicy {
    /// Gives a user its whole burst again, and forgives the debts that a change of its limits left.
    pub(in crate::daemon) fn reset_user(&mut self, index: u32) -> Result<(), DataplaneError> {
        if let Some(next) = self.desired.forgiving(index) {
            self.maps.set_policy(&next)?;
            self.desired = next;
        }
        self.maps.refill_user(index)
    }

    /// Tells the kernel that the policy is in force now, if that makes a difference. A policy that does not know what was spent admits nothing until the
    /// moment for which it was compiled, which is a second ahead because lists may take that long.
    pub(in crate::daemon) fn begin(&mut self, compiled_for_q8: u64) {
        let now_q8 = gcra::time_q8(probe::now_ns());
        let Some(begun) = self.desired.in_force_since(compiled_for_q8, now_q8) else { return };
        match self.maps.set_policy(&begun) {
            Ok(()) => self.desired = begun,
            Err(error) => log::warning(format!("{error}: limits admit nothing for up to a second")),
        }
    }

    /// Repairs totals that a daemon moved for a policy if it was killed before that policy came into force.
    pub(in crate::daemon) fn settle_totals(&mut self) {
        let EnforcedPolicy { maps, desired, .. } = self;
        if let Err(error) = maps.end_overdrafts(&desired.policy, &desired.policy, &desired.with_totals()) {
            log::warning(format!("{error}: a total may refuse more than it should until it has filled"));
        }
    }
}

/// Makes users owe what they have spent, under limits that the next policy has slower, with a bigger burst, or in other units. If a bucket cannot be
/// read, its user owes nothing, and the policy still comes into force.
pub(in crate::daemon) fn carry_debts(
    next: &mut Desired,
    before: impl Fn(u32) -> Option<LimitSet>,
    maps: &KernelMaps,
) {
    let bucket = |user: u32| match maps.user_bucket(user) {
        Ok(bucket) => Some(bucket),
        Err(error) => {
            log::warning(format!("{error}: a user may have part of a burst twice"));
            None
        }
    };
    next.carry_debts(before, bucket, gcra::time_q8(probe::now_ns()));
}

/// Everything that is needed to put a policy in force.
#[derive(Debug)]
pub(in crate::daemon) struct Enforcer<'h> {
    pub(in crate::daemon) enforced: &'h mut EnforcedPolicy,
    pub(in crate::daemon) lists: &'h mut Lists,
    /// Whether the host has headroom now.
    pub(in crate::daemon) has_headroom: bool,
    pub(in crate::daemon) requests: &'h Requests,
}

impl Enforcer<'_> {
    /// Puts a policy in force, and returns how many entries of the lists were written.
    pub(in crate::daemon) fn enforce(&mut self, version: &PolicyVersion) -> Result<usize, Failure> {
        let policy = version.policy();
        self.enforced.translation.look(policy);
        let facts = self.facts_for(policy);
        let EnforcedPolicy { maps, desired, .. } = &mut *self.enforced;
        let in_force = maps.policy();
        let compiled_for_q8 = probe::switch_q8();
        let before = in_force.as_deref().map(|policy| Before::known(policy, desired, compiled_for_q8));
        let mut next = compile::desired(policy, &facts, desired.policy.generation + 1, before);
        carry_debts(&mut next, |user| desired.user_set(user).copied(), maps);
        let written = maps.enforce(self.lists, Some(desired), &next)?;
        self.enforced.desired = next;
        self.enforced.facts = facts;
        self.enforced.begin(compiled_for_q8);
        self.requests.follow(version);
        Ok(written)
    }

    /// Enforces the policy again if the facts about the host have changed since it was compiled. Called once a second; a failure is tried again.
    pub(in crate::daemon) fn follow_facts(&mut self, version: &PolicyVersion) {
        self.enforced.translation.look(version.policy());
        if self.facts_for(version.policy()) == self.enforced.facts {
            return;
        }
        if let Err(failure) = self.enforce(version) {
            log::error(format!("the policy does not follow the state of the host, trying again: {failure}"));
        }
    }

    /// Returns the facts about the host that a policy is compiled for now.
    fn facts_for(&self, policy: &Policy) -> HostFacts {
        HostFacts {
            // The window scale follows the settings, or options in cookies would be read wrongly.
            window_scale: TcpSettings::read().window_scale(),
            // A policy without elastic limits always counts as having headroom, so that a change of headroom enforces nothing.
            headroom: self.has_headroom || !policy.is_elastic(),
            // A cookie must not be the answer where the acknowledgement goes elsewhere.
            translated: self.enforced.translation.services(policy),
            ..self.enforced.facts.clone()
        }
    }
}
