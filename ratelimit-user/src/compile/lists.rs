//! Block and allow lists: turns the entries that operators typed into entries for a longest-prefix match.
//!
//! See `abi::list` for the two halves of an entry. [`effective`] fills the second half, [`changes`] orders the way from
//! one state of the tries to another. [`edited`] does both for a few entries among many, without a look at the others.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use ratelimit_common::abi::{
    ListEntry,
    list::{ALLOWED, OF_CLUSTER},
    user::NO_USER,
};

use crate::policy::Sources;
pub use crate::policy::{Prefix, PrefixError, TrieKey};

/// Every listed prefix with its entry.
pub type Lists = BTreeMap<Prefix, ListEntry>;

/// A user's number in the lists, and the prefixes that the policy gives it.
pub type UserSources = (u16, Sources);

/// Prefixes with new own halves of their entries; the effective halves are ignored.
pub type Edits = BTreeMap<Prefix, ListEntry>;

/// One write to a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Insert or replace.
    Set(Prefix, ListEntry),
    /// Removes a prefix from the trie.
    Remove(Prefix),
}

impl Change {
    /// The prefix whose entry changes.
    pub fn prefix(&self) -> &Prefix {
        match self {
            Self::Set(prefix, _) | Self::Remove(prefix) => prefix,
        }
    }
}

/// Fills in the effective half of every entry and drops entries that say nothing themselves.
///
/// One pass: in sorted order a prefix comes before everything inside it, so the prefixes around the current one are
/// a stack.
pub fn effective(own: Lists) -> Lists {
    let mut around: Vec<(Prefix, ListEntry)> = Vec::new();
    let mut lists = Lists::new();
    for (prefix, mut entry) in own {
        if says_nothing(&entry) {
            continue;
        }
        while around.last().is_some_and(|(wider, _)| !wider.covers(&prefix)) {
            around.pop();
        }
        entry = inside(entry, around.last().map(|(_, wider)| wider));
        around.push((prefix, entry));
        lists.insert(prefix, entry);
    }
    lists
}

fn says_nothing(entry: &ListEntry) -> bool {
    entry.own_blocked_until_ns == 0 && entry.own_allowed != ALLOWED && entry.own_user == NO_USER
}

/// An entry with its effective half filled in, for its place inside another entry.
fn inside(entry: ListEntry, wider: Option<&ListEntry>) -> ListEntry {
    let wider = wider.unwrap_or(&ListEntry::EMPTY);
    ListEntry {
        blocked_until_ns: entry.own_blocked_until_ns.max(wider.blocked_until_ns),
        allowed: if entry.own_allowed == ALLOWED { ALLOWED } else { wider.allowed },
        user: if entry.own_user == NO_USER { wider.user } else { entry.own_user },
        ..entry
    }
}

/// Replaces the prefixes of users in the lists.
pub fn with_users(mut own: Lists, prefixes: impl IntoIterator<Item = (Prefix, u16)>) -> Lists {
    for entry in own.values_mut() {
        entry.own_user = NO_USER;
    }
    for (prefix, user) in prefixes {
        own.entry(prefix).or_insert(ListEntry::EMPTY).own_user = user;
    }
    effective(own)
}

/// The edits that give each prefix to the user that `after` names. `before` are the prefixes that users have in the lists; if it is
/// not known, the lists are searched.
pub fn user_edits(lists: &Lists, before: Option<&[UserSources]>, after: &[UserSources]) -> Edits {
    let mut owners: BTreeMap<Prefix, u16> = BTreeMap::new();
    match before {
        None => {
            let owned = lists.iter().filter(|(_, entry)| entry.own_user != NO_USER);
            owners.extend(owned.map(|(prefix, _)| (*prefix, NO_USER)));
            owners.extend(user_prefixes(after));
        }
        Some(before) => {
            let nobody = Sources::default();
            let old: BTreeMap<u16, &Sources> = by_user(before);
            let new: BTreeMap<u16, &Sources> = by_user(after);
            let pairs = || {
                let gone = old.iter().filter(|(user, _)| !new.contains_key(user));
                let gone = gone.map(|(user, sources)| (*user, *sources, &nobody));
                let stay =
                    new.iter().map(|(user, sources)| (*user, *old.get(user).unwrap_or(&&nobody), *sources));
                let differ = stay.chain(gone).filter(|(_, old, new)| old != new);
                differ.map(|(user, old, new)| (user, old.difference(new)))
            };
            // A prefix may go from one user to another, so losses are applied before gains.
            let differences: Vec<_> = pairs().collect();
            owners.extend(
                differences.iter().flat_map(|(_, difference)| &difference.gone).map(|p| (*p, NO_USER)),
            );
            for (user, difference) in &differences {
                owners.extend(difference.come.iter().map(|prefix| (*prefix, *user)));
            }
        }
    }
    let edit = |(prefix, own_user): (Prefix, u16)| {
        let entry = lists.get(&prefix).copied().unwrap_or(ListEntry::EMPTY);
        (entry.own_user != own_user).then_some((prefix, ListEntry { own_user, ..entry }))
    };
    owners.into_iter().filter_map(edit).collect()
}

