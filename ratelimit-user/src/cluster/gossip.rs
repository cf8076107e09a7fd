//! Gossip: hosts tell each other, through the store, the blocks that hold on all of them, and that they are there.
//!
//! ```text
//! operator -> add, remove -> call -> store -> hear -> edits of the list of every host
//! ```
//! Every host calls one script every [`TICK`], so a block is on every host within two ticks, and each host costs the store four commands a
//! second, however many blocks and hosts there are. The call names this host, the version it has heard, and its edits; the answer has the
//! changes since that version. There is no second channel, such as publish and subscribe, that could lose changes: a host that was away, or
//! is new, asks from the version it has, and gets portions of a thousand until it has everything.
//!
//! **Once and in order.** The store numbers changes; the last change of a prefix holds. Each edit has a number of this host and is repeated
//! until it is answered; the store carries out only numbers above the last one. A call may also arrive later than newer calls: each call
//! has a number too, and a call that is not above the last one changes nothing. The first daemon of a host begins both numbers at 1 under an
//! incarnation, the time when it began. Later daemons keep its incarnation and its edits, and number their calls above every call that it can
//! have made, so late calls change nothing, and an edit counts once even if the daemon died before the answer. A daemon that has lost its
//! state begins another incarnation; if its clock was set back meanwhile, the answer says so, and it goes on with a higher incarnation.
//! Of two daemons that run under one name, the first is told that it is not heard any more, and still hears everything.
//!
//! **Lifetimes** travel as time left. A call also has the time by the store's own clock when it was made, as far as earlier answers tell, so a store that hangs
//! before it carries out a call does not prolong blocks. The store's clock decides when a block ends; a host counts the time left from when the answer arrives,
//! so hosts differ by the time that an answer takes.
//!
//! **What the store keeps**: at most 100 000 blocks that hold; at most 100 000 blocks that were removed or ran out within a day; hosts for
//! a day. A host that was away for longer, or while there was no room, gets all records from the beginning, and drops blocks that are not
//! among them. The keys do not expire: a block without an end still holds after all hosts were switched off for a month.
//!
//! **A store that has lost records** (emptied; a replica promoted without the last writes; restarted from an older file; keys evicted) has
//! another identity, and tells up to which version its memory is whole. Hosts keep later records until these run out, and give them
//! back: their own edits at once, removals of the last day included, and edits of another host after half a minute if it has not done so.
//! A record given back does not overwrite an edit made since.
//!
//! **No trust.** Whoever can write to the store can block customers, and can remove blocks. They cannot block an address that must reach a
//! host: each host asks [`ThisHost::would_cut_off`] before it accepts a block, and keeps a refused block with the reason. Nor can they make
//! a host keep more than a certain number of blocks, block more than a /8 (IPv6: /16) at once, or send control characters to a terminal.

mod answer;
mod hearing;
mod log;
mod outbox;
mod saved;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use self::{
    answer::CallStanding,
    log::GossipLog,
    outbox::{Edit, Outbox},
};
pub use self::{
    outbox::WaitingEdit,
    saved::{Numbers, Saved},
};
use super::{
    blocks::{self, BlockRecord, Blocks, HostBlock, ListEdit, ThisHost},
    members::{Facts, Member},
};
use crate::{
    compile::lists::Prefix,
    store::{
        clock::StoreClock,
        lease_batch::Keys,
        redis::{Call, Script, StoreError, Value},
    },
};

/// Reads a reply of the store as the answer to a call, and returns how many changes and hosts it has. A malformed reply is an error.
pub fn told_in(reply: &Value) -> Result<(usize, usize), StoreError> {
    answer::GossipAnswer::read(reply).map(|told| (told.changes.len(), told.hosts.len()))
}

