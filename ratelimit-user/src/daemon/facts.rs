//! What the policy in force was compiled for, and what the host is now.

use super::{host::Host, log};
use crate::{compile::HostFacts, dataplane::sysctl::TcpSettings, policy::Policy};

impl Host {
    /// Enforces the policy in force again if the host is not what it was compiled for. Called once a second; what fails is tried again.
    pub(super) fn follow_facts(&mut self) {
        let policy = self.version.policy();
        if self.facts_for(policy) == self.facts {
            return;
        }
        let policy = policy.clone();
        if let Err(failure) = self.enforce(&policy) {
            log::error(format!("the policy does not follow the state of the host, trying again: {failure}"));
        }
    }

    /// What a policy has to know of the host now.
    pub(super) fn facts_for(&self, policy: &Policy) -> HostFacts {
        HostFacts {
            // Options promised under settings that have changed since would be read wrongly.
            window_scale: TcpSettings::read().window_scale(),
            // The same always for a policy that does not ask: nothing is enforced again for it.
            headroom: self.headroom.is_there() || !policy.is_elastic(),
            ..self.facts
        }
    }
}