fn by_user(all: &[UserSources]) -> BTreeMap<u16, &Sources> {
    all.iter().map(|(user, sources)| (*user, sources)).collect()
}

/// The prefixes of users, each with its user.
pub fn user_prefixes(all: &[UserSources]) -> impl Iterator<Item = (Prefix, u16)> {
    all.iter().flat_map(|(user, sources)| sources.iter().map(|prefix| (*prefix, *user)))
}

/// The writes that carry out edits, in the order of [`changes`]. Only entries inside an edited prefix are read.
pub fn edited(lists: &Lists, edits: &Edits) -> Vec<Change> {
    let mut sets = Vec::new();
    let mut removals = Vec::new();
    let mut rest = edits.iter().peekable();
    while let Some((outer, _)) = rest.next() {
        while rest.next_if(|(inner, _)| outer.covers(inner)).is_some() {}
        let mut around: Vec<(Prefix, ListEntry)> = wider(lists, outer).into_iter().collect();
        for (prefix, old, own) in both(lists, edits, outer) {
            while around.last().is_some_and(|(wider, _)| !wider.covers(&prefix)) {
                around.pop();
            }
            if says_nothing(&own) {
                removals.extend(old.map(|_| prefix));
                continue;
            }
            let new = inside(own, around.last().map(|(_, wider)| wider));
            around.push((prefix, new));
            if old != Some(new) {
                sets.push((prefix, new));
            }
        }
    }
    in_order(sets, removals)
}

/// Every prefix inside `outer` that is listed or edited, in order: its old entry if it is listed, and its new own half.
fn both<'l>(
    lists: &'l Lists,
    edits: &'l Edits,
    outer: &'l Prefix,
) -> impl Iterator<Item = (Prefix, Option<ListEntry>, ListEntry)> + 'l {
    let mut listed = lists.range(outer..).take_while(|(prefix, _)| outer.covers(prefix)).peekable();
    let mut edited = edits.range(outer..).take_while(|(prefix, _)| outer.covers(prefix)).peekable();
    std::iter::from_fn(move || match (listed.peek(), edited.peek()) {
        (Some((old, _)), Some((new, _))) if old == new => {
            let ((prefix, old), (_, own)) = listed.next().zip(edited.next())?;
            Some((*prefix, Some(*old), *own))
        }
        (Some((old, _)), edit) if edit.is_none_or(|(new, _)| old < new) => {
            let (prefix, old) = listed.next()?;
            Some((*prefix, Some(*old), *old))
        }
        _ => edited.next().map(|(prefix, own)| (*prefix, None, *own)),
    })
}

/// The longest listed prefix around another one, other than itself.
fn wider(lists: &Lists, prefix: &Prefix) -> Option<(Prefix, ListEntry)> {
    // The entry before a prefix is around it, or shares a shorter prefix with it; in the second case no entry longer than the shared prefix is around it.
    let mut before = lists.range(..prefix).next_back();
    loop {
        let (candidate, entry) = before?;
        if candidate.covers(prefix) {
            return Some((*candidate, *entry));
        }
        before = lists.range(..=candidate.common(prefix)?).next_back();
    }
}

/// Every listed prefix around a prefix, itself included, shortest first.
pub fn around<'l>(lists: &'l Lists, prefix: &Prefix) -> impl Iterator<Item = (&'l Prefix, &'l ListEntry)> {
    let prefix = *prefix;
    (0..=prefix.len()).filter_map(move |len| lists.get_key_value(&prefix.shortened(len)))
}

