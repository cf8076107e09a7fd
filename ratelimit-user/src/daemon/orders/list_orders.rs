//! Orders about entries of the block and allow lists.

use ratelimit_common::abi::{ListEntry, list};

use crate::{
    cluster::blocks::{HostBlock, Layer, ListEdit, check_reason},
    compile::lists::{self, Edits, Outlook, Prefix, reason_text},
    control::protocol::Reply,
    daemon::{
        lists::{ListBook, ListChanger, ListEditor, because, vital::refuse_lists, was_blocked_for},
        state::entries::{entry_of, ran_out},
    },
    failure::{ExitCode, Failure},
    lockout::PacketRules,
};

/// The largest number of blocks that the log names when they run out together; more are only counted.
const LOGGED: usize = 50;

/// Whether a character is invisible and changes how others are shown: marks of direction, and spaces without width. Characters that join letters or pictures are fine.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The hosts on which a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum BlockScope {
    /// The block holds on this host alone.
    Host,
    /// The block holds on all hosts of the cluster.
    Cluster,
}

impl BlockScope {
    /// Returns the scope that an order asks for.
    pub(in crate::daemon) fn of(cluster: bool) -> Self {
        if cluster { Self::Cluster } else { Self::Host }
    }
}

impl ListEditor<'_> {
    /// Removes blocks that have run out. The kernel has stopped honouring them already; this frees their room.
    pub(in crate::daemon) fn sweep(&mut self, now_ns: u64) -> Result<(), Failure> {
        let edits = ran_out(&self.book.lists, now_ns);
        if edits.is_empty() {
            return Ok(());
        }
        self.edit(&edits)?;
        for prefix in edits.keys().take(LOGGED) {
            tracing::info!(event = "block_over", %prefix, "{prefix}: its block has run out");
        }
        if edits.len() > LOGGED {
            tracing::info!("and {} more blocks have run out", edits.len() - LOGGED);
        }
        Ok(())
    }

    pub(in crate::daemon) fn block(
        &mut self,
        prefix: &str,
        for_ns: Option<u64>,
        reason: Option<&str>,
        scope: BlockScope,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let ListChanger { by, now_ns, .. } = *changer;
        let prefix = parse_prefix(prefix)?;
        let reason = reason.unwrap_or_default();
        check_reason(reason).map_err(Failure::usage)?;
        if let Some(hidden) = reason.chars().find(|c| is_hidden(*c)) {
            return Err(Failure::usage(format!(
                "reason {reason:?} has {} in it, which is invisible and may reverse the text behind it; use plain text",
                hidden.escape_unicode()
            )));
        }
        let until_ns = for_ns.map(|ns| now_ns.saturating_add(ns));
        let block = HostBlock { until_ns, reason: reason.to_owned() };
        if scope == BlockScope::Cluster {
            return self.block_everywhere(prefix, block, changer);
        }
        let alone = ListEdit { prefix, block: Some((block.clone(), Layer::Local)) };
        self.refuse_cut_off(prefix, entry_of(self.own(&prefix), &alone), changer)?;
        let edit = self.block_of_host(prefix, Some(block.clone()), now_ns)?;
        let replaced = self.replaced(&prefix, &block, now_ns);
        self.edit(&Edits::from([(prefix, entry_of(self.own(&prefix), &edit))]))?;
        let until = block.lifetime(now_ns);
        let seconds = for_ns.map(|ns| ns / 1_000_000_000);
        tracing::info!(
            event = "block", %prefix, %by, reason, seconds,
            "{prefix} blocked {until} by {by}{}{replaced}", because(reason)
        );
        let allowed = self.book.lists.get(&prefix).is_some_and(|entry| entry.allowed == list::ALLOWED);
        let note = match (allowed, prefix.len()) {
            (true, _) => "; it is on the allow list too, which wins".to_owned(),
            (false, 0) => {
                "; that is everybody, your own connection included, unless it is on the allow list".to_owned()
            }
            (false, _) => {
                let own_until = self.book.lists.get(&prefix).map_or(0, |entry| entry.own_blocked_until_ns);
                let longer = self.around(&prefix, |entry| entry.own_blocked_until_ns >= own_until);
                longer.map_or_else(String::new, |wider| format!("; {wider} is blocked for at least as long"))
            }
        };
        Ok(Reply::Done(format!("blocked {prefix} {until}{replaced}{note}")))
    }

    pub(in crate::daemon) fn unblock(
        &mut self,
        prefix: &str,
        scope: BlockScope,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let now_ns = changer.now_ns;
        let prefix = parse_prefix(prefix)?;
        if scope == BlockScope::Cluster {
            return self.unblock_everywhere(prefix, changer);
        }
        let own = self.own(&prefix);
        if own.own_blocked_until_ns <= now_ns {
            return Err(not_listed(&prefix, "block"));
        }
        let reason = reason_text(&own).unwrap_or_default();
        let edit = self.block_of_host(prefix, None, now_ns)?;
        self.edit(&Edits::from([(prefix, entry_of(own, &edit))]))?;
        let by = &changer.by;
        tracing::info!(
            event = "unblock", %prefix, %by, reason,
            "{prefix} taken off the block list by {by}{}", was_blocked_for(&reason)
        );
        let still =
            lists::around(&self.book.lists, &prefix).find(|(_, entry)| entry.own_blocked_until_ns > now_ns);
        Ok(Reply::Done(match still {
            Some((wider, _)) => format!("removed {prefix} from the block list; {wider} still blocks it"),
            None => format!("removed {prefix} from the block list"),
        }))
    }

    pub(in crate::daemon) fn allow(
        &mut self,
        prefix: &str,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let own = ListEntry { own_allowed: list::ALLOWED, ..self.own(&prefix) };
        self.edit(&Edits::from([(prefix, own)]))?;
        let by = &changer.by;
        tracing::info!(event = "allow", %prefix, %by, "{prefix} put on the allow list by {by}");
        let note = self.around(&prefix, |entry| entry.own_allowed == list::ALLOWED);
        let note = note.map_or_else(String::new, |wider| format!("; {wider} is on the allow list already"));
        Ok(Reply::Done(format!("{prefix} is neither blocked nor limited from now on{note}")))
    }

    pub(in crate::daemon) fn disallow(
        &mut self,
        prefix: &str,
        changer: &ListChanger<'_>,
    ) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let own = self.own(&prefix);
        if own.own_allowed != list::ALLOWED {
            return Err(not_listed(&prefix, "allow"));
        }
        let own = ListEntry { own_allowed: 0, ..own };
        self.refuse_cut_off(prefix, own, changer)?;
        self.edit(&Edits::from([(prefix, own)]))?;
        let by = &changer.by;
        tracing::info!(event = "disallow", %prefix, %by, "{prefix} taken off the allow list by {by}");
        Ok(Reply::Done(format!("removed {prefix} from the allow list")))
    }

    /// Returns a listed prefix around another one whose entry fulfils a condition.
    fn around(&self, prefix: &Prefix, has: impl Fn(&ListEntry) -> bool) -> Option<&Prefix> {
        let mut around = lists::around(&self.book.lists, prefix).filter(|(other, _)| *other != prefix);
        around.find(|(_, entry)| has(entry)).map(|(other, _)| other)
    }

    /// Refuses a new entry of a prefix if it would cut off an address that must not be cut off.
    fn refuse_cut_off(
        &mut self,
        prefix: Prefix,
        own: ListEntry,
        changer: &ListChanger<'_>,
    ) -> Result<(), Failure> {
        let ListBook { lists, lookout, .. } = &mut *self.book;
        let changes = lists::edited(lists, &Edits::from([(prefix, own)]));
        let (now, next) = (Outlook::new(lists, &[]), Outlook::new(lists, &changes));
        let policy = self.policy;
        let (before, after) = (PacketRules { policy, lists: &now }, PacketRules { policy, lists: &next });
        refuse_lists(&prefix, before, after, lookout, changer)
    }
}

fn parse_prefix(text: &str) -> Result<Prefix, Failure> {
    text.parse().map_err(Failure::usage)
}

fn not_listed(prefix: &Prefix, which: &str) -> Failure {
    Failure::new(ExitCode::Found, format!("{prefix} is not on the {which} list; nothing was changed"))
}
