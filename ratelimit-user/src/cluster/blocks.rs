//! What this host knows of blocks for all hosts, and what follows for its own list. Pure.
//!
//! - **The store's order decides.** For each prefix there is one record, and its last change is what holds, on every host. A host's own
//!   edits hold here at once, before the store has them; when it has, its word holds, which may be somebody else's later edit.
//! - **Each host judges for itself.** A block that would cut off whoever must reach this host is refused here, and kept with the reason;
//!   it is judged again when it changes and when `Blocks::judge_again` is called. What is malformed or absurd is ignored.
//! - **A block of this host alone is its own.** See `layers`: a change of the cluster's block never takes it away.
//! - **A store that lost something.** It says up to which version its memory is whole (`base`). A host that knows better keeps what it has,
//!   and gives it back: its own edits at once, those of others if nobody else has for `ADOPTED_AFTER_NS`. What was said since is never
//!   overwritten by that.

mod layers;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::layers::Layers;
pub(crate) use self::record::{RecordChange, RecordFate, check_reason, check_width, plain};
pub use self::{
    layers::{Layer, ListEdit},
    record::{BlockRecord, HOST_LEN, HostBlock, check_host},
};
use crate::compile::lists::Prefix;

/// How long the host that a block was made on has for giving it back to a store that has lost it.
const ADOPTED_AFTER_NS: u64 = 30_000_000_000;
/// Records in memory. The store has at most 100 000 that hold, and nobody can be made to keep more.
const MAX_KNOWN: usize = 120_000;
/// Own removals that are kept, and for how long: as long as the store keeps them.
const MAX_REMOVALS: usize = 10_000;
const REMOVAL_NS: u64 = 24 * 3600 * 1_000_000_000;
/// How much later than its end a block is forgotten: the list has its end a moment later.
const SLACK_NS: u64 = 5_000_000_000;
/// A version that is newer than anything that the store remembers.
pub(crate) const UNCONFIRMED: u64 = u64::MAX;

/// What the daemon knows that the cluster does not.
pub trait ThisHost {
    /// Why a block of this prefix would cut off somebody who must not be.
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String>;
    /// The prefix' own block on the list, whichever layer it is of.
    fn listed(&self, prefix: &Prefix) -> Option<HostBlock>;
}

/// A record as this host knows it.
#[derive(Clone, Debug)]
struct KnownBlock {
    version: u64,
    /// The block; none if this host has removed it.
    block: Option<BlockRecord>,
    /// When this host heard of it.
    heard_ns: u64,
    /// The number of the listing that had it last.
    listing: u64,
}

/// An edit of this host that the store has not confirmed.
#[derive(Clone, Debug)]
struct Pending {
    sequence: u64,
    block: Option<BlockRecord>,
}

/// A listing under way, in which the store tells every record that it has.
#[derive(Clone, Copy, Debug)]
struct BlockListing {
    /// Whether the store is another than the one known before, and so may have lost something.
    is_other: bool,
    base: u64,
}

/// All blocks for all hosts that this host knows.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    host: String,
    known: BTreeMap<Prefix, KnownBlock>,
    /// How many of `known` are removals by this host.
    removals: usize,
    pending: BTreeMap<Prefix, Pending>,
    refused: BTreeMap<Prefix, String>,
    /// Blocks that an operator of this host made although they cut somebody off.
    forced: BTreeSet<Prefix>,
    /// What the store may have lost, and when it is given back.
    restores: BTreeMap<Prefix, u64>,
    listing: Option<BlockListing>,
    listings: u64,
    layers: Layers,
}

