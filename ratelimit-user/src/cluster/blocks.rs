//! The blocks for all hosts that this host knows, and the edits of its own list that follow from them. Pure.
//!
//! - **The store's order decides.** For each prefix there is one record, and its last change holds on every host. A host's own edit
//!   holds on that host at once. Once the store has the edit, the store's record holds, which may be a later edit of another host.
//! - **Each host judges for itself.** A block that would cut off an address that must reach this host is refused here, and kept with the
//!   reason; it is judged again when it changes and when `Blocks::judge_again` is called. Malformed or absurd changes are ignored.
//! - **A block of this host alone stays.** See `layers`: a change of the cluster's block never removes it.
//! - **A store may lose records.** It tells up to which version its memory is whole (`base`). A host keeps later records that the store has
//!   lost, and gives them back: its own edits at once, those of another host if that host has not done so for `ADOPTED_AFTER_NS`. A record
//!   given back never overwrites an edit made since.

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

/// How long the host that made a block has to give it back to a store that lost it, before other hosts do.
const ADOPTED_AFTER_NS: u64 = 30_000_000_000;
/// The largest number of records in memory. The store keeps at most 100 000 that hold; a hostile store cannot make a host keep more than this.
const MAX_KNOWN: usize = 120_000;
/// The largest number of own removals that are kept, and for how long: as long as the store keeps them.
const MAX_REMOVALS: usize = 10_000;
const REMOVAL_NS: u64 = 24 * 3600 * 1_000_000_000;
/// How long after its end a block is forgotten: the end on the list may be a moment later.
const SLACK_NS: u64 = 5_000_000_000;
/// A version that is newer than anything that the store remembers.
pub(crate) const UNCONFIRMED: u64 = u64::MAX;

/// Facts about this host that the cluster's code asks the daemon for.
pub trait ThisHost {
    /// Returns why a block of this prefix would cut off an address that must reach this host; `None` if it would not.
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String>;
    /// Returns the block of exactly this prefix on the list, whichever layer it belongs to.
    fn listed(&self, prefix: &Prefix) -> Option<HostBlock>;
}

/// A record as this host knows it.
#[derive(Clone, Debug)]
struct KnownBlock {
    version: u64,
    /// The block; none if this host has removed it.
    block: Option<BlockRecord>,
    /// When this host heard of the record.
    heard_ns: u64,
    /// The number of the last listing that had the record.
    listing: u64,
}

/// An edit of this host that the store has not confirmed.
#[derive(Clone, Debug)]
struct Pending {
    sequence: u64,
    block: Option<BlockRecord>,
}

/// A listing under way: the store tells every record that it has.
#[derive(Clone, Copy, Debug)]
struct BlockListing {
    /// Whether this is not the store known before, so that records may be lost.
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
    /// Prefixes whose records the store may have lost, and when each record is given back.
    restores: BTreeMap<Prefix, u64>,
    listing: Option<BlockListing>,
    listings: u64,
    layers: Layers,
}

impl Blocks {
    /// Makes the state of a host that knows no block yet.
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

    /// Takes over a block for all hosts that the daemon before put on the list, and the hidden block of this host alone behind it.
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

    /// Marks a block that an operator of this host wants although it cuts somebody off.
    pub(crate) fn force(&mut self, prefix: Prefix) {
        self.forced.insert(prefix);
    }

    /// Takes in an edit of this host. The edit holds here at once.
    pub(crate) fn edit(&mut self, prefix: Prefix, block: Option<HostBlock>, sequence: u64) {
        self.forced.remove(&prefix);
        let block = block.map(|host_block| BlockRecord { host_block, origin: self.host.clone() });
        self.pending.insert(prefix, Pending { sequence, block });
    }

    /// Begins a listing: the next changes are all records of the store, from the first one on.
    pub(crate) fn begin_listing(&mut self, is_other: bool, base: u64) {
        // A listing of another store that is interrupted by a new one still counts: records may be lost in both cases.
        let is_other = is_other || self.listing.is_some_and(|listing| listing.is_other);
        self.listing = Some(BlockListing { is_other, base });
        self.listings += 1;
    }

    /// Takes in a change, and returns the prefix to settle, or why the change is ignored.
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
        // The change ends the record before it even if it is malformed, as it does on every other host.
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

