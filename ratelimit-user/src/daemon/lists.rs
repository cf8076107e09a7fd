//! The block and allow lists of the running host.

use std::fmt;

use ratelimit_common::abi::{ListEntry, list};

use super::{host::Host, log};
use crate::{
    cluster::blocks::{Held, Layer, ListEdit},
    compile::lists::{self, Change, Edits, Outlook, Prefix, reason_text},
    control::protocol::{Block, Operator, Reply},
    failure::{ExitCode, Failure},
    lockout,
};

/// Where a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// On this host alone.
    Host,
    /// On all hosts of the cluster.
    Cluster,
}

impl Scope {
    /// As it is asked for.
    pub(super) fn of(cluster: bool) -> Self {
        if cluster { Self::Cluster } else { Self::Host }
    }
}

/// Who wants a list changed, and when.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) operator: &'a Operator,
    /// For the log.
    pub(super) by: &'a dyn fmt::Display,
    pub(super) now_ns: u64,
}

/// Addresses named in a refusal.
const SHOWN: usize = 5;

impl Host {
    /// Forgets blocks that have run out. The kernel stopped honouring them by itself; this frees their room.
    pub(super) fn sweep(&mut self, now_ns: u64) -> Result<(), Failure> {
        let ran_out = |entry: &ListEntry| (1..=now_ns).contains(&entry.own_blocked_until_ns);
        if !self.lists.values().any(ran_out) {
            return Ok(());
        }
        let over = self.lists.iter().filter(|(_, entry)| ran_out(entry));
        let edits: Edits = over.map(|(prefix, entry)| (*prefix, without_block(*entry))).collect();
        self.edit_lists(&edits)
    }

    pub(super) fn block(
        &mut self,
        prefix: &str,
        for_ns: Option<u64>,
        reason: Option<&str>,
        scope: Scope,
        order: &Order<'_>,
    ) -> Result<Reply, Failure> {
        let Order { operator, by, now_ns } = *order;
        let prefix = parse_prefix(prefix)?;
        let reason = reason.unwrap_or_default();
        if reason.len() > list::REASON_LEN {
            return Err(Failure::usage(format!(
                "reason is {} bytes long; use at most {}",
                reason.len(),
                list::REASON_LEN
            )));
        }
        if reason.contains(char::is_control) {
            return Err(Failure::usage(format!(
                "reason {reason:?} has control characters in it; use plain text"
            )));
        }
        let until_ns = for_ns.map(|ns| now_ns.saturating_add(ns));
        let held = Held { until_ns, reason: reason.to_owned() };
        if scope == Scope::Cluster {
            return self.block_everywhere(prefix, held, order);
        }
        let alone = ListEdit { prefix, block: Some((held.clone(), Layer::Local)) };
        self.refuse_cut_off(
            &prefix,
            &self.edit(prefix, entry_of(self.own(&prefix), &alone)),
            now_ns,
            operator,
        )?;
        let edit = self.block_of_host(prefix, Some(held.clone()), now_ns)?;
        let replaced = self.replaced(&prefix, &held, now_ns);
        self.edit_lists(&Edits::from([(prefix, entry_of(self.own(&prefix), &edit))]))?;
        let until = held.lifetime(now_ns);
        log::info(format!("{prefix} blocked {until} by {by}{}{replaced}", because(reason)));
        let allowed = self.lists.get(&prefix).is_some_and(|entry| entry.allowed == list::ALLOWED);
        let note = match (allowed, prefix.len()) {
            (true, _) => "; it is on the allow list too, which wins".to_owned(),
            (false, 0) => {
                "; that is everybody, your own connection included, unless it is on the allow list".to_owned()
            }
            (false, _) => {
                let own_until = self.lists.get(&prefix).map_or(0, |entry| entry.own_blocked_until_ns);
                let longer = self.around(&prefix, |entry| entry.own_blocked_until_ns >= own_until);
                longer.map_or_else(String::new, |wider| format!("; {wider} is blocked for at least as long"))
            }
        };
        Ok(Reply::Done(format!("blocked {prefix} {until}{replaced}{note}")))
    }

    pub(super) fn unblock(
        &mut self,
        prefix: &str,
        scope: Scope,
        order: &Order<'_>,
    ) -> Result<Reply, Failure> {
        let now_ns = order.now_ns;
        let prefix = parse_prefix(prefix)?;
        if scope == Scope::Cluster {
            return self.unblock_everywhere(prefix, order);
        }
        let own = self.own(&prefix);
        if own.own_blocked_until_ns <= now_ns {
            return Err(not_listed(&prefix, "block"));
        }
        let reason = reason_text(&own).unwrap_or_default();
        let edit = self.block_of_host(prefix, None, now_ns)?;
        self.edit_lists(&Edits::from([(prefix, entry_of(own, &edit))]))?;
        log::info(format!("{prefix} taken off the block list by {}{}", order.by, was_blocked_for(&reason)));
        let still =
            lists::around(&self.lists, &prefix).find(|(_, entry)| entry.own_blocked_until_ns > now_ns);
        Ok(Reply::Done(match still {
            Some((wider, _)) => format!("removed {prefix} from the block list; {wider} still blocks it"),
            None => format!("removed {prefix} from the block list"),
        }))
    }