/// How often each host calls.
pub const TICK: Duration = Duration::from_millis(250);
/// The size of the range of call numbers that each daemon has: more calls than one daemon makes in a hundred years.
const CALLS_OF_ONE: u64 = 1 << 34;
/// The largest number of daemons under one incarnation: up to this number the store's scripts count their calls exactly.
const MAX_DAEMONS: u64 = 1 << 18;
/// The highest incarnation: the store's scripts count exactly to twice this number.
const MAX_INCARNATION: u64 = 1 << 52;

static GOSSIP: LazyLock<Script> = LazyLock::new(|| Script::new("gossip", include_str!("scripts/gossip.lua")));

/// Makes a call of the script from words that [`Gossip::call`] has made.
pub fn call_of(keys: Vec<String>, args: Vec<String>) -> Call<'static> {
    let bytes = |words: Vec<String>| words.into_iter().map(String::into_bytes).collect();
    Call { script: &GOSSIP, keys: bytes(keys), args: bytes(args) }
}

/// One host's side of the gossip with the store.
#[derive(Clone, Debug)]
pub struct Gossip {
    host: String,
    /// A text that only this machine has: it tells two machines with one host name apart.
    owner: String,
    incarnation: u64,
    /// Daemons that have begun under `incarnation`, this one included.
    daemons: u64,
    /// Whether the store has heard this daemon.
    was_heard: bool,
    calls: u64,
    /// When the last call was made.
    called_ns: u64,
    /// The identity of the store that `since` is a version of.
    identity: Option<String>,
    since: u64,
    /// Whether this daemon has just begun and must hear of every block.
    is_new: bool,
    is_listing: bool,
    /// Whether there are blocks for all hosts and this daemon lost what it knew of the store's records.
    has_lost_track: bool,
    standing: CallStanding,
    clock: StoreClock,
    outbox: Outbox,
    blocks: Blocks,
    members: Vec<Member>,
    swept_ns: u64,
}

/// The result of hearing an answer of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GossipUpdate {
    /// Edits of this host's list, at most one for each prefix.
    pub edits: Vec<ListEdit>,
    /// Lines for the log.
    pub log: Vec<String>,
    /// Whether there is more to hear or to say, so that the next call is due at once.
    pub again: bool,
    /// Milliseconds by which the store's clock was set ahead, or back if negative; 0 if it was not set.
    pub step_ms: i64,
}

impl Gossip {
    /// Makes the gossip of a daemon that begins. `incarnation` is the time of its begin, in milliseconds of the wall clock. `inherited` are the blocks for all hosts
    /// that are already on the list.
    pub fn new(
        host: &str,
        incarnation: u64,
        saved: &Saved,
        inherited: impl IntoIterator<Item = (Prefix, BlockRecord)>,
        now_ns: u64,
    ) -> Result<Self, String> {
        blocks::check_host(host)?;
        let mut blocks = Blocks::new(host);
        let hidden = saved.hidden.iter().filter_map(|(prefix, until_ns, reason)| {
            Some((prefix.parse().ok()?, HostBlock { until_ns: *until_ns, reason: reason.clone() }))
        });
        let mut hidden: BTreeMap<Prefix, HostBlock> = hidden.collect();
        let numbers = &saved.numbers;
        // Without a known identity of the store it is unknown which blocks the store has heard of: it is told those that it does not have.
        let version = if numbers.identity.is_some() { numbers.version } else { blocks::UNCONFIRMED };
        let mut has_lost_track = false;
        for (prefix, block) in inherited {
            blocks.inherit(prefix, block, hidden.remove(&prefix), version, now_ns);
            has_lost_track = numbers.identity.is_none();
        }
        let outbox = Outbox::resumed(&saved.waiting, numbers.edit);
        for edit in outbox.iter().filter(|edit| !edit.restores) {
            blocks.edit(
                edit.prefix,
                edit.block.as_ref().map(|block| block.host_block.clone()),
                edit.sequence,
            );
        }
        saved.forced.iter().filter_map(|prefix| prefix.parse().ok()).for_each(|prefix| blocks.force(prefix));
        let (incarnation, before) = match (numbers.incarnation, numbers.daemons) {
            (0, _) => (incarnation % MAX_INCARNATION, 0),
            (known, before) if before < MAX_DAEMONS => (known, before),
            (known, _) => (known.saturating_add(1) % MAX_INCARNATION, 0),
        };
        Ok(Self {
            host: host.to_owned(),
            owner: String::new(),
            incarnation,
            daemons: before + 1,
            was_heard: false,
            calls: before * CALLS_OF_ONE,
            called_ns: now_ns,
            identity: numbers.identity.clone(),
            since: numbers.version,
            is_new: true,
            has_lost_track,
            is_listing: false,
            standing: CallStanding::Current,
            clock: StoreClock::default(),
            outbox,
            blocks,
            members: Vec::new(),
            swept_ns: now_ns,
        })
    }

