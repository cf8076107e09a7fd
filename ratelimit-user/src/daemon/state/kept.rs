//! The state of lists that the next daemon needs, also after a reboot: notes in a journal, and the state that all of them give. Pure.
//!
//! Within one boot the kernel's lists count, and the notes only add what the lists cannot hold: blocks behind longer ones, and edits that
//! wait for the store. After a reboot the kernel has no lists, and the notes are all there is.

use std::collections::{BTreeMap, BTreeSet};

use ratelimit_common::abi::{ListEntry, list};
use serde::{Deserialize, Serialize};

use super::entries::{entry_of, host_block_of, is_of_cluster, of_cluster};
use crate::{
    cluster::{
        blocks::{BlockRecord, HostBlock, Layer, ListEdit},
        gossip::{Numbers, Saved, WaitingEdit},
    },
    compile::lists::{Edits, Lists, Prefix},
};

/// Both clocks at one moment, and the boot that the first belongs to.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct BootClock {
    pub(in crate::daemon) boot: String,
    pub(in crate::daemon) now_ns: u64,
    pub(in crate::daemon) unix_ms: u64,
}

/// The end of a block by both clocks. The kernel's clock is exact, and begins anew with every boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct End {
    ns: u64,
    unix_ms: u64,
    /// The milliseconds that were left when this was written. After a boot with a clock that is behind, the block lasts for this time at most. Builds before
    /// 18 November 2026 did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
}

/// A block in the form of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptBlock {
    /// The end of the block; `None` if it holds until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<End>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    /// The host that made the block, if it is a block for all hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

/// The journal's state of one prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::daemon) struct Saying {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allowed: bool,
    /// The block of this host alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<KeptBlock>,
    /// The block for all hosts, if it is the one on the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    everywhere: Option<KeptBlock>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    forced: bool,
}

/// One line of the journal. Of several lines about one thing the last one counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::daemon) enum Note {
    /// Times of the kernel's clock in later lines are of this boot. A rewrite has this number of lines, this one included.
    Begin { boot: String, lines: usize },
    /// The state of a prefix; empty if the prefix is not listed any more.
    Prefix(String, Saying),
    /// An edit that the store has not answered, and the end of its block.
    Waiting(WaitingEdit, Option<End>),
    /// The number up to which the store has answered edits.
    Answered(u64),
    /// The numbers of this host's gossip.
    Numbers(Numbers),
}

/// The state that all notes give, in times of the kernel's clock of this boot.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct KeptState {
    clock: BootClock,
    is_this_boot: bool,
    said: BTreeMap<Prefix, Saying>,
    waiting: BTreeMap<u64, WaitingEdit>,
    numbers: Numbers,
    /// The effect on blocks that end of a boot between the writing and now.
    reboot: Reboot,
    /// Blocks of the cluster that an older build did not mark on the list; `hidden` are blocks of this host behind them.
    unmarked: Vec<Prefix>,
    hidden: Vec<(String, Option<u64>, String)>,
    forced: Vec<String>,
}

/// The effect of a boot on blocks that end, by the wall clock: nothing else tells how long a host was down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct Reboot {
    /// Prefixes whose block ended while the host was down.
    pub(in crate::daemon) ended: BTreeSet<Prefix>,
    /// The latest time at which a block was written, in milliseconds since 1970, if the clock is behind it.
    pub(super) written_ms: Option<u64>,
}

impl BootClock {
    /// Returns the end of a block by both clocks.
    pub(in crate::daemon) fn end(&self, until_ns: u64) -> End {
        let left_ms = until_ns.saturating_sub(self.now_ns) / 1_000_000;
        End { ns: until_ns, unix_ms: self.unix_ms.saturating_add(left_ms), left_ms: Some(left_ms) }
    }

