//! Checks whether the store can count all limits that hosts share.

use ratelimit_common::limit::rate::Rate;

use super::{ClusterPolicy, LimitList, Plan, Policy, User, is_leased};
use crate::policy::terms::{Terms, TooFine};

/// A limit that the store cannot count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{list} \"{rate}\": {error}")]
pub struct Uncountable {
    /// The list that has the limit.
    pub list: LimitList,
    /// The limit that cannot be counted.
    pub rate: Rate,
    /// Why the store cannot count the limit, and which burst it could count.
    pub error: TooFine,
}

impl ClusterPolicy {
    /// Checks whether the store can count a limit. Limits that hosts do not share always pass.
    pub fn counts(&self, rate: &Rate) -> Result<(), TooFine> {
        if is_leased(rate) { Terms::of(rate, self.reserve()).map(|_| ()) } else { Ok(()) }
    }
}

impl Policy {
    /// Checks whether the store, if there is one, can count all limits of plans and users.
    pub fn leases_fit(&self) -> Result<(), Uncountable> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let fit = |list: &dyn Fn() -> LimitList, rates: &[Rate]| {
            rates.iter().try_for_each(|rate| {
                cluster.counts(rate).map_err(|error| Uncountable { list: list(), rate: *rate, error })
            })
        };
        let plan = |plan: &Plan| fit(&|| LimitList::Plan(plan.name().to_owned()), plan.network());
        let user =
            |user: &User| fit(&|| LimitList::User(user.name().to_owned()), user.own().unwrap_or_default());
        self.users().plans().try_for_each(plan)?;
        self.users().iter().try_for_each(user)
    }
}
