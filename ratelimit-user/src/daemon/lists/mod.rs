//! The block and allow lists of the running host, and the editor that changes them everywhere.

pub(super) mod blocks;
pub(super) mod lookout;
pub(super) mod vital;

use std::fmt;

use ratelimit_common::abi::{ListEntry, list};

use self::lookout::Lookout;
use super::{
    cluster::Cluster,
    state::{
        entries::{self, host_block_of, is_of_cluster},
        keeping::StateKeeper,
    },
};
use crate::{
    cluster::blocks::HostBlock,
    compile::lists::{self, Edits, Lists, Prefix, reason_text},
    control::protocol::{Block, FirstListed, Operator},
    dataplane::kernel::KernelMaps,
    failure::Failure,
    policy::Policy,
};

/// The lists in the kernel's tries, and the keeper that saves them for the next daemon and the next boot.
#[derive(Debug)]
pub(super) struct ListBook {
    pub(super) lists: Lists,
    pub(super) keeper: StateKeeper,
    pub(super) lookout: Lookout,
}

impl ListBook {
    /// Returns the blocks that hold, with the time left.
    pub(super) fn blocks(&self, cluster: Option<&Cluster>, now_ns: u64) -> Vec<Block> {
        self.each_block(cluster, now_ns).collect()
    }

    /// Returns the first entries of both lists, and how many there are. Only `most` entries are described, because there may be a million.
    pub(super) fn first(&self, cluster: Option<&Cluster>, most: usize, now_ns: u64) -> FirstListed {
        let refused = cluster.map_or(0, |cluster| cluster.refused(now_ns).len());
        let beside = cluster.map_or(0, |cluster| cluster.beside_in_all(&self.lists, now_ns));
        FirstListed {
            blocks: self.each_block(cluster, now_ns).take(most).collect(),
            blocks_in_all: (entries::blocked(&self.lists, now_ns).count() + beside + refused) as u64,
            allows: entries::allows(&self.lists).take(most).map(ToString::to_string).collect(),
            allows_in_all: entries::allows(&self.lists).count() as u64,
        }
    }

    fn each_block<'b>(
        &'b self,
        cluster: Option<&'b Cluster>,
        now_ns: u64,
    ) -> impl Iterator<Item = Block> + 'b {
        let both = move |(prefix, entry): (&Prefix, &ListEntry)| {
            let of_cluster = cluster.filter(|_| is_of_cluster(entry));
            let listed = Block {
                prefix: prefix.to_string(),
                seconds_left: (entry.own_blocked_until_ns != list::FOREVER_NS)
                    .then(|| (entry.own_blocked_until_ns - now_ns).div_ceil(1_000_000_000)),
                reason: reason_text(entry),
                origin: of_cluster.and_then(|cluster| cluster.block_of(prefix, now_ns)).map(str::to_owned),
                refused: None,
            };
            // A prefix can have two blocks, and the list has room for one of them.
            let other = cluster.and_then(|cluster| cluster.beside(prefix, entry, now_ns));
            [Some(listed), other].into_iter().flatten()
        };
        let refused = cluster.into_iter().flat_map(move |cluster| cluster.refused(now_ns));
        entries::blocked(&self.lists, now_ns).flat_map(both).chain(refused)
    }

    /// Returns a sentence if changes of the lists are not on disk, so that a restart or a reboot would lose them.
    pub(super) fn not_on_disk(&self) -> Option<String> {
        let problem = self.keeper.journal.problem()?;
        Some(format!("changes of the block and allow lists are NOT ON DISK: {problem}"))
    }
}

/// The editor of the lists, with everything that a change of them reaches.
#[derive(Debug)]
pub(super) struct ListEditor<'h> {
    pub(super) book: &'h mut ListBook,
    pub(super) maps: &'h mut KernelMaps,
    pub(super) cluster: Option<&'h mut Cluster>,
    /// The policy in force, which decides whether blocks drop packets, and which limits hold for a prefix taken off the allow list.
    pub(super) policy: &'h Policy,
}

impl ListEditor<'_> {
    /// Returns the entry of exactly this prefix.
    pub(super) fn own(&self, prefix: &Prefix) -> ListEntry {
        entries::own(&self.book.lists, prefix)
    }

    /// Writes edits into the kernel, the lists in memory, and the journal.
    pub(super) fn edit(&mut self, edits: &Edits) -> Result<(), Failure> {
        let changes = lists::edited(&self.book.lists, edits);
        self.maps.change_lists(&mut self.book.lists, &changes)?;
        self.write_down(edits.keys());
        Ok(())
    }

    /// Writes the present entries of prefixes into the journal.
    pub(super) fn write_down<'p>(&mut self, touched: impl IntoIterator<Item = &'p Prefix>) {
        let ListBook { lists, keeper, .. } = &mut *self.book;
        keeper.write_down(lists, self.cluster.as_ref().map(|cluster| &cluster.gossip), touched);
    }

    /// Returns the end of a sentence about the block that a new one replaces.
    pub(super) fn replaced(&self, prefix: &Prefix, block: &HostBlock, now_ns: u64) -> String {
        let before = self.book.lists.get(prefix).and_then(|entry| host_block_of(entry, now_ns));
        match before.filter(|before| before.reason != block.reason) {
            Some(before) if before.reason.is_empty() => "; it was blocked without a reason before".to_owned(),
            Some(before) => format!("; it was blocked for {:?} before", before.reason),
            None => String::new(),
        }
    }
}

/// The caller who changes a list, and when.
#[derive(Clone, Copy)]
pub(super) struct ListChanger<'a> {
    pub(super) operator: &'a Operator,
    /// The name of the changer in the log.
    pub(super) by: &'a dyn fmt::Display,
    pub(super) now_ns: u64,
}

/// Returns the reason of a block as the end of a sentence.
pub(super) fn because(reason: &str) -> String {
    if reason.is_empty() { ", without a reason".to_owned() } else { format!(": {reason}") }
}

/// Returns the reason of a block that is gone as the end of a sentence.
pub(super) fn was_blocked_for(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!("; it was blocked for {reason:?}") }
}
