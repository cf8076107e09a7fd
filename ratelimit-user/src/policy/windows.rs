//! Checks whether the kernel has room for all windows of a policy.

use std::collections::HashSet;

use ratelimit_common::{
    abi::{Meter, window::MAX_WINDOWS},
    limit::{manner::Throttle, rate::Rate},
};

use super::{NamedLimit, Policy, Service, User};

/// The error for more different windows than the kernel has room for.
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
    /// Every limit of sources and users, in whatever list it is.
    pub fn every_rate(&self) -> impl Iterator<Item = &Rate> {
        let source = self.source().limits().iter().map(NamedLimit::rate);
        source
            .chain(self.services().iter().flat_map(Service::per_source))
            .chain(self.users().iter().flat_map(User::network))
    }

    /// Checks whether the kernel has room for all windows of the policy.
    pub fn windows_fit(&self) -> Result<(), TooManyWindows> {
        match self.different_windows() {
            count if count > MAX_WINDOWS => Err(TooManyWindows { count }),
            _ => Ok(()),
        }
    }

    /// The number of different windows; equal ones in several lists count once.
    pub fn different_windows(&self) -> usize {
        let windows = self.every_rate().filter(|rate| rate.manner.algorithm.is_window());
        let different: HashSet<(Meter, u64, u64, &str, u32)> = windows
            .flat_map(|rate| {
                let margin = rate.manner.margin(true);
                let parts = if margin == 0 { vec![0] } else { vec![0, margin] };
                // A soft window differs from a hard one with the same rate.
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
