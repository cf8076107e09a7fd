//! From a policy to the kernel: what its maps hold, and all that has to follow when they hold something else.

use ratelimit_common::{abi::LimitSet, limit::gcra};

use crate::{
    compile::{self, Before, Desired, HostFacts, lists::Lists},
    daemon::{line::requests::Requests, state::version::PolicyVersion},
    dataplane::{DataplaneError, kernel::KernelMaps, probe, sysctl::TcpSettings},
    failure::Failure,
    log,
    policy::Policy,
};

/// The maps, and what they hold of the policy in force.
#[derive(Debug)]
pub(in crate::daemon) struct EnforcedPolicy {
    pub(in crate::daemon) maps: KernelMaps,
    /// A change of the policy writes what differs from it.
    pub(in crate::daemon) desired: Desired,
    /// What the policy in force was compiled for.
    pub(in crate::daemon) facts: HostFacts,
}

impl EnforcedPolicy {
    /// Gives a user its whole burst again, also what a change of its limits has it owe.
    pub(in crate::daemon) fn reset_user(&mut self, index: u32) -> Result<(), DataplaneError> {
        if let Some(next) = self.desired.forgiving(index) {
            self.maps.set_policy(&next)?;
            self.desired = next;
        }
        self.maps.refill_user(index)
    }

    /// Says to the kernel that the policy is in force now, if that makes a difference: one that loses sight of what was spent admits nothing until the
    /// moment that it was compiled for, which is a second ahead because lists may take that long.
    pub(in crate::daemon) fn begin(&mut self, compiled_for_q8: u64) {
        let now_q8 = gcra::time_q8(probe::now_ns());
        let Some(begun) = self.desired.in_force_since(compiled_for_q8, now_q8) else { return };
        match self.maps.set_policy(&begun) {
            Ok(()) => self.desired = begun,
            Err(error) => log::warning(format!("{error}: limits admit nothing for up to a second")),
        }
    }

    /// Ends what a daemon has left that was killed when it had moved totals for a policy, and had not put that policy in force yet.
    pub(in crate::daemon) fn settle_totals(&mut self) {
        let EnforcedPolicy { maps, desired, .. } = self;
        if let Err(error) = maps.end_overdrafts(&desired.policy, &desired.with_totals()) {
            log::warning(format!("{error}: a total may refuse more than it should until it has filled"));
        }
    }
}

/// Has users owe what they have spent under limits that the next policy has slower, with a bigger burst, or in other units. What cannot be read is not owed: the policy comes into force all the same.
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

/// Everything that a policy is put in force with.
#[derive(Debug)]
pub(in crate::daemon) struct Enforcer<'h> {
    pub(in crate::daemon) enforced: &'h mut EnforcedPolicy,
    pub(in crate::daemon) lists: &'h mut Lists,
    /// Whether the host has headroom now.
    pub(in crate::daemon) has_headroom: bool,
    pub(in crate::daemon) requests: &'h Requests,
}

impl Enforcer<'_> {
    /// Tells the kernel. Says how many entries of the lists were written.
    pub(in crate::daemon) fn enforce(&mut self, version: &PolicyVersion) -> Result<usize, Failure> {
        let policy = version.policy();
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

    /// Enforces the policy in force again if the host is not what it was compiled for. Called once a second; what fails is tried again.
    pub(in crate::daemon) fn follow_facts(&mut self, version: &PolicyVersion) {
        if self.facts_for(version.policy()) == self.enforced.facts {
            return;
        }
        if let Err(failure) = self.enforce(version) {
            log::error(format!("the policy does not follow the state of the host, trying again: {failure}"));
        }
    }

    /// What a policy has to know of the host now.
    fn facts_for(&self, policy: &Policy) -> HostFacts {
        HostFacts {
            // Options promised under settings that have changed since would be read wrongly.
            window_scale: TcpSettings::read().window_scale(),
            // A policy without elastic limits always has the answer yes, so that nothing is enforced again for it.
            headroom: self.has_headroom || !policy.is_elastic(),
            ..self.enforced.facts
        }
    }
}
