//! What hosts tell each other: blocks that hold on all of them, and that they are there.
//!
//! ```text
//! operator -> add, remove -> call -> store -> hear -> edits of the list of every host
//! ```
//! Every host calls one script every [`TICK`], so a block is on every host within two ticks and costs each of them four commands a second,
//! however many blocks and hosts there are. The call says who this host is, what it has heard, and what it wants changed; the answer has
//! what has changed since. There is no second way, such as publish and subscribe, that could lose something: a host that was away, or is
//! new, asks from where it was, and gets portions of a thousand until it has everything.
//!
//! **Once and in order.** The store numbers changes; the last one of a prefix is what holds. Each edit has a number of this host and is told
//! until it is answered; the store carries out numbers that are above the last one. A call may also run later than newer ones: each call
//! has a number too, and one that is not above the last one changes nothing. The first daemon of a host begins both numbers at 1 under an
//! incarnation, the time when it began; those after it go on with its incarnation and its edits, and number their calls above all that it can
//! have made, so calls that are still on their way change nothing, and an edit counts once also if the daemon died before it was answered. One
//! that has lost what it knew begins another incarnation; one whose clock was set back meanwhile is told, and goes on with a number that is high
//! enough. Of two daemons that run under one name, the first is told that it is not heard any more, and still hears everything.
//!
//! **Lifetimes** travel as time that is left, to the store together with when the call was made by the store's own clock, as far as the host knows that from the
//! answers before: a store that hangs with a call in hand does not prolong blocks. The store's clock decides; a host counts from when it hears of it, so hosts
//! differ by as much as an answer takes.
//!
//! **What the store keeps**: blocks, at most 100 000 that hold; those that were removed or ran out for another day, at most 100 000; hosts
//! for a day. A host that was away for longer, or while there was no room, gets everything from the beginning, and drops what is not there
//! any more. Nothing of it expires as a whole: a block without an end holds also if all hosts are switched off for a month.
//!
//! **A store that has lost something** (emptied; a replica promoted without the last writes; restarted from an older file; keys evicted) has
//! another identity, and says up to which version its memory is whole. Hosts keep what they know beyond that until it runs out, and give
//! it back: their own edits at once, removals of the last day included, those of others after half a minute if nobody has. What has been
//! said since is not overwritten by that.
//!
//! **No trust.** Whoever can write to the store can block customers, and can remove blocks; they cannot block who must reach a host: each
//! host asks [`ThisHost::would_cut_off`] before it takes a block, and keeps what it refuses with the reason. Nor can they make a host keep
//! more than a certain number of blocks, block more than a /8 (IPv6: /16) at once, or send a terminal anything but plain text.

mod answer;
mod clock;
mod hearing;
mod log;
mod outbox;
mod saved;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

pub(crate) use self::clock::said as clock_said;
use self::{
    answer::CallStanding,
    clock::StoreClock,
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
        lease_batch::Keys,
        redis::{Call, Script, StoreError, Value},
    },
};

/// Reads a reply of the store as the answer to a call: how many changes and hosts it tells of, or that it is nonsense.
pub fn told_in(reply: &Value) -> Result<(usize, usize), StoreError> {
    answer::GossipAnswer::read(reply).map(|told| (told.changes.len(), told.hosts.len()))
}

/// How often each host calls.
pub const TICK: Duration = Duration::from_millis(250);
/// More calls than one daemon makes in a hundred years. The next daemon numbers its calls above them.
const CALLS_OF_ONE: u64 = 1 << 34;
/// The most daemons under one incarnation: the store's scripts count the calls of so many exactly.
const MAX_DAEMONS: u64 = 1 << 18;
/// The highest incarnation: the store's scripts count exactly to twice this number.
const MAX_INCARNATION: u64 = 1 << 52;

static GOSSIP: LazyLock<Script> = LazyLock::new(|| Script::new("gossip", include_str!("scripts/gossip.lua")));

/// A call of the script, from words that [`Gossip::call`] has made.
pub fn call_of(keys: Vec<String>, args: Vec<String>) -> Call<'static> {
    let bytes = |words: Vec<String>| words.into_iter().map(String::into_bytes).collect();
    Call { script: &GOSSIP, keys: bytes(keys), args: bytes(args) }
}

