//! The names behind the indices of services and users.

use std::collections::BTreeMap;

use ratelimit_common::abi::{
    self,
    destination::BY_DESTINATION,
    service::{MAX_SERVICES, NO_SERVICE},
    user::{MAX_USERS, NO_USER},
};

use super::{lists::Lists, places::Places};
use crate::policy::{Policy, Service, User};

/// The names of services and users at their indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Indices of services.
    pub services: Places,
    /// Indices of users.
    pub users: Places,
}

impl Names {
    /// Recovers the names of what another daemon has put in force, as far as the next policy has them. Services are found by the marks of their names in
    /// the policy, or else by their ports; users by their prefixes, because the policy has no room for their marks.
    pub fn recovered(next: &Policy, in_force: &abi::Policy, lists: &Lists) -> Self {
        let service = |name: &str| {
            let service = next.services().iter().find(|one| one.name() == name)?;
            // A port that destinations divide belongs to no single service.
            let mut whole = service
                .entries_in(in_force)
                .into_iter()
                .filter(|entry| *entry != NO_SERVICE && entry & BY_DESTINATION == 0);
            whole.next().map(|index| index as usize - 1)
        };
        let services = next.services().iter().map(Service::name);
        Self {
            services: Places::recovered(services, &in_force.service_names, service),
            users: Self::users_by_prefixes(next, lists),
        }
    }

    /// The indices of users in the lists: each user's by the first of its prefixes that is listed.
    pub fn users_by_prefixes(next: &Policy, lists: &Lists) -> Places {
        let place = |user: &User| {
            let entries = user.sources().iter().filter_map(|prefix| lists.get(prefix));
            let index = entries.map(|entry| entry.own_user).find(|index| *index != NO_USER)?;
            Some(index as usize - 1)
        };
        // Sorted, so that of two users that claim one index the same one always gets it.
        let users: BTreeMap<&str, &User> = next.users().iter().map(|user| (user.name(), user)).collect();
        Places::known(users.into_iter().filter_map(|(name, user)| Some((name, place(user)?))))
    }

    /// The indices for the next policy: a name that was there before keeps its index.
    pub(super) fn after(before: Option<&Self>, policy: &Policy) -> Self {
        let none = Self::default();
        let before = before.unwrap_or(&none);
        Self {
            services: Places::after(
                &before.services,
                policy.services().iter().map(Service::name),
                MAX_SERVICES,
            ),
            users: Places::after(&before.users, policy.users().iter().map(User::name), MAX_USERS),
        }
    }
}

/// All items sorted by index, so that the order in the file does not matter.
pub(super) fn in_order<'p, T>(
    all: impl Iterator<Item = &'p T>,
    name: impl Fn(&T) -> &str,
    places: &Places,
) -> BTreeMap<usize, &'p T> {
    all.filter_map(|one| Some((places.of(name(one))?, one))).collect()
}