    /// Returns an end by the kernel's clock of this boot.
    fn until_ns(&self, end: End, is_this_boot: bool) -> u64 {
        if is_this_boot {
            return end.ns;
        }
        // If the wall clock is behind the time of writing, as at a boot before the time is known, the block still does not last longer.
        let left_ms = end.unix_ms.saturating_sub(self.unix_ms).min(end.left_ms.unwrap_or(u64::MAX));
        self.now_ns.saturating_add(left_ms.saturating_mul(1_000_000))
    }
}

impl KeptState {
    /// Makes the state of a host that has kept nothing.
    pub(in crate::daemon) fn nothing(clock: BootClock) -> Self {
        Self {
            clock,
            is_this_boot: false,
            said: BTreeMap::new(),
            waiting: BTreeMap::new(),
            numbers: Numbers::default(),
            reboot: Reboot::default(),
            unmarked: Vec::new(),
            hidden: Vec::new(),
            forced: Vec::new(),
        }
    }

    /// Adds the state that an older build wrote in this boot.
    pub(super) fn of_older_build(
        self,
        hidden: Vec<(String, Option<u64>, String)>,
        forced: Vec<String>,
        shown: &[String],
        numbers: Numbers,
    ) -> Self {
        let unmarked = shown.iter().filter_map(|prefix| prefix.parse().ok()).collect();
        Self { hidden, forced, unmarked, numbers, ..self }
    }

    /// Takes in the next note.
    pub(super) fn learn(&mut self, note: Note) {
        match note {
            Note::Begin { boot, .. } => self.is_this_boot = boot == self.clock.boot,
            Note::Prefix(prefix, saying) => {
                let Ok(prefix) = prefix.parse() else { return };
                // The last note about a prefix counts.
                self.reboot.ended.remove(&prefix);
                let saying = Saying {
                    block: saying.block.and_then(|block| self.present(prefix, block)),
                    everywhere: saying.everywhere.and_then(|block| self.present(prefix, block)),
                    ..saying
                };
                match saying == Saying::default() {
                    true => drop(self.said.remove(&prefix)),
                    false => drop(self.said.insert(prefix, saying)),
                }
            }
            Note::Waiting(mut waiting, end) => {
                // An edit whose block has run out is kept, because it still replaces the record at the store.
                if let (Some((until_ns, ..)), Some(end)) = (&mut waiting.block, end) {
                    *until_ns = Some(self.clock.until_ns(end, self.is_this_boot).max(1));
                }
                self.numbers.edit = self.numbers.edit.max(waiting.sequence);
                self.waiting.insert(waiting.sequence, waiting);
            }
            Note::Answered(sequence) => self.waiting = self.waiting.split_off(&sequence.saturating_add(1)),
            Note::Numbers(numbers) => {
                let edit = self.numbers.edit.max(numbers.edit);
                self.numbers = Numbers { edit, ..numbers };
            }
        }
    }

    /// Returns the effect of a boot on blocks that end.
    pub(in crate::daemon) fn reboot(&self) -> &Reboot {
        &self.reboot
    }

    /// Returns a block with its end by the present clock; `None` if the block is over.
    fn present(&mut self, prefix: Prefix, block: KeptBlock) -> Option<KeptBlock> {
        let Some(end) = block.until else { return Some(block) };
        let until_ns = self.clock.until_ns(end, self.is_this_boot);
        let is_over = until_ns <= self.clock.now_ns;
        if !self.is_this_boot {
            let written_ms = end.left_ms.map(|left_ms| end.unix_ms.saturating_sub(left_ms));
            if is_over {
                self.reboot.ended.insert(prefix);
            }
            self.reboot.written_ms =
                written_ms.filter(|written| *written > self.clock.unix_ms).max(self.reboot.written_ms);
        }
        (!is_over).then(|| KeptBlock { until: Some(self.clock.end(until_ns)), ..block })
    }

    /// Drops the state that the lists and gossip have taken over by now.
    pub(super) fn forget_lists(&mut self) {
        (self.said, self.unmarked, self.hidden, self.forced) = Default::default();
    }

