//! Takes in an answer of the store: about this host's edits, blocks, hosts, and the store's own clock.

use super::{
    Gossip, GossipUpdate,
    answer::{CallStanding, GossipAnswer},
    log::{GossipLog, said},
};
use crate::{
    cluster::{
        blocks::{self, ThisHost, plain},
        members::Member,
    },
    compile::lists::Prefix,
    store::{
        clock,
        redis::{StoreError, Value},
    },
};

/// Characters of a refusal by the store that are logged.
const WHY_LEN: usize = 200;
/// How often the host looks for blocks that have run out.
const SWEEP_NS: u64 = 10_000_000_000;

impl Gossip {
    /// Takes in the answer to the last call. Answers to earlier calls must not be passed.
    pub fn hear(
        &mut self,
        answer: &Value,
        this_host: &impl ThisHost,
        now_ns: u64,
    ) -> Result<GossipUpdate, StoreError> {
        let answer = GossipAnswer::read(answer)?;
        let mut log = GossipLog::default();
        self.hear_of_edits(&answer, &mut log);
        let step_ms = self.clock.hear(&answer.identity, answer.now_ms, self.called_ns, now_ns);
        if step_ms != 0 {
            log.say(clock::said(step_ms));
        }
        if answer.begins {
            self.begin_listing(&answer, &mut log);
        }
        let mut touched = self.learn_changes(&answer, &mut log, now_ns);
        (self.is_new, self.identity, self.since) = (false, Some(answer.identity.clone()), answer.upto);
        self.is_listing = (self.is_listing || answer.begins) && answer.more;
        if !answer.more {
            touched.extend(self.complete(&answer, now_ns));
        }
        if now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            self.swept_ns = now_ns;
            self.blocks.sweep(now_ns);
        }
        if !answer.hosts.is_empty() {
            let members = answer.hosts.iter();
            let members =
                members.filter_map(|(host, ago, facts)| Member::read(host, *ago, facts, answer.version));
            self.members = members.collect();
        }
        touched.sort_unstable();
        touched.dedup();
        let settle = |prefix| self.blocks.settle(prefix, this_host, now_ns, &mut |line| log.say(line));
        let edits = touched.into_iter().filter_map(settle).collect();
        let again = answer.more || self.has_more_to_say(answer.standing);
        Ok(GossipUpdate { edits, log: log.lines(), again, step_ms })
    }

    /// Begins a listing: the store tells all records, to a new daemon or because it is not the store that this host knew.
    fn begin_listing(&mut self, answer: &GossipAnswer, log: &mut GossipLog) {
        let has_lost_track = std::mem::take(&mut self.has_lost_track);
        let is_other = has_lost_track
            || self.identity.as_ref().is_some_and(|known| *known != answer.identity)
            || self.since > answer.version;
        if has_lost_track {
            log.say("what was known of the store is lost; blocks for all hosts that it does not have are told again".to_owned());
        } else if is_other {
            log.say(format!(
                "the store is another one, or has been emptied or restarted; what it knew before its change {} is compared",
                answer.base
            ));
        }
        self.blocks.begin_listing(is_other, answer.base);
    }

    /// Takes in the changes of an answer, and returns the prefixes that they are about.
    fn learn_changes(&mut self, answer: &GossipAnswer, log: &mut GossipLog, now_ns: u64) -> Vec<Prefix> {
        let mut touched = Vec::new();
        for change in &answer.changes {
            match self.blocks.learn(change, now_ns) {
                Ok(prefix) => {
                    touched.extend(prefix);
                    // Edits of this host are not logged, nor are records of a listing, which are old.
                    let is_old = answer.begins || self.is_listing;
                    if !is_old && prefix.is_some_and(|prefix| !self.blocks.is_pending(&prefix)) {
                        log.say(said(change));
                    }
                }
                Err((prefix, why)) => {
                    touched.extend(prefix);
                    let origin = plain(&change.origin, blocks::HOST_LEN);
                    log.say(format!("ignored a block for all hosts, said to be of {origin:?}: {why}"));
                }
            }
        }
        touched
    }

    /// Called when all changes have been heard: forgets the edits that the store has answered, and queues records that it has lost. This must not
    /// happen earlier, because the store may lose records until then, and these have to be told again too.
    fn complete(&mut self, answer: &GossipAnswer, now_ns: u64) -> Vec<Prefix> {
        let edit = if answer.standing == CallStanding::Current { answer.edit } else { 0 };
        self.outbox.answered(edit);
        let touched = self.blocks.complete(edit, now_ns);
        let room = self.outbox.room();
        for (prefix, block) in self.blocks.restores(now_ns, room) {
            self.outbox.push(prefix, block, true);
        }
        touched
    }

    /// Whether the next call is due at once, because this host has edits that the store would accept.
    fn has_more_to_say(&self, standing: CallStanding) -> bool {
        match standing {
            CallStanding::Current => self.outbox.len() > 0,
            // The next call has a higher number.
            CallStanding::Superseded | CallStanding::Late => !self.was_heard,
            CallStanding::Taken | CallStanding::Crowded => false,
        }
    }

    fn hear_of_edits(&mut self, answer: &GossipAnswer, log: &mut GossipLog) {
        if matches!(answer.standing, CallStanding::Superseded | CallStanding::Late) && !self.was_heard {
            // An earlier daemon of this host used a higher number: its clock was ahead, or its numbers were not saved.
            self.incarnation = answer.incarnation.saturating_add(1);
            self.daemons = 1;
            return;
        }
        self.was_heard |= answer.standing == CallStanding::Current;
        if answer.standing != self.standing {
            self.standing = answer.standing;
            log.say(self.unheard().unwrap_or_else(|| "the store hears this host again".to_owned()));
        }
        if answer.standing != CallStanding::Current {
            return;
        }
        for (sequence, why) in &answer.refused {
            if let Some(edit) = self.outbox.get(*sequence) {
                log.say(format!(
                    "the store refused to block {} on all hosts: {}",
                    edit.prefix,
                    plain(why, WHY_LEN)
                ));
            }
        }
    }
}