    /// Ends a listing or portion: the store has told all records, own edits up to number `edit` included. Returns the prefixes to settle.
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

    /// Takes out at most `most` records that are due to be given back to the store.
    pub(crate) fn restores(&mut self, now_ns: u64, most: usize) -> Vec<(Prefix, Option<BlockRecord>)> {
        let due = self.restores.iter().filter(|(_, at)| **at <= now_ns).map(|(prefix, _)| *prefix);
        let due: Vec<Prefix> = due.take(most).collect();
        self.restores.retain(|prefix, _| due.binary_search(prefix).is_err());
        due.into_iter().filter_map(|prefix| Some((prefix, self.known.get(&prefix)?.block.clone()))).collect()
    }

    /// Returns the edit that brings the list of this host in line with the known block of a prefix. `log` gets lines for the operator.
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

    /// Settles every refused block again, after a change of the allow list or the end of a session.
    pub(crate) fn judge_again(
        &mut self,
        this_host: &impl ThisHost,
        now_ns: u64,
        log: &mut impl FnMut(String),
    ) -> Vec<ListEdit> {
        let refused: Vec<Prefix> = self.refused.keys().copied().collect();
        refused.into_iter().filter_map(|prefix| self.settle(prefix, this_host, now_ns, log)).collect()
    }

    /// Returns the edit of the list that replaces this host's own block of a prefix.
    pub(crate) fn with_local(&mut self, prefix: Prefix, local: Option<HostBlock>, now_ns: u64) -> ListEdit {
        let cluster = self.in_force(&prefix, now_ns).map(|block| block.host_block.clone());
        self.layers.placed(prefix, local, cluster)
    }

    /// Returns the block of a prefix for this host alone.
    pub(crate) fn local(&self, prefix: &Prefix, this_host: &impl ThisHost, now_ns: u64) -> Option<HostBlock> {
        self.layers.local(prefix, this_host.listed(prefix).as_ref(), now_ns)
    }

    /// Returns the block of a prefix for all hosts, whether this host has accepted it or refused it.
    pub(crate) fn get(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        let block = match self.pending.get(prefix) {
            Some(pending) => pending.block.as_ref(),
            None => self.known.get(prefix)?.block.as_ref(),
        };
        block.filter(|block| block.host_block.holds(now_ns))
    }

    /// Whether an edit of a prefix by this host waits for the store's answer.
    pub(crate) fn is_pending(&self, prefix: &Prefix) -> bool {
        self.pending.contains_key(prefix)
    }

    /// Returns every block for all hosts, with the reason if this host refuses it.
    pub(crate) fn iter(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &BlockRecord, Option<&str>)> {
        let unheard = self.pending.keys().filter(|prefix| !self.known.contains_key(prefix));
        let all = self.known.keys().chain(unheard);
        all.filter_map(move |prefix| {
            Some((prefix, self.get(prefix, now_ns)?, self.refused.get(prefix).map(String::as_str)))
        })
    }

    /// Returns the blocks of this host alone that are not on the list, because the cluster's block of the prefix lasts longer.
    pub(crate) fn hidden(&self) -> &BTreeMap<Prefix, HostBlock> {
        self.layers.hidden()
    }

    /// Returns the blocks of this host alone that still hold and are not on the list.
    pub(crate) fn held_behind(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &HostBlock)> {
        self.layers.hidden().iter().filter(move |(_, block)| block.holds(now_ns))
    }

    /// Returns the prefixes whose block on the list is the cluster's.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.layers.shown()
    }

    /// Returns the blocks that an operator of this host made although they cut somebody off.
    pub(crate) fn forced(&self) -> &BTreeSet<Prefix> {
        &self.forced
    }

    /// Returns how many blocks are known, and how many of them are refused here.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.known.len() - self.removals, self.refused.len())
    }

    /// Forgets blocks that ended long enough ago, and old removals.
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

    /// Returns the block of a prefix for all hosts, if this host has accepted it.
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

/// Whether this host is the one to give a record back. A record without a block is a removal by this host, because other removals are not kept.
fn is_own(known: &KnownBlock, host: &str) -> bool {
    known.block.as_ref().is_none_or(|block| block.origin == host)
}
