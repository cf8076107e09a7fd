//! What the block and allow lists say of one prefix, and of all.

use ratelimit_common::abi::{ListEntry, list};

use crate::{
    cluster::blocks::{Held, Layer, ListEdit},
    compile::lists::{Lists, Prefix, reason_text},
};

/// What a prefix says itself.
pub(super) fn own(lists: &Lists, prefix: &Prefix) -> ListEntry {
    lists.get(prefix).copied().unwrap_or(ListEntry::EMPTY)
}

/// Prefixes on the allow list.
pub(super) fn allows(lists: &Lists) -> impl Iterator<Item = &Prefix> {
    lists.iter().filter(|(_, entry)| entry.own_allowed == list::ALLOWED).map(|(prefix, _)| prefix)
}

/// The entries of blocks that hold.
pub(super) fn blocked(lists: &Lists, now_ns: u64) -> impl Iterator<Item = (&Prefix, &ListEntry)> {
    lists.iter().filter(move |(_, entry)| entry.own_blocked_until_ns > now_ns)
}

/// What the list says of a prefix after an edit.
pub(super) fn entry_of(own: ListEntry, edit: &ListEdit) -> ListEntry {
    let mut entry = without_block(own);
    if let Some((held, _)) = &edit.block {
        let reason = &held.reason.as_bytes()[..held.reason.len().min(list::REASON_LEN)];
        entry.own_blocked_until_ns = held.until_ns.unwrap_or(list::FOREVER_NS);
        entry.reason_len = reason.len() as u32;
        entry.reason[..reason.len()].copy_from_slice(reason);
    }
    match edit.block {
        Some((_, Layer::Cluster)) => of_cluster(entry),
        _ => entry,
    }
}

/// The entry with its block marked as the cluster's.
pub(super) fn of_cluster(entry: ListEntry) -> ListEntry {
    ListEntry { reason_len: entry.reason_len | list::OF_CLUSTER, ..entry }
}

/// Whether the block of an entry is the cluster's.
pub(super) fn is_of_cluster(entry: &ListEntry) -> bool {
    entry.own_blocked_until_ns > 0 && entry.reason_len & list::OF_CLUSTER != 0
}

/// The block of an entry, if it has one that holds.
pub(super) fn held_of(entry: &ListEntry, now_ns: u64) -> Option<Held> {
    let until = entry.own_blocked_until_ns;
    (until > now_ns).then(|| Held {
        until_ns: (until != list::FOREVER_NS).then_some(until),
        reason: reason_text(entry).unwrap_or_default(),
    })
}

/// The entry without its block.
pub(super) fn without_block(entry: ListEntry) -> ListEntry {
    ListEntry { own_blocked_until_ns: 0, reason_len: 0, reason: [0; list::REASON_LEN], ..entry }
}
