//! Two blocks of one prefix: one made for this host alone, and one made for all hosts.
//!
//! The list has room for one block of a prefix and gets the one that lasts longer; if both end together, the one of this host. So nothing
//! has to happen when the shorter one ends, and when one is removed, the other stays. The block that is not on the list is remembered:
//! the cluster's block in `Blocks`, the block of this host here.

use std::collections::{BTreeMap, BTreeSet};

use super::record::HostBlock;
use crate::compile::lists::Prefix;

/// Whether a block was made for this host or for all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The block was made for this host alone.
    Local,
    /// The block was made for all hosts.
    Cluster,
}

/// An edit of the list: the block of a prefix from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEdit {
    /// The prefix that is edited.
    pub prefix: Prefix,
    /// The block of the prefix; none if the prefix is not blocked.
    pub block: Option<(HostBlock, Layer)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// Prefixes whose block on the list is the cluster's.
    shown: BTreeSet<Prefix>,
    /// Blocks of this host alone behind the blocks in `shown`.
    hidden: BTreeMap<Prefix, HostBlock>,
}

impl Layers {
    /// Takes over a prefix whose block on the list is the cluster's, and the hidden block of this host.
    pub(super) fn inherit(&mut self, prefix: Prefix, hidden: Option<HostBlock>) {
        self.shown.insert(prefix);
        self.hidden.extend(hidden.map(|block| (prefix, block)));
    }

    /// Prefixes whose block on the list is the cluster's.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.shown.iter()
    }

    /// Returns the blocks of this host that are not on the list.
    pub(super) fn hidden(&self) -> &BTreeMap<Prefix, HostBlock> {
        &self.hidden
    }

    /// Returns the block of a prefix for this host alone.
    pub(super) fn local(
        &self,
        prefix: &Prefix,
        listed: Option<&HostBlock>,
        now_ns: u64,
    ) -> Option<HostBlock> {
        let local = if self.shown.contains(prefix) { self.hidden.get(prefix) } else { listed };
        local.filter(|block| block.holds(now_ns)).cloned()
    }

    /// Returns the edit of the list for these two blocks of a prefix.
    pub(super) fn placed(
        &mut self,
        prefix: Prefix,
        local: Option<HostBlock>,
        cluster: Option<HostBlock>,
    ) -> ListEdit {
        self.forget(&prefix);
        let block = match (local, cluster) {
            (local, Some(cluster)) if local.as_ref().is_none_or(|local| cluster.outlasts(local)) => {
                self.inherit(prefix, local);
                Some((cluster, Layer::Cluster))
            }
            (local, _) => local.map(|block| (block, Layer::Local)),
        };
        ListEdit { prefix, block }
    }

    /// Returns the edit of the list that a possible change of the cluster's block requires; `None` if the list is right already.
    pub(super) fn settled(
        &mut self,
        prefix: Prefix,
        cluster: Option<HostBlock>,
        listed: Option<&HostBlock>,
        now_ns: u64,
    ) -> Option<ListEdit> {
        let layer = if self.shown.contains(&prefix) { Layer::Cluster } else { Layer::Local };
        let local = self.local(&prefix, listed, now_ns);
        let edit = self.placed(prefix, local, cluster);
        let is_said = match (&edit.block, listed) {
            (None, None) => true,
            (Some((block, new)), Some(listed)) => *new == layer && block.is_nearly(listed),
            // A block that has run out is about to be swept from the list.
            (None, Some(listed)) => !listed.holds(now_ns),
            (Some(_), None) => false,
        };
        (!is_said).then_some(edit)
    }

    pub(super) fn forget(&mut self, prefix: &Prefix) {
        self.shown.remove(prefix);
        self.hidden.remove(prefix);
    }
}