    /// Returns the edits that restore entries which the lists lack.
    pub(in crate::daemon) fn missing(&self, lists: &Lists) -> Edits {
        let mut edits = Edits::new();
        for (prefix, saying) in &self.said {
            let before = lists.get(prefix).copied().unwrap_or(ListEntry::EMPTY);
            let mut entry = before;
            if before.own_blocked_until_ns == 0 {
                entry = entry_of(before, &ListEdit { prefix: *prefix, block: saying.listed() });
            }
            if saying.allowed {
                entry.own_allowed = list::ALLOWED;
            }
            if entry != before {
                edits.insert(*prefix, entry);
            }
        }
        edits
    }

    /// Returns the edits that mark the cluster's blocks on lists of an older build.
    pub(in crate::daemon) fn marks(&self, lists: &Lists) -> Edits {
        let mark = |prefix: &Prefix| {
            let entry = *lists.get(prefix)?;
            (entry.own_blocked_until_ns > 0).then(|| (*prefix, of_cluster(entry)))
        };
        self.unmarked.iter().filter_map(mark).collect()
    }

    /// Returns the blocks on the lists that are the cluster's, with the hosts that made them. A block without a noted host counts as made on
    /// `host`, which is this one.
    pub(in crate::daemon) fn inherited(
        &self,
        lists: &Lists,
        host: &str,
        now_ns: u64,
    ) -> Vec<(Prefix, BlockRecord)> {
        let of_cluster = lists.iter().filter(|(_, entry)| is_of_cluster(entry));
        let block = |(prefix, entry): (&Prefix, &ListEntry)| {
            let host_block = host_block_of(entry, now_ns)?;
            let said = self.said.get(prefix).and_then(|saying| saying.everywhere.as_ref()?.origin.clone());
            Some((*prefix, BlockRecord { host_block, origin: said.unwrap_or_else(|| host.to_owned()) }))
        };
        of_cluster.filter_map(block).collect()
    }

    /// Returns the state from which gossip goes on.
    pub(in crate::daemon) fn saved(&self) -> Saved {
        let hidden = |(prefix, saying): (&Prefix, &Saying)| {
            let block = saying.block.as_ref().filter(|_| saying.everywhere.is_some())?;
            Some((prefix.to_string(), block.until.map(|end| end.ns), block.reason.clone()))
        };
        let forced = self.said.iter().filter(|(_, saying)| saying.forced);
        Saved {
            hidden: self.said.iter().filter_map(hidden).chain(self.hidden.iter().cloned()).collect(),
            forced: forced.map(|(prefix, _)| prefix.to_string()).chain(self.forced.iter().cloned()).collect(),
            waiting: self.waiting.values().cloned().collect(),
            numbers: self.numbers.clone(),
        }
    }
}

impl Saying {
    /// Makes the state of a prefix from its entry on the lists, and from what an entry cannot hold: `hidden` is the block of this host behind one for all hosts.
    pub(in crate::daemon) fn new(
        entry: &ListEntry,
        hidden: Option<&HostBlock>,
        origin: Option<&str>,
        forced: bool,
        clock: &BootClock,
    ) -> Self {
        let kept = |block: &HostBlock, origin: Option<&str>| KeptBlock {
            until: block.until_ns.map(|until| clock.end(until)),
            reason: block.reason.clone(),
            origin: origin.map(str::to_owned),
        };
        let listed = host_block_of(entry, clock.now_ns);
        let allowed = entry.own_allowed == list::ALLOWED;
        match is_of_cluster(entry) {
            true => Self {
                allowed,
                block: hidden.map(|block| kept(block, None)),
                everywhere: listed.map(|block| kept(&block, origin)),
                forced,
            },
            false => Self {
                allowed,
                block: listed.map(|block| kept(&block, None)),
                everywhere: None,
                forced: false,
            },
        }
    }

    fn listed(&self) -> Option<(HostBlock, Layer)> {
        let of = |block: &KeptBlock| HostBlock {
            until_ns: block.until.map(|end| end.ns),
            reason: block.reason.clone(),
        };
        let everywhere = self.everywhere.as_ref().map(|block| (of(block), Layer::Cluster));
        everywhere.or_else(|| self.block.as_ref().map(|block| (of(block), Layer::Local)))
    }
}

