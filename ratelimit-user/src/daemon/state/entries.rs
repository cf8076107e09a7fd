//! Reads and makes entries of the block and allow lists.

use ratelimit_common::abi::{ListEntry, list};

use crate::{
    cluster::blocks::{HostBlock, Layer, ListEdit},
    compile::lists::{Edits, Lists, Prefix, reason_text},
};

/// Returns the entry of exactly this prefix; an empty one if it is not listed.
pub(in crate::daemon) fn own(lists: &Lists, prefix: &Prefix) -> ListEntry {
    lists.get(prefix).copied().unwrap_or(ListEntry::EMPTY)
}

/// Returns the prefixes on the allow list.
pub(in crate::daemon) fn allows(lists: &Lists) -> impl Iterator<Item = &Prefix> {
    lists.iter().filter(|(_, entry)| entry.own_allowed == list::ALLOWED).map(|(prefix, _)| prefix)
}

/// Returns the prefixes whose own block still holds, with their entries.
pub(in crate::daemon) fn blocked(lists: &Lists, now_ns: u64) -> impl Iterator<Item = (&Prefix, &ListEntry)> {
    lists.iter().filter(move |(_, entry)| entry.own_blocked_until_ns > now_ns)
}

/// Returns the entry of a prefix after an edit of its block.
pub(in crate::daemon) fn entry_of(own: ListEntry, edit: &ListEdit) -> ListEntry {
    let mut entry = without_block(own);
    if let Some((block, _)) = &edit.block {
        let reason = &block.reason.as_bytes()[..block.reason.len().min(list::REASON_LEN)];
        entry.own_blocked_until_ns = block.until_ns.unwrap_or(list::FOREVER_NS);
        entry.reason_len = reason.len() as u32;
        entry.reason[..reason.len()].copy_from_slice(reason);
    }
    match edit.block {
        Some((_, Layer::Cluster)) => of_cluster(entry),
        _ => entry,
    }
}

/// Returns the entry with its block marked as the cluster's.
pub(in crate::daemon) fn of_cluster(entry: ListEntry) -> ListEntry {
    ListEntry { reason_len: entry.reason_len | list::OF_CLUSTER, ..entry }
}

/// Whether the block of an entry is the cluster's.
pub(in crate::daemon) fn is_of_cluster(entry: &ListEntry) -> bool {
    entry.own_blocked_until_ns > 0 && entry.reason_len & list::OF_CLUSTER != 0
}

/// Returns the block of an entry, if it has one that holds.
pub(in crate::daemon) fn host_block_of(entry: &ListEntry, now_ns: u64) -> Option<HostBlock> {
    let until = entry.own_blocked_until_ns;
    (until > now_ns).then(|| HostBlock {
        until_ns: (until != list::FOREVER_NS).then_some(until),
        reason: reason_text(entry).unwrap_or_default(),
    })
}

/// Returns the entry without its block.
pub(super) fn without_block(entry: ListEntry) -> ListEntry {
    ListEntry { own_blocked_until_ns: 0, reason_len: 0, reason: [0; list::REASON_LEN], ..entry }
}

/// Returns the edits that remove blocks which have run out. Other parts of their entries stay.
pub(in crate::daemon) fn ran_out(lists: &Lists, now_ns: u64) -> Edits {
    let over = lists.iter().filter(|(_, entry)| (1..=now_ns).contains(&entry.own_blocked_until_ns));
    over.map(|(prefix, entry)| (*prefix, without_block(*entry))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::lists;

    #[test]
    fn a_block_that_has_run_out_goes_and_what_else_its_prefix_says_stays() {
        let p = |text: &str| text.parse::<Prefix>().unwrap();
        let host_block = |until_ns: u64| HostBlock { until_ns: Some(until_ns), reason: "scan".into() };
        let block = |prefix: &str, until_ns: u64| ListEdit {
            prefix: p(prefix),
            block: Some((host_block(until_ns), Layer::Local)),
        };
        let blocked = |until_ns| entry_of(ListEntry::EMPTY, &block("192.0.2.1", until_ns));
        let before = lists::effective(Lists::from([
            (p("192.0.2.1"), blocked(100)),
            (p("192.0.2.2"), ListEntry { own_allowed: list::ALLOWED, ..blocked(100) }),
            (p("192.0.2.3"), ListEntry { own_user: 7, ..blocked(100) }),
            (p("192.0.2.4"), blocked(101)),
            (p("192.0.2.5"), blocked(list::FOREVER_NS)),
            (p("192.0.2.6"), ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY }),
            (p("192.0.2.7"), ListEntry { own_user: 9, ..ListEntry::EMPTY }),
        ]));
        let edits = ran_out(&before, 100);
        assert_eq!(edits.keys().copied().collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(p));
        let mut after = before.clone();
        lists::carry_out(&mut after, &lists::edited(&before, &edits));
        let said = |prefix: &str| {
            let entry = after.get(&p(prefix))?;
            Some((entry.own_blocked_until_ns, entry.allowed, entry.user, entry.reason_len))
        };
        assert_eq!(said("192.0.2.1"), None, "it said nothing else");
        assert_eq!(said("192.0.2.2"), Some((0, list::ALLOWED, 0, 0)));
        assert_eq!(said("192.0.2.3"), Some((0, 0, 7, 0)));
        for last in 4..8 {
            let prefix = p(&format!("192.0.2.{last}"));
            assert_eq!(after.get(&prefix), before.get(&prefix), "{prefix}");
        }
        assert_eq!(ran_out(&after, 100), Edits::new());
    }
}
