//! Block and allow lists: from what the operator typed to what a longest-prefix match must find.
//!
//! See `abi::list` for the two halves of an entry. [`effective`] fills the second half, [`changes`] orders the way from
//! one state of the tries to another.

use std::collections::BTreeMap;

use ratelimit_common::abi::{ListEntry, list::ALLOWED};

pub use super::prefix::{Prefix, PrefixError, TrieKey};

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
        if entry.own_blocked_until_ns == 0 && entry.own_allowed != ALLOWED {
            continue;
        }
        while around.last().is_some_and(|(wider, _)| !wider.covers(&prefix)) {
            around.pop();
        }
        let wider = around.last().map_or(ListEntry::EMPTY, |(_, entry)| *entry);
        entry.blocked_until_ns = entry.own_blocked_until_ns.max(wider.blocked_until_ns);
        entry.allowed = if entry.own_allowed == ALLOWED { ALLOWED } else { wider.allowed };
        around.push((prefix, entry));
        lists.insert(prefix, entry);
    }
    lists
}

/// The writes that lead from `observed` to `wanted`, in an order that never answers worse than either.
///
/// Everything is written before anything is removed, longest prefixes first. When a wide prefix arrives, the narrow ones
/// inside it already answer for it, so it cannot be undone for a moment by an entry that does not know of it yet. When
/// one leaves, the narrow ones have already let go of its answer. In between, an address sees its old answer or its new one.
pub fn changes(observed: &Lists, wanted: &Lists) -> Vec<Change> {
    let written = wanted.iter().filter(|(prefix, entry)| observed.get(prefix) != Some(entry));
    let mut sets: Vec<_> = written.map(|(prefix, entry)| (*prefix, *entry)).collect();
    sets.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    let sets = sets.into_iter().map(|(prefix, entry)| Change::Set(prefix, entry));
    let removed = observed.keys().filter(|prefix| !wanted.contains_key(prefix));
    sets.chain(removed.map(|prefix| Change::Remove(*prefix))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    /// What a packet from `address` meets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Answer {
        Allowed,
        Blocked,
        Neither,
    }

    /// What the kernel does: the longest match decides alone.
    fn longest_match(lists: &Lists, address: IpAddr, now_ns: u64) -> Answer {
        let found = (0..=32).rev().find_map(|len| lists.get(&Prefix::masked(address, len)));
        match found {
            Some(entry) if entry.allowed == ALLOWED => Answer::Allowed,
            Some(entry) if now_ns < entry.blocked_until_ns => Answer::Blocked,
            _ => Answer::Neither,
        }
    }

    /// What the operator means: every entry that covers the address is asked.
    fn one_by_one(own: &Lists, address: IpAddr, now_ns: u64) -> Answer {
        let host = Prefix::masked(address, 32);
        let covering = || own.iter().filter(|(prefix, _)| prefix.covers(&host)).map(|(_, entry)| entry);
        if covering().any(|entry| entry.own_allowed == ALLOWED) {
            Answer::Allowed
        } else if covering().any(|entry| now_ns < entry.own_blocked_until_ns) {
            Answer::Blocked
        } else {
            Answer::Neither
        }
    }

    /// Addresses and prefixes close together, so that they overlap.
    fn address() -> impl Strategy<Value = IpAddr> {
        (0_u32..64).prop_map(|low| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | (low << 26 >> 26))))
    }

    fn lists() -> impl Strategy<Value = Lists> {
        let entry =
            (address(), 20_u8..=32, 0_u64..4, 0_u32..=1).prop_map(|(address, len, until, allowed)| {
                let entry =
                    ListEntry { own_blocked_until_ns: until, own_allowed: allowed, ..ListEntry::EMPTY };
                (Prefix::masked(address, len), entry)
            });
        proptest::collection::btree_map(0_u8..20, entry, 0..12).prop_map(|map| map.into_values().collect())
    }

    proptest! {
        #[test]
        fn a_longest_match_answers_like_all_entries_together(own in lists(), address in address(), now_ns in 0_u64..5) {
            let effective = effective(own.clone());
            prop_assert_eq!(longest_match(&effective, address, now_ns), one_by_one(&own, address, now_ns));
        }

        #[test]
        fn between_two_states_an_address_has_its_old_answer_or_its_new_one(
            before in lists(), after in lists(), address in address(), now_ns in 0_u64..5,
        ) {
            let (before, after) = (effective(before), effective(after));
            let answers = [longest_match(&before, address, now_ns), longest_match(&after, address, now_ns)];
            let mut state = before.clone();
            for change in changes(&before, &after) {
                match change {
                    Change::Set(prefix, entry) => { state.insert(prefix, entry); }
                    Change::Remove(prefix) => { state.remove(&prefix); }
                }
                let answer = longest_match(&state, address, now_ns);
                prop_assert!(answers.contains(&answer), "{answer:?} is neither of {answers:?}");
            }
            prop_assert_eq!(state, after);
        }
    }
}
