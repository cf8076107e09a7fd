//! Blocks that hold on all hosts, on this one: said by its operators, heard from the others, and kept for the next daemon.

use std::{cell::OnceCell, path::Path};

use ratelimit_common::abi::{ListEntry, list};

use super::{
    Cluster,
    loan::{NoResult, lent},
    owner::owner,
};
use crate::{
    cluster::{
        blocks::{Held, Layer, ListEdit, ThisHost},
        gossip::{Gossip, Heard},
    },
    compile::lists::{self, Edits, Lists, Outlook, Prefix},
    control::protocol::{Block, Operator, Reply},
    daemon::{
        host::Host,
        kept::Kept,
        lists::{Order, because, entry_of, held_of, was_blocked_for},
        log,
    },
    failure::{ExitCode, Failure},
    lockout::{self, Vital},
    store::redis::{StoreError, Value},
};

/// This host as gossip asks about it.
struct Here<'h> {
    host: &'h Host,
    now_ns: u64,
    /// Who must not be cut off; found out when it is first needed.
    vital: OnceCell<Result<Vec<Vital>, String>>,
}

impl ThisHost for Here<'_> {
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String> {
        let look = || self.host.vital(&Operator::default()).map_err(|failure| failure.message);
        let vital = match self.vital.get_or_init(look) {
            Ok(vital) => vital,
            Err(why) => return Some(why.clone()),
        };
        let block = ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..self.host.own(prefix) };
        let changes = lists::edited(&self.host.lists, &Edits::from([(*prefix, block)]));
        let cut = lockout::cut_off(prefix, &Outlook::new(&self.host.lists, &changes), self.now_ns, vital);
        cut.first().map(ToString::to_string)
    }

    fn listed(&self, prefix: &Prefix) -> Option<Held> {
        self.host.lists.get(prefix).and_then(|entry| held_of(entry, self.now_ns))
    }
}

/// The conversation that the last daemon has begun, and what the list has of it.
pub(super) fn recall(
    state: &Path,
    kept: &Kept,
    lists: &Lists,
    name: &str,
    started_unix_ms: u64,
    now_ns: u64,
) -> Result<Gossip, Failure> {
    let gossip =
        Gossip::new(name, started_unix_ms, &kept.saved(), kept.inherited(lists, name, now_ns), now_ns)
            .map_err(|reason| Failure::usage(format!("[cluster] host: {reason}")))?;
    Ok(gossip.owned_by(owner(state)?))
}

impl Host {
    /// Blocks a prefix on all hosts.
    pub(in crate::daemon) fn block_everywhere(
        &mut self,
        prefix: Prefix,
        held: Held,
        order: &Order<'_>,
    ) -> Result<Reply, Failure> {
        let Order { operator, by, now_ns } = *order;
        let (until, why) = (held.lifetime(now_ns), because(&held.reason));
        let replaced = self.replaced(&prefix, &held, now_ns);
        let edit =
            self.with_gossip(now_ns, |gossip, here| gossip.add(prefix, held, operator.force, here, now_ns))?;
        self.apply_edits(edit.map_err(Failure::usage)?.as_slice())?;
        self.write_down([&prefix]);
        log::info(format!("{prefix} blocked {until} on all hosts by {by}{why}{replaced}"));
        Ok(Reply::Done(format!("blocked {prefix} {until} on this host{replaced}; {}", self.on_its_way())))
    }

    /// Takes a block away on all hosts.
    pub(in crate::daemon) fn unblock_everywhere(
        &mut self,
        prefix: Prefix,
        order: &Order<'_>,
    ) -> Result<Reply, Failure> {
        let Order { by, now_ns, .. } = *order;
        let reason = self.with_gossip(now_ns, |gossip, _| {
            gossip.block(&prefix, now_ns).map(|block| block.held.reason.clone()).unwrap_or_default()
        })?;
        let edit = self.with_gossip(now_ns, |gossip, here| gossip.remove(prefix, here, now_ns))?;
        let edit = edit.map_err(|reason| Failure::new(ExitCode::Found, reason))?;
        self.apply_edits(edit.as_slice())?;
        self.write_down([&prefix]);
        log::info(format!("the block of {prefix} on all hosts removed by {by}{}", was_blocked_for(&reason)));
        Ok(Reply::Done(format!("removed the block of {prefix} on this host; {}", self.on_its_way())))
    }