impl Blocks {
    /// A host that knows no block yet.
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            known: BTreeMap::new(),
            removals: 0,
            pending: BTreeMap::new(),
            refused: BTreeMap::new(),
            forced: BTreeSet::new(),
            restores: BTreeMap::new(),
            listing: None,
            listings: 0,
            layers: Layers::default(),
        }
    }

    /// A block for all hosts that is on the list since before this daemon ran, and the one of this host behind it.
    pub(crate) fn inherit(
        &mut self,
        prefix: Prefix,
        block: BlockRecord,
        hidden: Option<HostBlock>,
        version: u64,
        now_ns: u64,
    ) {
        self.layers.inherit(prefix, hidden);
        let known = KnownBlock { version, block: Some(block), heard_ns: now_ns, listing: 0 };
        self.known.insert(prefix, known);
    }

    /// An operator of this host knows that a block cuts somebody off, and wants it.
    pub(crate) fn force(&mut self, prefix: Prefix) {
        self.forced.insert(prefix);
    }

    /// Takes in an edit of this host. The edit holds here at once.
    pub(crate) fn edit(&mut self, prefix: Prefix, block: Option<HostBlock>, sequence: u64) {
        self.forced.remove(&prefix);
        let block = block.map(|host_block| BlockRecord { host_block, origin: self.host.clone() });
        self.pending.insert(prefix, Pending { sequence, block });
    }

    /// From here on everything is told from the beginning.
    pub(crate) fn begin_listing(&mut self, is_other: bool, base: u64) {
        // One that is interrupted by another store was of a store that had lost something too.
        let is_other = is_other || self.listing.is_some_and(|listing| listing.is_other);
        self.listing = Some(BlockListing { is_other, base });
        self.listings += 1;
    }

    /// Takes in a change. The prefix to settle, or why the change is ignored.
    pub(crate) fn learn(
        &mut self,
        change: &RecordChange,
        now_ns: u64,
    ) -> Result<Option<Prefix>, (Option<Prefix>, String)> {
        let prefix = record::read_prefix(&change.prefix).map_err(|why| (None, why))?;
        let version = change.version;
        if let Some(BlockListing { is_other: true, base }) = self.listing
            && version <= base
            && let Some(known) = self.known.get_mut(&prefix)
            && known.version > base
            && is_own(known, &self.host)
        {
            known.listing = self.listings;
            known.version = UNCONFIRMED;
            self.restores.insert(prefix, now_ns);
            return Ok(None);
        }
        // Whatever is wrong with it, what was there before is no more, for all hosts alike.
        let (block, wrong) = match change.block(now_ns) {
            Ok(block) => (block, None),
            Err(why) => (None, Some(why)),
        };
        self.forget(&prefix);
        let is_removal = change.fate == RecordFate::Removed && change.origin == self.host;
        if block.is_some() || (is_removal && self.removals < MAX_REMOVALS) {
            if self.known.len() >= MAX_KNOWN {
                let why = format!("{MAX_KNOWN} blocks are known already");
                return Err((Some(prefix), why));
            }
            self.removals += usize::from(block.is_none());
            self.known
                .insert(prefix, KnownBlock { version, block, heard_ns: now_ns, listing: self.listings });
        }
        match wrong {
            Some(why) => Err((Some(prefix), why)),
            None => Ok(Some(prefix)),
        }
    }

    /// Everything there is has been told, and own edits up to this one are among it. The prefixes to settle.
    pub(crate) fn complete(&mut self, edit: u64, now_ns: u64) -> Vec<Prefix> {
        let mut touched: Vec<Prefix> = Vec::new();
        if let Some(BlockListing { is_other, base }) = self.listing.take() {
            let untold = self.known.iter_mut().filter(|(_, known)| known.listing != self.listings);
            for (prefix, known) in untold {
                if is_other && known.version > base {
                    known.version = UNCONFIRMED;
                    let patience = if is_own(known, &self.host) { 0 } else { ADOPTED_AFTER_NS };
                    self.restores.insert(*prefix, now_ns.saturating_add(patience));
                } else {
                    touched.push(*prefix);
                }
            }
        }
        touched.iter().for_each(|prefix| self.forget(prefix));
        self.pending.retain(|prefix, pending| {
            let is_confirmed = pending.sequence <= edit;
            touched.extend(is_confirmed.then_some(*prefix));
            !is_confirmed
        });
        touched
    }

    /// What is to be given back to the store by now.
    pub(crate) fn restores(&mut self, now_ns: u64, most: usize) -> Vec<(Prefix, Option<BlockRecord>)> {
        let due = self.restores.iter().filter(|(_, at)| **at <= now_ns).map(|(prefix, _)| *prefix);
        let due: Vec<Prefix> = due.take(most).collect();
        self.restores.retain(|prefix, _| due.binary_search(prefix).is_err());
        due.into_iter().filter_map(|prefix| Some((prefix, self.known.get(&prefix)?.block.clone()))).collect()
    }

    /// Brings the list of this host in line with what is known of a prefix. `said` gets what an operator would like to read.
    pub(crate) fn settle(
        &mut self,
        prefix: Prefix,
        this_host: &impl ThisHost,
        now_ns: u64,
        log: &mut impl FnMut(String),
    ) -> Option<ListEdit> {
        let cluster = self.judged(prefix, this_host, now_ns, log);
        self.layers.settled(prefix, cluster, this_host.listed(&prefix).as_ref(), now_ns)
    }

    /// Settles what was refused again: the allow list has changed, or somebody has left.
    pub(crate) fn judge_again(
        &mut self,
        this_host: &impl ThisHost,
        now_ns: u64,
        log: &mut impl FnMut(String),
    ) -> Vec<ListEdit> {
        let refused: Vec<Prefix> = self.refused.keys().copied().collect();
        refused.into_iter().filter_map(|prefix| self.settle(prefix, this_host, now_ns, log)).collect()
    }

    /// The list when this host's own block of a prefix is another.
    pub(crate) fn with_local(&mut self, prefix: Prefix, local: Option<HostBlock>, now_ns: u64) -> ListEdit {
        let cluster = self.in_force(&prefix, now_ns).map(|block| block.host_block.clone());
        self.layers.placed(prefix, local, cluster)
    }

    /// The block of this host alone.
    pub(crate) fn local(&self, prefix: &Prefix, this_host: &impl ThisHost, now_ns: u64) -> Option<HostBlock> {
        self.layers.local(prefix, this_host.listed(prefix).as_ref(), now_ns)
    }

    /// The block for all hosts, whether this host has taken it or not.
    pub(crate) fn get(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        let block = match self.pending.get(prefix) {
            Some(pending) => pending.block.as_ref(),
            None => self.known.get(prefix)?.block.as_ref(),
        };
        block.filter(|block| block.host_block.holds(now_ns))
    }

    /// Whether the last edit of a prefix is this host's own.
    pub(crate) fn is_pending(&self, prefix: &Prefix) -> bool {
        self.pending.contains_key(prefix)
    }

    /// Every block for all hosts, with why it does not hold here if it does not.
    pub(crate) fn iter(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &BlockRecord, Option<&str>)> {
        let unheard = self.pending.keys().filter(|prefix| !self.known.contains_key(prefix));
        let all = self.known.keys().chain(unheard);
        all.filter_map(move |prefix| {
            Some((prefix, self.get(prefix, now_ns)?, self.refused.get(prefix).map(String::as_str)))
        })
    }

    /// Blocks of this host alone that are on no list, behind one of the cluster that lasts longer.
    pub(crate) fn hidden(&self) -> &BTreeMap<Prefix, HostBlock> {
        self.layers.hidden()
    }

    /// Blocks of this host alone that hold and are on no list.
    pub(crate) fn held_behind(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &HostBlock)> {
        self.layers.hidden().iter().filter(move |(_, block)| block.holds(now_ns))
    }

    /// Prefixes whose block on the list is the cluster's.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.layers.shown()
    }

    /// What an operator of this host wanted in spite of everything.
    pub(crate) fn forced(&self) -> &BTreeSet<Prefix> {
        &self.forced
    }

    /// How many blocks are known, and how many of them are refused here.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.known.len() - self.removals, self.refused.len())
    }

    /// Forgets what has run out long enough ago.
    pub(crate) fn sweep(&mut self, now_ns: u64) {
        let is_over = |known: &KnownBlock| match &known.block {
            Some(block) => !block.host_block.holds(now_ns.saturating_sub(SLACK_NS)),
            None => known.heard_ns.saturating_add(REMOVAL_NS) <= now_ns,
        };
        let over: Vec<Prefix> =
            self.known.iter().filter(|(_, known)| is_over(known)).map(|(prefix, _)| *prefix).collect();
        for prefix in over {
            self.forget(&prefix);
            if !self.pending.contains_key(&prefix) {
                self.refused.remove(&prefix);
                self.forced.remove(&prefix);
                self.layers.forget(&prefix);
            }
        }
    }

    fn forget(&mut self, prefix: &Prefix) {
        self.restores.remove(prefix);
        let known = self.known.remove(prefix);
        self.removals -= usize::from(known.is_some_and(|known| known.block.is_none()));
    }

    /// The block for all hosts, if this host has taken it.
    pub(crate) fn in_force(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        self.get(prefix, now_ns).filter(|_| !self.refused.contains_key(prefix))
    }

    fn judged(
        &mut self,
        prefix: Prefix,
        this_host: &impl ThisHost,
        now_ns: u64,
        log: &mut impl FnMut(String),
    ) -> Option<HostBlock> {
        let Some(BlockRecord { host_block, origin }) = self.get(&prefix, now_ns).cloned() else {
            self.refused.remove(&prefix);
            self.forced.remove(&prefix);
            return None;
        };
        if origin != self.host {
            self.forced.remove(&prefix);
        }
        let why = if self.forced.contains(&prefix) { None } else { this_host.would_cut_off(&prefix) };
        match why {
            Some(why) => {
                if self.refused.get(&prefix) != Some(&why) {
                    log(format!("refused to block {prefix}, as {origin} wants on all hosts: {why}"));
                }
                self.refused.insert(prefix, why);
                None
            }
            None => {
                if self.refused.remove(&prefix).is_some() {
                    log(format!("{prefix} is blocked now, as {origin} wanted on all hosts"));
                }
                Some(host_block)
            }
        }
    }
}

/// Whether this host is the one to give it back. Only own removals are kept.
fn is_own(known: &KnownBlock, host: &str) -> bool {
    known.block.as_ref().is_none_or(|block| block.origin == host)
}