/// The lists as they will be after some changes.
#[derive(Debug)]
pub struct Outlook<'l> {
    lists: &'l Lists,
    changed: HashMap<Prefix, Option<ListEntry>>,
}

impl<'l> Outlook<'l> {
    /// The lists after `changes`.
    pub fn new(lists: &'l Lists, changes: &[Change]) -> Self {
        let after = |change: &Change| match change {
            Change::Set(prefix, entry) => (*prefix, Some(*entry)),
            Change::Remove(prefix) => (*prefix, None),
        };
        Self { lists, changed: changes.iter().map(after).collect() }
    }

    /// The entry that a longest match finds for an address.
    pub fn longest(&self, address: IpAddr) -> Option<ListEntry> {
        let host = Prefix::masked(address, u8::MAX);
        (0..=host.len()).rev().map(|len| host.shortened(len)).find_map(|prefix| {
            match self.changed.get(&prefix) {
                Some(changed) => *changed,
                None => self.lists.get(&prefix).copied(),
            }
        })
    }
}

/// The writes that undo `changes`, which start from `lists`.
pub fn reversed(lists: &Lists, changes: &[Change]) -> Vec<Change> {
    let mut sets = Vec::new();
    let mut removals = Vec::new();
    for Change::Set(prefix, _) | Change::Remove(prefix) in changes {
        match lists.get(prefix) {
            Some(old) => sets.push((*prefix, *old)),
            None => removals.push(*prefix),
        }
    }
    removals.sort_unstable();
    in_order(sets, removals)
}

/// Applies writes to the lists.
pub fn carry_out(lists: &mut Lists, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Set(prefix, entry) => lists.insert(*prefix, *entry),
            Change::Remove(prefix) => lists.remove(prefix),
        };
    }
}

/// The reason that the operator gave for a block, if any.
pub fn reason_text(entry: &ListEntry) -> Option<String> {
    let bytes = entry.reason.get(..(entry.reason_len & !OF_CLUSTER) as usize)?;
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The writes that lead from `observed` to `wanted`. After every single write, each address has its old answer or its
/// new one, and it changes from old to new only once.
///
/// Sets come first, longest prefixes first; then removals, prefixes before what is inside them.
///
/// - A block of a /8 that arrives together with an exception inside it: the exception is there before the block.
/// - A covering block that goes: the entries inside it lose its answer first; nothing else matches less.
/// - A prefix and a prefix inside it both go: were the inner one removed first, its addresses would get the answer of the outer one,
///   which is neither their old answer nor their new one.
///
/// Why it holds: an address gets the answer of its longest entry. While entries are set, every old entry is still there, so an entry
/// with its old value answers as before; and an entry with its new value is set after all longer ones, so
/// its answer is the new one. While entries are removed, only old ones answer differently, and a longer one never
/// goes before a shorter one.
pub fn changes(observed: &Lists, wanted: &Lists) -> Vec<Change> {
    let written = wanted.iter().filter(|(prefix, entry)| observed.get(prefix) != Some(entry));
    let removed = observed.keys().filter(|prefix| !wanted.contains_key(prefix));
    in_order(written.map(|(prefix, entry)| (*prefix, *entry)).collect(), removed.copied().collect())
}

/// The changes in the order of [`changes`]. `removals` are sorted already.
fn in_order(mut sets: Vec<(Prefix, ListEntry)>, removals: Vec<Prefix>) -> Vec<Change> {
    sets.sort_unstable_by_key(|(prefix, _)| (std::cmp::Reverse(prefix.len()), *prefix));
    let sets = sets.into_iter().map(|(prefix, entry)| Change::Set(prefix, entry));
    sets.chain(removals.into_iter().map(Change::Remove)).collect()
}

/// The most entries that the trie of one family holds while `changes` are applied: sets come first, so all old and all new entries.
pub fn peak(lists: &Lists, changes: &[Change], v4: bool) -> usize {
    let new = changes.iter().filter(|change| match change {
        Change::Set(prefix, _) => prefix.is_v4() == v4 && !lists.contains_key(prefix),
        Change::Remove(_) => false,
    });
    lists.keys().filter(|prefix| prefix.is_v4() == v4).count() + new.count()
}

#[cfg(test)]
mod tests;