    pub(super) fn allow(&mut self, prefix: &str, order: &Order<'_>) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let own = ListEntry { own_allowed: list::ALLOWED, ..self.own(&prefix) };
        self.edit_lists(&Edits::from([(prefix, own)]))?;
        log::info(format!("{prefix} put on the allow list by {}", order.by));
        let note = self.around(&prefix, |entry| entry.own_allowed == list::ALLOWED);
        let note = note.map_or_else(String::new, |wider| format!("; {wider} is on the allow list already"));
        Ok(Reply::Done(format!("{prefix} is neither blocked nor limited from now on{note}")))
    }

    pub(super) fn disallow(&mut self, prefix: &str, order: &Order<'_>) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let own = self.own(&prefix);
        if own.own_allowed != list::ALLOWED {
            return Err(not_listed(&prefix, "allow"));
        }
        let own = ListEntry { own_allowed: 0, ..own };
        self.refuse_cut_off(&prefix, &self.edit(prefix, own), order.now_ns, order.operator)?;
        self.edit_lists(&Edits::from([(prefix, own)]))?;
        log::info(format!("{prefix} taken off the allow list by {}", order.by));
        Ok(Reply::Done(format!("removed {prefix} from the allow list")))
    }

    /// A listed prefix around another that has something.
    fn around(&self, prefix: &Prefix, has: impl Fn(&ListEntry) -> bool) -> Option<&Prefix> {
        let mut around = lists::around(&self.lists, prefix).filter(|(other, _)| *other != prefix);
        around.find(|(_, entry)| has(entry)).map(|(other, _)| other)
    }

    /// What a prefix says itself.
    pub(super) fn own(&self, prefix: &Prefix) -> ListEntry {
        self.lists.get(prefix).copied().unwrap_or(ListEntry::EMPTY)
    }

    /// The writes that make a prefix say something else.
    fn edit(&self, prefix: Prefix, own: ListEntry) -> Vec<Change> {
        lists::edited(&self.lists, &Edits::from([(prefix, own)]))
    }

    /// Tells the kernel, remembers it, and writes it down.
    pub(super) fn edit_lists(&mut self, edits: &Edits) -> Result<(), Failure> {
        let changes = lists::edited(&self.lists, edits);
        self.maps.change_lists(&mut self.lists, &changes)?;
        self.write_down(edits.keys());
        Ok(())
    }

    /// What a new block takes the place of, as the end of a sentence.
    pub(super) fn replaced(&self, prefix: &Prefix, held: &Held, now_ns: u64) -> String {
        let before = self.lists.get(prefix).and_then(|entry| held_of(entry, now_ns));
        match before.filter(|before| before.reason != held.reason) {
            Some(before) if before.reason.is_empty() => "; it was blocked without a reason before".to_owned(),
            Some(before) => format!("; it was blocked for {:?} before", before.reason),
            None => String::new(),
        }
    }

    /// Prefixes on the allow list.
    pub(super) fn allows(&self) -> impl Iterator<Item = &Prefix> {
        self.lists.iter().filter(|(_, entry)| entry.own_allowed == list::ALLOWED).map(|(prefix, _)| prefix)
    }

    /// Blocks that hold, with what is left of them.
    pub(super) fn blocks(&self, now_ns: u64) -> Vec<Block> {
        let block = |(prefix, entry): (&Prefix, &ListEntry)| Block {
            prefix: prefix.to_string(),
            seconds_left: (entry.own_blocked_until_ns != list::FOREVER_NS)
                .then(|| (entry.own_blocked_until_ns - now_ns).div_ceil(1_000_000_000)),
            reason: reason_text(entry),
            origin: self
                .cluster
                .as_ref()
                .and_then(|cluster| cluster.block_of(prefix, now_ns))
                .map(str::to_owned),
            refused: None,
        };
        let refused = self.cluster.iter().flat_map(|cluster| cluster.refused(now_ns));
        self.blocked(now_ns).map(block).chain(refused).collect()
    }

    /// The entries of blocks that hold.
    pub(super) fn blocked(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &ListEntry)> {
        self.lists.iter().filter(move |(_, entry)| entry.own_blocked_until_ns > now_ns)
    }

    /// Refuses lists with which somebody inside `prefix` would be cut off who must not be.
    fn refuse_cut_off(
        &self,
        prefix: &Prefix,
        changes: &[Change],
        now_ns: u64,
        operator: &Operator,
    ) -> Result<(), Failure> {
        if operator.force {
            return Ok(());
        }
        let vital = self.vital(operator)?;
        let cut = lockout::cut_off(prefix, &Outlook::new(&self.lists, changes), now_ns, &vital);
        if cut.is_empty() {
            return Ok(());
        }
        let reasons: Vec<String> = cut.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = cut.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(Failure::usage(format!(
            "refused, {prefix} would be blocked: {}{more}; put what must stay on the allow list first, or use --force",
            reasons.join("; ")
        )))
    }
}

/// A reason as the end of a sentence.
pub(super) fn because(reason: &str) -> String {
    if reason.is_empty() { ", without a reason".to_owned() } else { format!(": {reason}") }
}

/// What a block that is gone was for, as the end of a sentence.
pub(super) fn was_blocked_for(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!("; it was blocked for {reason:?}") }
}

fn parse_prefix(text: &str) -> Result<Prefix, Failure> {
    text.parse().map_err(Failure::usage)
}

fn not_listed(prefix: &Prefix, which: &str) -> Failure {
    Failure::new(ExitCode::Found, format!("{prefix} is not on the {which} list; nothing was changed"))
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

fn without_block(entry: ListEntry) -> ListEntry {
    ListEntry { own_blocked_until_ns: 0, reason_len: 0, reason: [0; list::REASON_LEN], ..entry }
}
