//! Blocks for all hosts, on this host: ordered by its operators, heard from other hosts, and kept for the next daemon.

use std::{cell::RefCell, path::Path, time::Instant};

use ratelimit_common::abi::{ListEntry, list};

use super::{ListBook, ListChanger, ListEditor, because, lookout::Lookout, vital::look, was_blocked_for};
use crate::{
    clock,
    cluster::{
        blocks::{HostBlock, Layer, ListEdit, ThisHost},
        gossip::{Gossip, GossipUpdate},
    },
    compile::lists::{self, Edits, Lists, Outlook, Prefix},
    control::protocol::Reply,
    daemon::{
        cluster::{Cluster, owner::owner, panicked::caught},
        state::{
            entries::{entry_of, host_block_of, is_of_cluster, own},
            kept::KeptState,
        },
    },
    dataplane::probe,
    failure::{ExitCode, Failure},
    lockout::{self, PacketRules, Vital},
    log,
    policy::{ClusterPolicy, Policy},
    store::redis::{StoreError, Value},
};

/// The number of waiting changes that the store surely takes within a second.
const SOON: usize = 1_000;

/// Returns a sentence about when other hosts hear of a change. `waiting` changes, including this one, wait for the store.
fn arrival(is_unheard: bool, store_answers: bool, waiting: usize) -> String {
    if is_unheard {
        return "the others do NOT hear of it, because the store does not hear this host; ratelimit status says why".into();
    }
    match waiting {
        _ if !store_answers => "the others hear of it when the store answers again".into(),
        0..=SOON => "the others hear of it within a second".into(),
        more => format!("the other hosts get it after {} changes that wait for the store", more - 1),
    }
}

/// The facts about this host that gossip asks for.
struct Here<'h> {
    policy: &'h Policy,
    lists: &'h Lists,
    now_ns: u64,
    /// Finds the addresses that must not be cut off. All blocks of one answer are judged by one look.
    lookout: RefCell<&'h mut Lookout>,
    at: Instant,
}

impl ThisHost for Here<'_> {
    fn would_cut_off(&self, prefix: &Prefix) -> Option<String> {
        let mut lookout = self.lookout.borrow_mut();
        let vital = match lookout.vital(self.at, look) {
            Ok(vital) => vital,
            Err(failure) => return Some(failure.message),
        };
        let inside: Vec<&Vital> = lockout::inside(prefix, vital).collect();
        if inside.is_empty() {
            return None;
        }
        // A block that is on the list already is judged as if it were new.
        let blocked_until = |own_blocked_until_ns: u64| {
            let entry = ListEntry { own_blocked_until_ns, ..own(self.lists, prefix) };
            lists::edited(self.lists, &Edits::from([(*prefix, entry)]))
        };
        let without = Outlook::new(self.lists, &blocked_until(0));
        let with = Outlook::new(self.lists, &blocked_until(list::FOREVER_NS));
        let rules = |lists| PacketRules { policy: self.policy, lists };
        let cut = lockout::cut_off(rules(&without), rules(&with), self.now_ns, inside);
        cut.first().map(|cut| cut.who().to_string())
    }

    fn listed(&self, prefix: &Prefix) -> Option<HostBlock> {
        self.lists.get(prefix).and_then(|entry| host_block_of(entry, self.now_ns))
    }
}

/// Makes this host's part in the cluster, which goes on where the last daemon ended.
pub(in crate::daemon) fn join(
    policy: ClusterPolicy,
    state: &Path,
    kept: &KeptState,
    lists: &Lists,
) -> Result<Cluster, Failure> {
    let now_ns = probe::now_ns();
    let name = policy.host().map_or_else(probe::host_name, str::to_owned);
    let inherited = kept.inherited(lists, &name, now_ns);
    let gossip = Gossip::new(&name, clock::unix_ms(), &kept.saved(), inherited, now_ns)
        .map_err(|reason| Failure::usage(format!("[cluster] host: {reason}")))?;
    Cluster::new(policy, &name, gossip.owned_by(owner(state)?))
}