    fn on_its_way(&self) -> &'static str {
        match &self.cluster {
            Some(cluster) if cluster.gossip.unheard().is_some() => {
                "the others do NOT hear of it, because the store does not hear this host; ratelimit status says why"
            }
            Some(cluster) if cluster.problem.is_none() => "the others hear of it within a second",
            _ => "the others hear of it when the store answers again",
        }
    }

    /// What the list says once a prefix is blocked, or not any more, on this host alone; as it was said if there is no cluster.
    pub(in crate::daemon) fn block_of_host(
        &mut self,
        prefix: Prefix,
        held: Option<Held>,
        now_ns: u64,
    ) -> Result<ListEdit, Failure> {
        if self.cluster.is_none() {
            return Ok(ListEdit { prefix, block: held.map(|held| (held, Layer::Local)) });
        }
        match held {
            Some(held) => self.with_gossip(now_ns, |gossip, _| gossip.block_here(prefix, held, now_ns)),
            None => {
                let edit =
                    self.with_gossip(now_ns, |gossip, here| gossip.unblock_here(prefix, here, now_ns))?;
                edit.ok_or_else(|| {
                    Failure::new(
                        ExitCode::Found,
                        format!("{prefix} is blocked on all hosts, not on this one alone; use --cluster to remove that"),
                    )
                })
            }
        }
    }

    /// Takes in what the store says of blocks and hosts.
    pub(super) fn hear_gossip(&mut self, answer: &Value, now_ns: u64) -> Result<bool, StoreError> {
        let heard = self
            .with_gossip(now_ns, |gossip, here| gossip.hear(answer, here, now_ns))
            .map_err(|failure| StoreError::Nonsense { at: "the store".into(), why: failure.message })??;
        if let Some(cluster) = &mut self.cluster
            && heard.step_ms != 0
        {
            cluster.clock_stepped(heard.step_ms, now_ns);
        }
        Ok(self.follow(&heard))
    }

    /// Judges again what was refused, and keeps what the next daemon has to know. Called once a second.
    pub(in crate::daemon) fn look_after_blocks(&mut self, now_ns: u64) {
        if let Ok(heard) = self.with_gossip(now_ns, |gossip, here| gossip.judge_again(here, now_ns)) {
            self.follow(&heard);
        }
        self.write_down([]);
    }

    fn follow(&mut self, heard: &Heard) -> bool {
        heard.log.iter().for_each(log::info);
        if let Err(failure) = self.apply_edits(&heard.edits) {
            log::error(format!("a block for all hosts does not hold here: {failure}"));
        }
        self.write_down([]);
        heard.again
    }

    fn apply_edits(&mut self, edits: &[ListEdit]) -> Result<(), Failure> {
        if edits.is_empty() {
            return Ok(());
        }
        let edits: Edits =
            edits.iter().map(|edit| (edit.prefix, entry_of(self.own(&edit.prefix), edit))).collect();
        self.edit_lists(&edits)
    }

    /// Gossip and what it asks about this host, at the same time.
    fn with_gossip<R>(
        &mut self,
        now_ns: u64,
        what: impl FnOnce(&mut Gossip, &Here<'_>) -> R,
    ) -> Result<R, Failure> {
        let work = |cluster: &mut Cluster, host: &Host| {
            let here = Here { host, now_ns, vital: OnceCell::new() };
            what(&mut cluster.gossip, &here)
        };
        lent(self, |host| &mut host.cluster, work).map_err(|no_result| match no_result {
            NoResult::Nothing => {
                Failure::usage("this host is in no cluster; give it one with [cluster] redis, or run --redis")
            }
            NoResult::Panicked(words) => Failure::new(
                ExitCode::Found,
                format!(
                    "this is a mistake in the program, and nothing came of it: {words}; please report it"
                ),
            ),
        })
    }
}

impl Cluster {
    /// Blocks for all hosts that do not hold here.
    pub(in crate::daemon) fn refused(&self, now_ns: u64) -> Vec<Block> {
        let refused = |(prefix, block, why): (&Prefix, &_, Option<&str>)| {
            let block: &crate::cluster::blocks::Block = block;
            let left = block.held.until_ns.map(|until| until.saturating_sub(now_ns).div_ceil(1_000_000_000));
            Some(Block {
                prefix: prefix.to_string(),
                seconds_left: left,
                reason: Some(block.held.reason.clone()).filter(|reason| !reason.is_empty()),
                origin: Some(block.origin.clone()),
                refused: Some(why?.to_owned()),
            })
        };
        self.gossip.blocks(now_ns).filter_map(refused).collect()
    }

    /// The host that blocks a prefix on all of them.
    pub(in crate::daemon) fn block_of<'c>(&'c self, prefix: &Prefix, now_ns: u64) -> Option<&'c str> {
        self.gossip.block(prefix, now_ns).map(|block| block.origin.as_str())
    }
}