#[cfg(test)]
pub(in crate::daemon) mod tests {
    use super::*;

    pub(in crate::daemon) fn clock(boot: &str, now_s: u64) -> BootClock {
        BootClock {
            boot: boot.to_owned(),
            now_ns: now_s * 1_000_000_000,
            unix_ms: 1_000_000_000 + now_s * 1_000,
        }
    }

    pub(in crate::daemon) fn blocked(prefix: &str) -> Note {
        let block = Some(KeptBlock { until: None, reason: String::new(), origin: None });
        Note::Prefix(prefix.to_owned(), Saying { block, ..Saying::default() })
    }

    pub(in crate::daemon) fn prefixes(kept: &KeptState) -> Vec<String> {
        kept.said.keys().map(ToString::to_string).collect()
    }

    const NET: &str = "192.0.2.0/24";

    /// Returns the block that a daemon with an empty list restores from these notes.
    fn found(notes: &[Note], clock: &BootClock) -> Option<HostBlock> {
        let mut kept = KeptState::nothing(clock.clone());
        notes.iter().cloned().for_each(|note| kept.learn(note));
        host_block_of(kept.missing(&Lists::new()).values().next()?, clock.now_ns)
    }

    #[test]
    fn a_block_ends_when_it_would_have_ended_without_a_reboot() {
        let first = clock("one", 100);
        let block = HostBlock { until_ns: Some(160_000_000_000), reason: "scan".into() };
        let entry = entry_of(
            ListEntry::EMPTY,
            &ListEdit { prefix: NET.parse().unwrap(), block: Some((block.clone(), Layer::Local)) },
        );
        let notes = [
            Note::Begin { boot: "one".to_owned(), lines: 1 },
            Note::Prefix(NET.to_owned(), Saying::new(&entry, None, None, false, &first)),
        ];
        assert_eq!(found(&notes, &clock("one", 130)), Some(block));
        // It is twenty seconds later by the wall clock, and five seconds after the next boot.
        let next = BootClock { now_ns: 5_000_000_000, ..clock("two", 120) };
        assert_eq!(found(&notes, &next).unwrap().until_ns, Some(45_000_000_000));
        assert_eq!(
            found(&notes, &BootClock { now_ns: 5_000_000_000, ..clock("two", 161) }),
            None,
            "it is over"
        );
        assert_eq!(found(&notes, &clock("one", 161)), None);
    }

    /// A host without a clock of its own starts in 1970, and learns the time later.
    #[test]
    fn a_boot_with_a_clock_that_is_behind_makes_no_block_last_longer() {
        let first = clock("one", 100);
        let entry = entry_of(
            ListEntry::EMPTY,
            &ListEdit {
                prefix: NET.parse().unwrap(),
                block: Some((
                    HostBlock { until_ns: Some(160_000_000_000), reason: String::new() },
                    Layer::Local,
                )),
            },
        );
        let notes = [
            Note::Begin { boot: "one".to_owned(), lines: 1 },
            Note::Prefix(NET.to_owned(), Saying::new(&entry, None, None, false, &first)),
        ];
        let reboot = |clock: BootClock| {
            let mut kept = KeptState::nothing(clock);
            notes.iter().cloned().for_each(|note| kept.learn(note));
            kept.reboot().clone()
        };
        for unix_ms in [0, 5_000, first.unix_ms - 1] {
            let next = BootClock { boot: "two".to_owned(), now_ns: 5_000_000_000, unix_ms };
            assert_eq!(found(&notes, &next).unwrap().until_ns, Some(65_000_000_000), "{unix_ms}");
            assert_eq!(reboot(next), Reboot { ended: BTreeSet::new(), written_ms: Some(first.unix_ms) });
        }
        let later = BootClock { now_ns: 5_000_000_000, ..clock("two", 120) };
        assert_eq!(reboot(later), Reboot::default());
        let over = BootClock { now_ns: 5_000_000_000, ..clock("two", 161) };
        assert_eq!(reboot(over.clone()), Reboot { ended: [NET.parse().unwrap()].into(), written_ms: None });
        // A block that was removed before the boot did not end while the host was down.
        let mut kept = KeptState::nothing(over);
        let taken_back = Note::Prefix(NET.to_owned(), Saying::default());
        notes.iter().cloned().chain([taken_back]).for_each(|note| kept.learn(note));
        assert_eq!(*kept.reboot(), Reboot::default());
        assert_eq!(
            reboot(clock("one", 161)),
            Reboot::default(),
            "in the same boot the kernel's clock is exact"
        );
    }