impl ListEditor<'_> {
    /// Blocks a prefix on all hosts.
    pub(in crate::daemon) fn block_everywhere(
        &mut self,
        prefix: Prefix,
        block: HostBlock,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let ListChanger { operator, by, now_ns } = *changer;
        let (until, why) = (block.lifetime(now_ns), because(&block.reason));
        let replaced = self.replaced(&prefix, &block, now_ns);
        let edit = self.with_gossip(now_ns, |gossip, this_host| {
            gossip.add(prefix, block, operator.force, this_host, now_ns)
        })?;
        self.apply_edits(edit.map_err(Failure::usage)?.as_slice())?;
        self.write_down([&prefix]);
        let way = self.on_its_way();
        let own = self.book.lists.get(&prefix).filter(|entry| !is_of_cluster(entry));
        if let Some(own) = own.and_then(|entry| host_block_of(entry, now_ns)) {
            let stays = format!("this host's own block, {}, stays beside it", own.lifetime(now_ns));
            tracing::info!(event = "block", scope = "cluster", %prefix, %by, "{prefix} blocked {until} on all hosts by {by}{why}; {stays}");
            return Ok(Reply::Done(format!("blocked {prefix} {until} for all hosts; {stays}; {way}")));
        }
        tracing::info!(event = "block", scope = "cluster", %prefix, %by, "{prefix} blocked {until} on all hosts by {by}{why}{replaced}");
        Ok(Reply::Done(format!("blocked {prefix} {until} on this host{replaced}; {way}")))
    }

    /// Removes a block on all hosts.
    pub(in crate::daemon) fn unblock_everywhere(
        &mut self,
        prefix: Prefix,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let ListChanger { by, now_ns, .. } = *changer;
        let reason = self.with_gossip(now_ns, |gossip, _| {
            gossip.block(&prefix, now_ns).map(|block| block.host_block.reason.clone()).unwrap_or_default()
        })?;
        let edit = self.with_gossip(now_ns, |gossip, this_host| gossip.remove(prefix, this_host, now_ns))?;
        let edit = edit.map_err(|reason| Failure::new(ExitCode::Found, reason))?;
        self.apply_edits(edit.as_slice())?;
        self.write_down([&prefix]);
        tracing::info!(
            event = "unblock", scope = "cluster", %prefix, %by,
            "the block of {prefix} on all hosts removed by {by}{}", was_blocked_for(&reason)
        );
        Ok(Reply::Done(format!("removed the block of {prefix} on this host; {}", self.on_its_way())))
    }

    /// Returns a sentence about when the other hosts hear of the last change.
    fn on_its_way(&self) -> String {
        let cluster = self.cluster.as_ref();
        arrival(
            cluster.is_some_and(|cluster| cluster.gossip.unheard().is_some()),
            cluster.is_some_and(|cluster| cluster.problem.is_none()),
            cluster.map_or(0, |cluster| cluster.gossip.waiting()),
        )
    }

    /// Returns the edit of the list for a block, or the end of one, on this host alone. In a cluster the block for all hosts counts too.
    pub(in crate::daemon) fn block_of_host(
        &mut self,
        prefix: Prefix,
        block: Option<HostBlock>,
        now_ns: u64,
    ) -> Result<ListEdit, Failure> {
        if self.cluster.is_none() {
            return Ok(ListEdit { prefix, block: block.map(|block| (block, Layer::Local)) });
        }
        match block {
            Some(block) => self.with_gossip(now_ns, |gossip, _| gossip.block_here(prefix, block, now_ns)),
            None => {
                let edit = self.with_gossip(now_ns, |gossip, this_host| {
                    gossip.unblock_here(prefix, this_host, now_ns)
                })?;
                edit.ok_or_else(|| {
                    Failure::new(
                        ExitCode::Found,
                        format!("{prefix} is blocked on all hosts, not on this one alone; use --cluster to remove that"),
                    )
                })
            }
        }
    }

    /// Takes in an answer of the store to a call of gossip.
    pub(in crate::daemon) fn hear_gossip(&mut self, answer: &Value, now_ns: u64) -> Result<(), StoreError> {
        let heard =
            self.with_gossip(now_ns, |gossip, this_host| gossip.hear(answer, this_host, now_ns))
                .map_err(|failure| StoreError::Nonsense { at: "the store".into(), why: failure.message })??;
        if let Some(cluster) = &mut self.cluster {
            if heard.step_ms != 0 {
                cluster.clock_stepped(heard.step_ms, now_ns);
            }
            if heard.again {
                cluster.gossip_due = Instant::now();
            }
        }
        self.follow(&heard);
        Ok(())
    }

    /// Judges refused blocks again, and saves the state for the next daemon. Called once a second.
    pub(in crate::daemon) fn look_after_blocks(&mut self, now_ns: u64) {
        if let Ok(heard) = self.with_gossip(now_ns, |gossip, this_host| gossip.judge_again(this_host, now_ns))
        {
            self.follow(&heard);
        }
        self.write_down([]);
    }

    fn follow(&mut self, heard: &GossipUpdate) {
        heard.log.iter().for_each(log::info);
        if let Err(failure) = self.apply_edits(&heard.edits) {
            log::error(format!("a block for all hosts does not hold here: {failure}"));
        }
        self.write_down([]);
    }

    fn apply_edits(&mut self, edits: &[ListEdit]) -> Result<(), Failure> {
        if edits.is_empty() {
            return Ok(());
        }
        let edits: Edits =
            edits.iter().map(|edit| (edit.prefix, entry_of(self.own(&edit.prefix), edit))).collect();
        self.edit(&edits)
    }

    /// Works with gossip, and gives it the facts about this host. A panic ends only this piece of work.
    fn with_gossip<R>(
        &mut self,
        now_ns: u64,
        what: impl FnOnce(&mut Gossip, &Here<'_>) -> R,
    ) -> Result<R, Failure> {
        let Some(cluster) = &mut self.cluster else { return Err(Cluster::none(ExitCode::Usage)) };
        let ListBook { lists, lookout, .. } = &mut *self.book;
        let this_host =
            Here { policy: self.policy, lists, now_ns, lookout: RefCell::new(lookout), at: Instant::now() };
        caught(|| what(&mut cluster.gossip, &this_host)).map_err(|words| {
            Failure::new(
                ExitCode::Found,
                format!(
                    "this is a mistake in the program, and nothing came of it: {words}; please report it"
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_orders_a_block_is_told_when_other_hosts_hear_of_it() {
        assert_eq!(arrival(false, true, 1), "the others hear of it within a second");
        assert_eq!(
            arrival(false, true, 7_600),
            "the other hosts get it after 7599 changes that wait for the store"
        );
        assert_eq!(arrival(false, false, 7_600), "the others hear of it when the store answers again");
        assert!(arrival(true, true, 1).starts_with("the others do NOT hear of it"));
    }
}
