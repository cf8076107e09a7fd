//! The desired state of the kernel maps, and what they hold now.

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

/// The desired state of the kernel maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The compiled policy.
    pub policy: Box<abi::Policy>,
    /// Whether the policy in the kernel is equal already, so that it need not be written.
    pub keeps_policy: bool,
    /// The service of each destination, at ports that services share.
    pub destinations: Vec<Destination>,
    /// Services whose totals change, in order, and then the host if its totals change.
    pub changed_totals: Vec<u32>,
    /// Services whose index had another service or none before, in order. Nothing counts as spent there, by sources or by totals.
    pub new_services: Vec<u32>,
    /// The limits of users, by index.
    pub users: Vec<(u32, LimitSet)>,
    /// Whether the tables of users' limits and of destinations in the kernel are equal already.
    pub keeps_tables: bool,
    /// Users whose index had another user or none before: their buckets start full.
    pub new_users: Vec<u32>,
    /// Windows of users that start from zero, by user and place.
    pub new_user_windows: Vec<u32>,
    /// The prefixes of each user, with one more than the user's index.
    pub user_sources: Vec<UserSources>,
    /// The names of services and users at their indices.
    pub names: Names,
}

/// The policy that the maps hold now.
#[derive(Clone, Copy, Debug)]
pub struct Before<'b> {
    /// The policy in the kernel.
    pub policy: &'b abi::Policy,
    /// The names that have places in the maps in force.
    pub names: &'b Names,
    /// The limits of the users in the maps, by index.
    pub users: &'b [LimitSet],
    /// The desired state that the maps were written from; `None` if another daemon wrote them.
    pub desired: Option<&'b Desired>,
    /// The present moment as a time word of the kernel's clock.
    pub now_q8: u64,
}

impl<'b> Before<'b> {
    /// The maps after this daemon has written `desired`.
    pub fn known(policy: &'b abi::Policy, desired: &'b Desired, now_q8: u64) -> Self {
        Self { policy, names: &desired.names, users: &[], desired: Some(desired), now_q8 }
    }

    pub(super) fn user_set(&self, index: usize) -> Option<&'b LimitSet> {
        self.desired.map_or_else(|| self.users.get(index), |desired| desired.user_set(index as u32))
    }
}

impl Desired {
    /// Every prefix of every user, with one more than the user's index.
    pub fn user_prefixes(&self) -> impl Iterator<Item = (Prefix, u16)> {
        lists::user_prefixes(&self.user_sources)
    }

    /// Makes every source begin without a burst, because the table of what sources have spent is replaced.
    pub fn sources_begin_spent(&mut self, now_q8: u64) {
        self.keeps_policy = false;
        self.policy.source.set = succession::spent(self.policy.source.set, now_q8);
        for service in &mut self.policy.services {
            service.per_source = succession::spent(service.per_source, now_q8);
        }
    }

    /// Makes every user begin without a burst.
    pub fn users_begin_spent(&mut self, now_q8: u64) {
        self.keeps_tables = false;
        for (_, set) in &mut self.users {
            *set = succession::spent(*set, now_q8);
        }
    }

    /// A copy for the moment the policy is in force: what it lost sight of counts as spent since `now_q8`, not since the moment it was
    /// compiled for. `None` if it lost sight of nothing.
    pub fn in_force_since(&self, compiled_for_q8: u64, now_q8: u64) -> Option<Self> {
        let is_lost = |set: &LimitSet| set.owed_q8 != 0 && set.owed_since_q8 == compiled_for_q8;
        let mut sets = self.policy.services.iter().map(|service| &service.per_source);
        // Checked before anything is copied: nearly every change loses sight of nothing.
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

    /// Gives this policy the next generation.
    pub(super) fn begin_again(&mut self) {
        self.policy.generation += 1;
        self.keeps_policy = false;
        self.all_have_begun();
    }

    /// Marks new services, users, windows and totals as begun, so that they do not begin once more.
    pub fn all_have_begun(&mut self) {
        (self.new_services, self.changed_totals) = (vec![], vec![]);
        (self.new_users, self.new_user_windows) = (vec![], vec![]);
    }

    /// Selects the tables that the policy in force does not read, so that limits of users are written there.
    pub(super) fn use_other_tables(&mut self) {
        self.keeps_tables = false;
        self.policy.tables = table(Some(self.policy.tables), false);
    }

    /// Makes every window admit nothing. What is counted for sources and users stays.
    pub fn windows_admit_nothing(&mut self) {
        self.keeps_policy = false;
        for limit in &mut self.policy.windows {
            limit.window.limit = 0;
        }
    }

    /// Services that have a total, in order, and then the host if it has one.
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

/// The number of the tables to write: those in force if they stay, otherwise the other ones, which nobody reads until the policy names them.
pub(super) fn table(in_force: Option<u32>, stays: bool) -> u32 {
    in_force.map_or(0, |table| if stays { table } else { (table + 1) % 2 })
}