    #[test]
    fn an_end_that_an_older_build_wrote_is_read() {
        let end: End = serde_json::from_str(r#"{"ns":160000000000,"unix_ms":1000160000}"#).unwrap();
        assert_eq!(clock("two", 120).until_ns(end, false), 160_000_000_000);
    }

    #[test]
    fn whose_block_it_is_and_what_is_behind_it_come_back_with_it() {
        let clock = clock("one", 1);
        let prefix: Prefix = NET.parse().unwrap();
        let of_all = HostBlock { until_ns: None, reason: "flood".into() };
        let own = HostBlock { until_ns: Some(90_000_000_000), reason: "mine".into() };
        let entry =
            entry_of(ListEntry::EMPTY, &ListEdit { prefix, block: Some((of_all.clone(), Layer::Cluster)) });
        let mut kept = KeptState::nothing(clock.clone());
        kept.learn(Note::Begin { boot: "one".to_owned(), lines: 1 });
        kept.learn(Note::Prefix(NET.to_owned(), Saying::new(&entry, Some(&own), Some("web7"), true, &clock)));
        let lists = kept.missing(&Lists::new());
        assert_eq!(lists, Lists::from([(prefix, entry)]));
        let block = BlockRecord { host_block: of_all, origin: "web7".to_owned() };
        assert_eq!(kept.inherited(&lists, "here", clock.now_ns), [(prefix, block)]);
        let saved = kept.saved();
        assert_eq!(saved.hidden, [(NET.to_owned(), own.until_ns, own.reason)]);
        assert_eq!(saved.forced, [NET]);
        assert_eq!(kept.missing(&lists), Edits::new(), "nothing is put in the place of what is there");
    }

    #[test]
    fn edits_that_wait_are_gone_when_they_are_answered_and_their_numbers_are_not_used_again() {
        let mut kept = KeptState::nothing(clock("one", 1));
        let waiting =
            |sequence| WaitingEdit { sequence, prefix: NET.to_owned(), block: None, restores: false };
        for sequence in 3..=6 {
            kept.learn(Note::Waiting(waiting(sequence), None));
        }
        kept.learn(Note::Answered(4));
        assert_eq!(kept.saved().waiting, [waiting(5), waiting(6)]);
        kept.learn(Note::Answered(6));
        kept.learn(Note::Numbers(Numbers { incarnation: 9, edit: 2, ..Numbers::default() }));
        let saved = kept.saved();
        assert_eq!((saved.waiting.len(), saved.numbers.edit, saved.numbers.incarnation), (0, 6, 9));
    }

    #[test]
    fn what_an_older_build_knew_of_the_cluster_s_blocks_is_marked_on_the_list() {
        let prefix: Prefix = NET.parse().unwrap();
        let block = HostBlock { until_ns: None, reason: "flood".into() };
        let unmarked = entry_of(ListEntry::EMPTY, &ListEdit { prefix, block: Some((block, Layer::Local)) });
        let lists = Lists::from([(prefix, unmarked)]);
        let shown = [NET.to_owned(), "198.51.100.0/24".to_owned()];
        let kept =
            KeptState::nothing(clock("one", 1)).of_older_build(vec![], vec![], &shown, Numbers::default());
        assert_eq!(kept.marks(&lists), Edits::from([(prefix, of_cluster(unmarked))]));
        assert_eq!(kept.missing(&Lists::new()), Edits::new(), "lists that are gone are not made up");
    }
}
