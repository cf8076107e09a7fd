//! Two blocks of one prefix: the one that was made for this host, and the one for all hosts.
//!
//! The list has room for one, so it says which lasts longer; for this host if they are alike. So nothing has to happen when either ends,
//! and whichever is removed, the other one stays. The one that the list does not say is remembered: the cluster's by who knows what the
//! store says, this host's here.

use std::collections::{BTreeMap, BTreeSet};

use super::record::HostBlock;
use crate::compile::lists::Prefix;

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Made for this host alone.
    Local,
    /// Made for all hosts.
    Cluster,
}

/// What the list says of a prefix from now on.
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
    /// Blocks of this host alone behind those.
    hidden: BTreeMap<Prefix, HostBlock>,
}

impl Layers {
    /// What was left behind by the daemon before.
    pub(super) fn inherit(&mut self, prefix: Prefix, hidden: Option<HostBlock>) {
        self.shown.insert(prefix);
        self.hidden.extend(hidden.map(|block| (prefix, block)));
    }

    /// Prefixes whose block on the list is the cluster's.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.shown.iter()
    }

    /// Blocks of this host that the list does not say.
    pub(super) fn hidden(&self) -> &BTreeMap<Prefix, HostBlock> {
        &self.hidden
    }

    /// The block of this host alone.
    pub(super) fn local(
        &self,
        prefix: &Prefix,
        listed: Option<&HostBlock>,
        now_ns: u64,
    ) -> Option<HostBlock> {
        let local = if self.shown.contains(prefix) { self.hidden.get(prefix) } else { listed };
        local.filter(|block| block.holds(now_ns)).cloned()
    }

    /// The list with these two.
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

    /// What the list must say if the cluster's block may have changed; `None` if the list says so already.
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
            // What has run out is about to be swept, with what is remembered of it.
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
