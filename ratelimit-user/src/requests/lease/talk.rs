//! What a host and the store have said to each other about one key: numbered entries, of which at most one has no answer, and how much to ask for next.

use super::{Denied, MOST, PORTION};
use crate::store::{
    ask::Told,
    exchange::{Entry, margin_us},
};

/// How long a lease of the smallest portion lasts. Most users call seldom, and each of them costs the store one question in that time. A lease of more
/// units is shorter in proportion, because units that a host does not need are missing elsewhere.
const LIFE_US: u64 = 240_000_000;

/// The conversation about one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Talk {
    /// Units that the host wants to hold after its next entry; 0 before its first.
    pub(super) portion: u64,
    /// How long a lease of the last entry lasts.
    pub(super) life_us: u64,
    /// The number of the last entry.
    pub(super) sequence: u64,
    /// The last entry, until its answer is here. An entry is said again as it was, and the store counts it once.
    pub(super) unanswered: Option<Entry>,
    /// When the last entry was first said: the store may count its life from then on.
    pub(super) said_us: u64,
    /// When the last entry was last said.
    pub(super) spoke_us: u64,
    /// Units that the store has granted by the unanswered entry, known from its answer to a later question.
    pub(super) coming: u64,
    /// The number of the last entry that the store had heard when it said how many units are free.
    pub(super) free_since: u64,
    /// The last refusal.
    pub(super) denied: Denied,
}

impl Talk {
    /// Wants half as much from now on, if more than half of the portion is still held.
    pub(super) fn shrink(&mut self, held: u64) {
        if held > self.portion / 2 {
            self.portion /= 2;
        }
    }

    /// Wants twice as much from now on.
    pub(super) fn grow(&mut self) {
        self.portion *= 2;
    }

    /// Keeps the portion within what a host may hold of a key that may have `capacity` units at once.
    pub(super) fn fit(&mut self, capacity: u64) {
        let (least, most) = (capacity / PORTION, capacity / MOST);
        self.portion = self.portion.clamp(least, most.max(least));
    }

    /// Gives the next entry its number. The key may have `capacity` units at once.
    pub(super) fn say(&mut self, unnumbered: Entry, capacity: u64, now_us: u64) -> Entry {
        self.sequence += 1;
        let least = (capacity / PORTION).max(1);
        self.life_us = LIFE_US / self.portion.max(1).div_ceil(least);
        let entry = Entry { sequence: self.sequence, ..unnumbered };
        (self.unanswered, self.said_us, self.spoke_us) = (Some(entry), now_us, now_us);
        entry
    }

    /// Returns the entry that has no answer, to be sent once more.
    pub(super) fn say_again(&mut self, now_us: u64) -> Option<Entry> {
        let entry = self.unanswered?;
        self.spoke_us = now_us;
        Some(entry)
    }

    /// Whether an entry is the one that has no answer.
    pub(super) fn awaits(&self, entry: &Entry) -> bool {
        entry.sequence > 0 && self.unanswered == Some(*entry)
    }

    /// Spent units that the store may be hearing of at this moment.
    pub(super) fn used_unanswered(&self) -> u64 {
        self.unanswered.map_or(0, |entry| entry.used)
    }

    /// When a lease of the last entry ends here: a margin before the store writes it off.
    pub(super) fn expires_us(&self) -> u64 {
        self.said_us + self.life_us - margin_us(self.life_us)
    }

    /// The number of the last entry that has an answer.
    pub(super) fn answered(&self) -> u64 {
        self.sequence - u64::from(self.unanswered.is_some())
    }

    /// Units that the store has granted by the unanswered entry, as an answer to a later question shows: the store counts more for this host than the host
    /// itself holds and has used.
    pub(super) fn granted_unanswered(&self, told: &Told, held: u64, used: u64) -> u64 {
        let Some(entry) = self.unanswered else { return 0 };
        let reported = if told.heard >= entry.sequence { entry.used } else { 0 };
        let known = held + used.saturating_sub(reported);
        told.holds.saturating_sub(known)
    }

    /// Whether the store has forgotten the last entry and its number: it does so a margin after the entry's life.
    pub(super) fn is_forgotten(&self, now_us: u64) -> bool {
        self.spoke_us + 2 * (self.life_us + margin_us(self.life_us)) < now_us
    }
}
