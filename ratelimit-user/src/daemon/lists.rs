//! The block and allow lists of the running host.

use ratelimit_common::abi::{ListEntry, list};

use super::host::Host;
use crate::{
    compile::lists::{self, Lists, Prefix, reason_text},
    failure::{ExitCode, Failure},
    lockout,
    serve::protocol::{Block, Operator, Reply},
};

/// Addresses named in a refusal.
const SHOWN: usize = 5;

impl Host {
    /// Forgets blocks that have run out. The kernel stopped honouring them by itself; this frees their room.
    pub(super) fn sweep(&mut self, now_ns: u64) -> Result<(), Failure> {
        let ran_out = |entry: &ListEntry| (1..=now_ns).contains(&entry.own_blocked_until_ns);
        if !self.lists.values().any(ran_out) {
            return Ok(());
        }
        let mut wanted = self.lists.clone();
        for entry in wanted.values_mut().filter(|entry| ran_out(entry)) {
            clear_block(entry);
        }
        self.change_lists(wanted)
    }

    pub(super) fn block(
        &mut self,
        prefix: &str,
        for_ns: Option<u64>,
        reason: Option<&str>,
        operator: &Operator,
        now_ns: u64,
    ) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let reason = reason.unwrap_or_default();
        if reason.len() > list::REASON_LEN {
            return Err(Failure::usage(format!(
                "reason is {} bytes long; use at most {}",
                reason.len(),
                list::REASON_LEN
            )));
        }
        if reason.contains(char::is_control) {
            return Err(Failure::usage(format!(
                "reason {reason:?} has control characters in it; use plain text"
            )));
        }
        let mut wanted = self.lists.clone();
        let entry = wanted.entry(prefix).or_insert(ListEntry::EMPTY);
        clear_block(entry);
        entry.own_blocked_until_ns = for_ns.map_or(list::FOREVER_NS, |ns| now_ns.saturating_add(ns));
        entry.reason_len = reason.len() as u32;
        entry.reason[..reason.len()].copy_from_slice(reason.as_bytes());
        self.refuse_cut_off(&prefix, &wanted, now_ns, operator)?;
        self.change_lists(wanted)?;
        let until = for_ns
            .map_or_else(|| "until removed".to_owned(), |ns| format!("for {} s", ns.div_ceil(1_000_000_000)));
        let allowed = self.lists.get(&prefix).is_some_and(|entry| entry.allowed == list::ALLOWED);
        let note = match (allowed, prefix.len()) {
            (true, _) => "; it is on the allow list too, which wins".to_owned(),
            (false, 0) => {
                "; that is everybody, your own connection included, unless it is on the allow list".to_owned()
            }
            (false, _) => {
                let own_until = self.lists.get(&prefix).map_or(0, |entry| entry.own_blocked_until_ns);
                let longer = self.around(&prefix, |entry| entry.own_blocked_until_ns >= own_until);
                longer.map_or_else(String::new, |wider| format!("; {wider} is blocked for at least as long"))
            }
        };
        Ok(Reply::Done(format!("blocked {prefix} {until}{note}")))
    }

    pub(super) fn unblock(&mut self, prefix: &str, now_ns: u64) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        match wanted.get_mut(&prefix) {
            Some(entry) if entry.own_blocked_until_ns > now_ns => clear_block(entry),
            _ => return Err(not_listed(&prefix, "block")),
        }
        self.change_lists(wanted)?;
        let still = self
            .lists
            .iter()
            .find(|(other, entry)| other.covers(&prefix) && entry.own_blocked_until_ns > now_ns);
        Ok(Reply::Done(match still {
            Some((wider, _)) => format!("removed {prefix} from the block list; {wider} still blocks it"),
            None => format!("removed {prefix} from the block list"),
        }))
    }

    pub(super) fn allow(&mut self, prefix: &str) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        wanted.entry(prefix).or_insert(ListEntry::EMPTY).own_allowed = list::ALLOWED;
        self.change_lists(wanted)?;
        let note = self.around(&prefix, |entry| entry.own_allowed == list::ALLOWED);
        let note = note.map_or_else(String::new, |wider| format!("; {wider} is on the allow list already"));
        Ok(Reply::Done(format!("{prefix} is neither blocked nor limited from now on{note}")))
    }

    pub(super) fn disallow(
        &mut self,
        prefix: &str,
        operator: &Operator,
        now_ns: u64,
    ) -> Result<Reply, Failure> {
        let prefix = parse_prefix(prefix)?;
        let mut wanted = self.lists.clone();
        match wanted.get_mut(&prefix) {
            Some(entry) if entry.own_allowed == list::ALLOWED => entry.own_allowed = 0,
            _ => return Err(not_listed(&prefix, "allow")),
        }
        self.refuse_cut_off(&prefix, &wanted, now_ns, operator)?;
        self.change_lists(wanted)?;
        Ok(Reply::Done(format!("removed {prefix} from the allow list")))
    }

    /// A listed prefix around another that has something.
    fn around(&self, prefix: &Prefix, has: impl Fn(&ListEntry) -> bool) -> Option<&Prefix> {
        let wider =
            |(other, entry): &(&Prefix, &ListEntry)| *other != prefix && other.covers(prefix) && has(entry);
        self.lists.iter().find(wider).map(|(other, _)| other)
    }

    /// Writes the difference to the kernel, then remembers it.
    fn change_lists(&mut self, wanted: Lists) -> Result<(), Failure> {
        let wanted = lists::effective(wanted);
        self.maps.change_lists(&self.lists, &wanted)?;
        self.lists = wanted;
        Ok(())
    }

    /// Prefixes on the allow list.
    pub(super) fn allows(&self) -> impl Iterator<Item = &Prefix> {
        self.lists.iter().filter(|(_, entry)| entry.own_allowed == list::ALLOWED).map(|(prefix, _)| prefix)
    }

    /// Blocks that hold, with what is left of them.
    pub(super) fn blocks(&self, now_ns: u64) -> Vec<Block> {
        let live = self.lists.iter().filter(|(_, entry)| entry.own_blocked_until_ns > now_ns);
        live.map(|(prefix, entry)| Block {
            prefix: prefix.to_string(),
            seconds_left: (entry.own_blocked_until_ns != list::FOREVER_NS)
                .then(|| (entry.own_blocked_until_ns - now_ns).div_ceil(1_000_000_000)),
            reason: reason_text(entry),
        })
        .collect()
    }

    /// Refuses lists with which somebody inside `prefix` would be cut off who must not be.
    fn refuse_cut_off(
        &self,
        prefix: &Prefix,
        wanted: &Lists,
        now_ns: u64,
        operator: &Operator,
    ) -> Result<(), Failure> {
        if operator.force {
            return Ok(());
        }
        let vital = self.vital(operator)?;
        let cut = lockout::cut_off(prefix, wanted, now_ns, &vital);
        if cut.is_empty() {
            return Ok(());
        }
        let reasons: Vec<String> = cut.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = cut.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(Failure::usage(format!(
            "refused, {prefix} would be blocked: {}{more}; put what must stay on the allow list first, or use --force",
            reasons.join("; ")
        )))
    }
}

fn parse_prefix(text: &str) -> Result<Prefix, Failure> {
    text.parse().map_err(Failure::usage)
}

fn not_listed(prefix: &Prefix, which: &str) -> Failure {
    Failure::new(ExitCode::Found, format!("{prefix} is not on the {which} list; nothing was changed"))
}

fn clear_block(entry: &mut ListEntry) {
    entry.own_blocked_until_ns = 0;
    entry.reason_len = 0;
    entry.reason = [0; list::REASON_LEN];
}