/// One host's part in the conversation.
#[derive(Clone, Debug)]
pub struct Gossip {
    host: String,
    /// A text that names this machine and no other: it tells two machines of one host name apart.
    owner: String,
    incarnation: u64,
    /// Daemons that have begun under `incarnation`, this one included.
    daemons: u64,
    /// Whether the store has heard this daemon.
    was_heard: bool,
    calls: u64,
    /// When the last call was made.
    called_ns: u64,
    /// The store whose version `since` is.
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

/// What follows from an answer of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GossipUpdate {
    /// What the list of this host says from now on; each prefix once.
    pub edits: Vec<ListEdit>,
    /// Lines for the log.
    pub log: Vec<String>,
    /// Whether there is more to hear or to say, so that the next call is due at once.
    pub again: bool,
    /// How far the store's clock went ahead of this host's at once, or back if it is below 0.
    pub step_ms: i64,
}

impl Gossip {
    /// The part of a daemon that begins. `incarnation` is when it begins, in milliseconds of the wall clock. `inherited` is what the list already has of blocks for all
    /// hosts.
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
        // Nobody knows which of these edits the store has heard of: the store is told those that it does not have.
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

    /// Names the machine by a text that no other machine has, and that stays when the daemon starts again.
    pub fn owned_by(self, owner: String) -> Self {
        Self { owner, ..self }
    }

    /// Why the store does not hear what this host says about blocks, if it does not.
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

    /// Blocks a prefix on all hosts: here at once, elsewhere with the next call. `is_forced`: also if that cuts somebody off here.
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

    /// Takes a block away on all hosts.
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

    /// What the list says when a prefix is blocked on this host alone.
    pub fn block_here(&mut self, prefix: Prefix, host_block: HostBlock, now_ns: u64) -> ListEdit {
        self.blocks.with_local(prefix, Some(host_block), now_ns)
    }

    /// What the list says when a block of this host alone is taken away; nothing if there is no such block.
    pub fn unblock_here(
        &mut self,
        prefix: Prefix,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Option<ListEdit> {
        self.blocks.local(&prefix, this_host, now_ns)?;
        Some(self.blocks.with_local(prefix, None, now_ns))
    }

    /// Judges blocks again that this host refused: after a change of the allow list, and now and then, because sessions end.
    pub fn judge_again(&mut self, this_host: &impl ThisHost, now_ns: u64) -> GossipUpdate {
        let mut log = GossipLog::default();
        let edits = self.blocks.judge_again(this_host, now_ns, &mut |line| log.say(line));
        GossipUpdate { edits, log: log.lines(), again: false, step_ms: 0 }
    }

    /// Blocks for all hosts, each with the reason why it does not hold here, if it does not.
    pub fn blocks(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &BlockRecord, Option<&str>)> {
        self.blocks.iter(now_ns)
    }

    /// Prefixes whose block on the list is the one for all hosts: what the next daemon inherits. Not those that this host alone blocks for
    /// longer.
    pub fn shown(&self) -> impl Iterator<Item = &Prefix> {
        self.blocks.shown()
    }

    /// The block of a prefix for all hosts.
    pub fn block(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        self.blocks.get(prefix, now_ns)
    }

    /// The block of a prefix for all hosts, if it holds on this one too.
    pub fn block_here_too(&self, prefix: &Prefix, now_ns: u64) -> Option<&BlockRecord> {
        self.blocks.in_force(prefix, now_ns)
    }

    /// The block of a prefix on this host alone, behind one for all hosts that lasts longer.
    pub fn block_behind(&self, prefix: &Prefix, now_ns: u64) -> Option<&HostBlock> {
        self.blocks.hidden().get(prefix).filter(|block| block.holds(now_ns))
    }

    /// All blocks of this host alone that are behind one for all hosts.
    pub fn blocks_behind(&self, now_ns: u64) -> impl Iterator<Item = (&Prefix, &HostBlock)> {
        self.blocks.held_behind(now_ns)
    }

    /// The hosts, as the store last told them.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Edits that the store has not answered.
    pub fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// The next call. `facts` are those that only the daemon knows.
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

/// Milliseconds that are left of a block; -1 of a block without an end. A block that has run out while the store was away has one left, so that it still replaces
/// what was there.
fn left_ms(host_block: &HostBlock, now_ns: u64) -> i64 {
    host_block.until_ns.map_or(-1, |until| (until.saturating_sub(now_ns) / 1_000_000).max(1) as i64)
}
