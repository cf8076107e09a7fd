//! What the maps must hold, and what they hold now.

use ratelimit_common::abi::{
    self, LimitSet, Total,
    service::{HOST_TOTAL, MAX_TOTALS},
};

use super::{
    destination::Destination,
    lists::{self, UserSources},
    names::Names,
    succession,
};
use crate::policy::Prefix;

/// What the maps must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The policy in force.
    pub policy: Box<abi::Policy>,
    /// Whether the policy that is in force says all that already.
    pub keeps_policy: bool,
    /// Which service a packet is for at a port that services share.
    pub destinations: Vec<Destination>,
    /// Services whose totals are not what they were, in order, and the host behind them.
    pub changed_totals: Vec<u32>,
    /// Services whose index had another service or none before, in order: nothing of theirs is spent, neither by a source nor of their totals.
    pub new_services: Vec<u32>,
    /// The limits of users, by index.
    pub users: Vec<(u32, LimitSet)>,
    /// Whether the tables of users' limits and of destinations that are in force say all that already.
    pub keeps_tables: bool,
    /// Users whose index had another user or none before: their buckets start full.
    pub new_users: Vec<u32>,
    /// Windows of users that begin afresh, by user and place.
    pub new_user_windows: Vec<u32>,
    /// The prefixes of users, by one more than the user's index.
    pub user_sources: Vec<UserSources>,
    /// The index of each name.
    pub names: Names,
}

/// The policy that the maps hold now.
#[derive(Clone, Copy, Debug)]
pub struct Before<'b> {
    /// The policy in the kernel.
    pub policy: &'b abi::Policy,
    /// The names that have places in the maps in force.
    pub names: &'b Names,
    /// The limits of its users, by index.
    pub users: &'b [LimitSet],
    /// What it was made of; unknown if it was another daemon that put it there.
    pub desired: Option<&'b Desired>,
    /// Now, as a time word of the kernel's clock.
    pub now_q8: u64,
}

impl<'b> Before<'b> {
    /// What this daemon has put there.
    pub fn known(policy: &'b abi::Policy, desired: &'b Desired, now_q8: u64) -> Self {
        Self { policy, names: &desired.names, users: &[], desired: Some(desired), now_q8 }
    }

    pub(super) fn user_set(&self, index: usize) -> Option<&'b LimitSet> {
        self.desired.map_or_else(|| self.users.get(index), |desired| desired.user_set(index as u32))
    }
}

impl Desired {
    /// Every prefix of a user, and one more than the user's index.
    pub fn user_prefixes(&self) -> impl Iterator<Item = (Prefix, u16)> {
        lists::user_prefixes(&self.user_sources)
    }

    /// Has every source begin without a burst: the table that says what it has spent is another one from now on.
    pub fn sources_begin_spent(&mut self, now_q8: u64) {
        self.keeps_policy = false;
        self.policy.source.set = succession::spent(self.policy.source.set, now_q8);
        for service in &mut self.policy.services {
            service.per_source = succession::spent(service.per_source, now_q8);
        }
    }

    /// Has every user begin without a burst.
    pub fn users_begin_spent(&mut self, now_q8: u64) {
        self.keeps_tables = false;
        for (_, set) in &mut self.users {
            *set = succession::spent(*set, now_q8);
        }
    }

    /// What takes the place of this policy once it is in force: what it lost sight of counts as spent since then, and not since the moment that it was
    /// compiled for, until when nothing is admitted. `None` if it lost sight of nothing.
    pub fn in_force_since(&self, compiled_for_q8: u64, now_q8: u64) -> Option<Self> {
        let is_lost = |set: &LimitSet| set.owed_q8 != 0 && set.owed_since_q8 == compiled_for_q8;
        let mut sets = self.policy.services.iter().map(|service| &service.per_source);
        // Asked before anything is copied: nearly every change loses sight of nothing, and costs what differs.
        if !is_lost(&self.policy.source.set) && !sets.any(is_lost) {
            return None;
        }
        let mut next = self.clone();
        let sets = next.policy.services.iter_mut().map(|service| &mut service.per_source);
        for set in sets.chain([&mut next.policy.source.set]).filter(|set| is_lost(set)) {
            set.owed_since_q8 = now_q8;
        }
        next.begin_again();
        next.keeps_tables = true;
        Some(next)
    }

    /// Makes the next generation of this policy.
    pub(super) fn begin_again(&mut self) {
        self.policy.generation += 1;
        self.keeps_policy = false;
        self.all_have_begun();
    }

    /// Says that services, users, windows and totals that the policy begins anew have begun by now: they do not begin once more.
    pub fn all_have_begun(&mut self) {
        (self.new_services, self.changed_totals) = (vec![], vec![]);
        (self.new_users, self.new_user_windows) = (vec![], vec![]);
    }

    /// Has the limits of users written where nobody reads them until the policy says so.
    pub(super) fn use_other_tables(&mut self) {
        self.keeps_tables = false;
        self.policy.tables = table(Some(self.policy.tables), false);
    }

    /// Has no window admit anything. What windows say of sources and users stays as it is.
    pub fn windows_admit_nothing(&mut self) {
        self.keeps_policy = false;
        for limit in &mut self.policy.windows {
            limit.window.limit = 0;
        }
    }

    /// Services that have a total, in order, and the host behind them if it has one.
    pub fn with_totals(&self) -> Vec<u32> {
        let has_one = |totals: &[Total; MAX_TOTALS]| totals.iter().any(|total| total.limit.tolerance_q8 != 0);
        let services = (0..).zip(self.policy.services.iter().map(|service| &service.totals));
        let all = services.chain([(HOST_TOTAL, &self.policy.host_totals)]);
        all.filter(|(_, totals)| has_one(totals)).map(|(index, _)| index).collect()
    }

    /// The limits of the user at an index.
    pub fn user_set(&self, index: u32) -> Option<&LimitSet> {
        let at = self.users.binary_search_by_key(&index, |(other, _)| *other).ok()?;
        Some(&self.users[at].1)
    }
}

/// The tables that stay, or those that the policy in force does not use: nobody reads them until the policy says so.
pub(super) fn table(in_force: Option<u32>, stays: bool) -> u32 {
    in_force.map_or(0, |table| if stays { table } else { (table + 1) % 2 })
}
