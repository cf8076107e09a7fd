//! Users in the form that the kernel program reads.

use ratelimit_common::abi::{LimitSet, window::SET_WINDOWS};

use super::{
    desired::{Before, Desired},
    facts::HostFacts,
    lists::UserSources,
    names::{Names, in_order},
    set,
    succession::SetTerms,
    window::{self, Windows},
};
use crate::policy::{Policy, User};

/// The terms of the limits of users.
pub(super) fn of_users(terms: SetTerms, facts: &HostFacts) -> SetTerms {
    SetTerms {
        prefilter: false,
        reserve: facts.reserve,
        remembers_debts: true,
        other_sources: false,
        ..terms
    }
}

/// Users at their indices.
pub(super) struct CompiledUsers {
    pub(super) sets: Vec<(u32, LimitSet)>,
    /// Users that are new at their index.
    pub(super) new: Vec<u32>,
    pub(super) sources: Vec<UserSources>,
}

pub(super) fn compile_users(
    policy: &Policy,
    terms: SetTerms,
    before: Option<Before<'_>>,
    (names, windows): (&Names, &mut Windows),
) -> CompiledUsers {
    let mut users = CompiledUsers { sets: Vec::new(), new: Vec::new(), sources: Vec::new() };
    for (index, user) in in_order(policy.users().iter(), User::name, &names.users) {
        let stays = before.filter(|before| before.names.users.of(user.name()) == Some(index));
        let set = stays.and_then(|before| before.user_set(index));
        users.sets.push((index as u32, set::compile(user.network(), terms, set, windows)));
        if before.is_some() && stays.is_none() {
            users.new.push(index as u32);
        }
        users.sources.push((index as u16 + 1, user.sources().clone()));
    }
    users
}

/// Windows of users that differ from those counted at their places before.
pub(super) fn new_user_windows(desired: &Desired, before: Option<Before<'_>>) -> Vec<u32> {
    let Some(before) = before else { return Vec::new() };
    let afresh = |index: u32, set: &LimitSet| {
        let old = before.user_set(index as usize).map_or([0; 8], |set| set.windows);
        if desired.new_users.binary_search(&index).is_ok() {
            return (0..SET_WINDOWS).collect();
        }
        window::afresh((before.policy, &old), (&desired.policy, &set.windows))
    };
    let of_user = |(index, set): &(u32, LimitSet)| {
        let first = index * SET_WINDOWS as u32;
        afresh(*index, set).into_iter().map(move |place| first + place as u32).collect::<Vec<_>>()
    };
    desired.users.iter().flat_map(of_user).collect()
}
