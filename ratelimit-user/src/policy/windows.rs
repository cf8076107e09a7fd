//! Whether there is room for all windows of a policy.

use std::collections::HashSet;

use ratelimit_common::{
    abi::{Meter, window::MAX_WINDOWS},
    limit::{manner::Throttle, rate::Rate},
};

use super::{NamedLimit, Policy, Service, User};

/// More different windows than the kernel has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} different windows are more than there can be; use at most {MAX_WINDOWS}, \
     equal ones and those of users on one plan count once"
)]
pub struct TooManyWindows {
    /// How many different windows there are.
    pub count: usize,
}

impl Policy {
    /// Every limit on sources and users, wherever it stands.
    pub fn every_rate(&self) -> impl Iterator<Item = &Rate> {
        let source = self.source().limits().iter().map(NamedLimit::rate);
        source
            .chain(self.services().iter().flat_map(Service::per_source))
            .chain(self.users().iter().flat_map(User::network))
    }

    /// Whether there is room for all windows.
    pub fn windows_fit(&self) -> Result<(), TooManyWindows> {
        match self.different_windows() {
            count if count > MAX_WINDOWS => Err(TooManyWindows { count }),
            _ => Ok(()),
        }
    }

    /// How many windows there are, each counted once wherever it stands.
    pub fn different_windows(&self) -> usize {
        let windows = self.every_rate().filter(|rate| rate.manner.algorithm.is_window());
        let different: HashSet<(Meter, u64, u64, &str, u32)> = windows
            .flat_map(|rate| {
                let margin = rate.manner.margin(true);
                let parts = if margin == 0 { vec![0] } else { vec![0, margin] };
                // What is soft is another window than the same one that is hard.
                let soft = u32::from(rate.manner.throttle != Throttle::Hard);
                parts.into_iter().map(move |percent| {
                    let name = rate.manner.algorithm.name();
                    (rate.meter, rate.period.ns(), rate.amount, name, percent * 2 + soft)
                })
            })
            .collect();
        different.len()
    }
}