    /// Sets the text that only this machine has. It must stay the same when the daemon starts again.
    pub fn owned_by(self, owner: String) -> Self {
        Self { owner, ..self }
    }

    /// Returns why the store does not accept this host's edits, if it does not.
    pub fn unheard(&self) -> Option<String> {
        match self.standing {
            CallStanding::Current => None,
            CallStanding::Taken | CallStanding::Late | CallStanding::Superseded => Some(format!(
                "another host calls the store as {:?}, and is heard instead of this one; give each host a name of its own ([cluster] host) \
                 and start this one again",
                self.host
            )),
            CallStanding::Crowded => {
                Some("the store knows as many hosts as it can, and does not hear this one".to_owned())
            }
        }
    }

    /// Blocks a prefix on all hosts: here at once, elsewhere after the next call. `is_forced` blocks it even if that cuts somebody off here.
    pub fn add(
        &mut self,
        prefix: Prefix,
        host_block: HostBlock,
        is_forced: bool,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Result<Option<ListEdit>, String> {
        blocks::check_width(&prefix)?;
        blocks::check_reason(&host_block.reason)?;
        if !is_forced && let Some(why) = this_host.would_cut_off(&prefix) {
            return Err(format!("refused to block {prefix} on all hosts: {why}"));
        }
        self.edit(prefix, Some(host_block), is_forced, this_host, now_ns)
    }

    /// Removes a block on all hosts.
    pub fn remove(
        &mut self,
        prefix: Prefix,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Result<Option<ListEdit>, String> {
        if self.blocks.get(&prefix, now_ns).is_none() {
            return Err(format!("{prefix} is not blocked on all hosts; nothing was changed"));
        }
        self.edit(prefix, None, false, this_host, now_ns)
    }

    fn edit(
        &mut self,
        prefix: Prefix,
        host_block: Option<HostBlock>,
        is_forced: bool,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Result<Option<ListEdit>, String> {
        if let Some(why) = self.unheard() {
            return Err(format!(
                "nothing was changed about {prefix}, because no other host would hear of it: {why}"
            ));
        }
        if self.outbox.room() == 0 {
            return Err(format!(
                "{} changes of blocks wait for the store already; try again when it answers",
                self.outbox.len()
            ));
        }
        let block =
            host_block.clone().map(|host_block| BlockRecord { host_block, origin: self.host.clone() });
        let sequence = self.outbox.push(prefix, block, false);
        self.blocks.edit(prefix, host_block, sequence);
        if is_forced {
            self.blocks.force(prefix);
        }
        Ok(self.blocks.settle(prefix, this_host, now_ns, &mut |_| {}))
    }

    /// Returns the edit of the list that blocks a prefix on this host alone.
    pub fn block_here(&mut self, prefix: Prefix, host_block: HostBlock, now_ns: u64) -> ListEdit {
        self.blocks.with_local(prefix, Some(host_block), now_ns)
    }

    /// Returns the edit of the list that removes a block of this host alone; `None` if there is no such block.
    pub fn unblock_here(
        &mut self,
        prefix: Prefix,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Option<ListEdit> {
        self.blocks.local(&prefix, this_host, now_ns)?;
        Some(self.blocks.with_local(prefix, None, now_ns))
    }

    /// Judges the blocks that this host refused again. Called after a change of the allow list, and now and then, because sessions end.
    pub fn judge_again(&mut self, this_host: &impl ThisHost, now_ns: u64) -> GossipUpdate {
        let mut log = GossipLog::default();
        let edits = self.blocks.judge_again(this_host, now_ns, &mut |line| log.say(line));
        GossipUpdate { edits, log: log.lines(), again: false, step_ms: 0 }
    }

    /// Returns the blocks for all hosts, each with the reason if this host refuses it.
    pub fn blocks(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &BlockRecord, Option<&str>)> {
        self.blocks.iter(now_ns)
    }

    /// Returns the prefixes whose block on the list is the one for all hosts. The next daemon inherits them. Prefixes that this host alone
    /// blocks for longer are not among them.
    pub fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.blocks.shown()
    }

    /// Returns the block of a prefix for all hosts.
    pub fn block(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        self.blocks.get(prefix, now_ns)
    }

    /// Returns the block of a prefix for all hosts, if this host has accepted it.
    pub fn block_here_too(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        self.blocks.in_force(prefix, now_ns)
    }

    /// Returns the block of a prefix for this host alone that is hidden behind a longer one for all hosts.
    pub fn block_behind(&self, prefix: &Prefix, now_ns: u64) -> Option<&HostBlock> {
        self.blocks.hidden().get(prefix).filter(|block| block.holds(now_ns))
    }

    /// Returns all blocks of this host alone that are hidden behind longer ones for all hosts.
    pub fn blocks_behind(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &HostBlock)> {
        self.blocks.held_behind(now_ns)
    }

    /// Returns the hosts, as the store last listed them.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns how many edits the store has not answered.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Makes the next call. `facts` has the facts that only the daemon knows; the others are filled in here.
    pub fn call(&mut self, keys: &Keys, facts: &Facts, wants_members: bool, now_ns: u64) -> Call<'static> {
        self.calls += 1;
        self.called_ns = now_ns;
        let (blocks, refused) = self.blocks.counts();
        let facts = Facts {
            applied: if self.is_new { 0 } else { self.since },
            blocks: blocks as u64,
            refused: refused as u64,
            ..facts.clone()
        };
        let identity = if self.is_new { "" } else { self.identity.as_deref().unwrap_or_default() };
        let flag = |is: bool| u64::from(is).to_string();
        let mut args = vec![
            self.host.clone(),
            self.incarnation.to_string(),
            self.calls.to_string(),
            identity.to_owned(),
            self.since.to_string(),
            flag(self.is_listing),
            flag(wants_members),
            facts.text(),
            self.owner.clone(),
            self.clock.latest_ms(now_ns).to_string(),
        ];
        for Edit { sequence, prefix, block, restores } in self.outbox.next_edits() {
            let (kind, left, reason, origin) = match block {
                Some(BlockRecord { host_block, origin }) => {
                    ("add", left_ms(host_block, now_ns), host_block.reason.as_str(), origin)
                }
                None => ("remove", 0, "", &self.host),
            };
            args.extend([sequence.to_string(), kind.to_owned(), flag(*restores), prefix.to_string()]);
            args.extend([left.to_string(), reason.to_owned(), origin.clone()]);
        }
        let parts = ["state", "blocks", "changes", "ends", "hosts", "seen"];
        call_of(parts.iter().map(|part| keys.gossip(part)).collect(), args)
    }
}

/// Returns the milliseconds left of a block; -1 for a block without an end. A block that ran out while the store was away has 1 ms left, so that it still replaces
/// the record before it.
fn left_ms(host_block: &HostBlock, now_ns: u64) -> i64 {
    host_block.until_ns.map_or(-1, |until| (until.saturating_sub(now_ns) / 1_000_000).max(1) as i64)
}
