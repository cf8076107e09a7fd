//! Block and allow lists: from what the operator typed to what a longest-prefix match must find.
//!
//! See `abi::list` for the two halves of an entry. [`effective`] fills the second half, [`changes`] orders the way from
//! one state of the tries to another.

use std::collections::BTreeMap;

use ratelimit_common::abi::{ListEntry, list::ALLOWED, user::NO_USER};

pub use crate::policy::{Prefix, PrefixError, TrieKey};

/// Every listed prefix with its entry.
pub type Lists = BTreeMap<Prefix, ListEntry>;

/// One write to a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Insert or replace.
    Set(Prefix, ListEntry),
    /// Remove.
    Remove(Prefix),
}

/// Fills in the effective half of every entry and drops entries that say nothing themselves.
///
/// One pass: in sorted order a prefix comes before everything inside it, so the prefixes around the current one are
/// a stack.
pub fn effective(own: Lists) -> Lists {
    let mut around: Vec<(Prefix, ListEntry)> = Vec::new();
    let mut lists = Lists::new();
    for (prefix, mut entry) in own {
        if entry.own_blocked_until_ns == 0 && entry.own_allowed != ALLOWED && entry.own_user == NO_USER {
            continue;
        }
        while around.last().is_some_and(|(wider, _)| !wider.covers(&prefix)) {
            around.pop();
        }
        let wider = around.last().map_or(ListEntry::EMPTY, |(_, entry)| *entry);
        entry.blocked_until_ns = entry.own_blocked_until_ns.max(wider.blocked_until_ns);
        entry.allowed = if entry.own_allowed == ALLOWED { ALLOWED } else { wider.allowed };
        entry.user = if entry.own_user == NO_USER { wider.user } else { entry.own_user };
        around.push((prefix, entry));
        lists.insert(prefix, entry);
    }
    lists
}

/// The same lists with the prefixes of other users.
pub fn with_users(mut own: Lists, prefixes: &[(Prefix, u16)]) -> Lists {
    for entry in own.values_mut() {
        entry.own_user = NO_USER;
    }
    for (prefix, user) in prefixes {
        own.entry(*prefix).or_insert(ListEntry::EMPTY).own_user = *user;
    }
    effective(own)
}

/// Why the operator blocked a prefix, if they said so.
pub fn reason_text(entry: &ListEntry) -> Option<String> {
    let bytes = entry.reason.get(..entry.reason_len as usize)?;
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The writes that lead from `observed` to `wanted`: at every step in between, each address has its old answer or its
/// new one, and goes from the first to the second once.
///
/// Sets come first, longest prefixes first; then removals, prefixes before what is inside them.
///
/// - A block of a /8 that arrives together with an exception inside it: the exception is there before the block.
/// - A covering block that goes: the entries inside it have let go of its answer first; nothing else matches less.
/// - A prefix and what is inside it both go: were the inner one removed first, its addresses would meet the outer one,
///   which is neither what they had nor what they will have.
///
/// Why it holds: an address meets the longest entry there is. While entries are set, every old one is still there, so one
/// with its old value is the one that answered before; and one with its new value has all longer ones around already, so
/// it is the one that will answer. While entries are removed, only old ones answer differently, and a longer one never
/// goes before a shorter one.
pub fn changes(observed: &Lists, wanted: &Lists) -> Vec<Change> {
    let written = wanted.iter().filter(|(prefix, entry)| observed.get(prefix) != Some(entry));
    let mut sets: Vec<_> = written.map(|(prefix, entry)| (*prefix, *entry)).collect();
    sets.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    let sets = sets.into_iter().map(|(prefix, entry)| Change::Set(prefix, entry));
    let removed = observed.keys().filter(|prefix| !wanted.contains_key(prefix));
    sets.chain(removed.map(|prefix| Change::Remove(*prefix))).collect()
}

/// Entries that a family's trie holds at most on the way from `observed` to `wanted`: sets come first, so all of both.
pub fn peak(observed: &Lists, wanted: &Lists, v4: bool) -> usize {
    let of_family = |lists: &Lists| lists.keys().filter(|prefix| prefix.is_v4() == v4).count();
    let new = wanted.keys().filter(|prefix| prefix.is_v4() == v4 && !observed.contains_key(prefix));
    of_family(observed) + new.count()
}

#[cfg(test)]
mod tests;
