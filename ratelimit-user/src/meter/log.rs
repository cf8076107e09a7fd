//! Sliding window, log: the time of every unit. Exact, and as large as what it has counted: a ring of one word per unit.
//!
//! A ring begins small and grows with what is charged, up to the room of its limit: who makes up names and asks once for each takes little. One that
//! has become much too large shrinks again. Words are a slice, so whoever keeps a ring asks for one that suits ([`Log::refit`]) before it charges.
//!
//! A ring may have room for more than the limit: for what a larger limit before this one counted and what still lies in the window. A limit that goes
//! from 100 to 10 and back would else have forgotten 90 of those it counted.

use super::{Counting, NEVER_US, halves, joined};

/// Units of the smallest ring, if its limit has as many.
const SMALLEST: u64 = 3;

/// A sliding log for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    limit: u64,
    /// Units that the largest ring holds, at least the limit.
    room: u64,
    period_us: u64,
}

impl Log {
    /// `limit` units in any `period_us`.
    pub fn new(limit: u64, period_us: u64) -> Self {
        let limit = limit.clamp(1, u64::from(u32::MAX));
        Self { limit, room: limit, period_us }
    }

    /// This limit with a ring for so many units, or for as many units as the limit admits if those are more.
    pub fn with_room(self, units: u64) -> Self {
        Self { room: units.clamp(self.limit, u64::from(u32::MAX)), ..self }
    }

    /// How long a window is.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// Words of a key that was counted by a log of another size: its newest, as far as there is room.
    pub(super) fn carried(&self, from: &Self, words: &[u64]) -> Vec<u64> {
        let (head, length) = halves(words[0]);
        let kept = u64::from(length).min(self.room);
        from.copied(words, head, u64::from(length) - kept, kept, self.size_for(kept))
    }

    /// A ring for a key that is to be charged so many units, if the one that it has does not suit: too small, or more than four times too large.
    /// `is_new` is a key that has none.
    pub fn refit(&self, words: &[u64], is_new: bool, now_us: u64, units: u64) -> Option<Vec<u64>> {
        let expired = self.expired(words, now_us);
        let (head, length) = halves(words[0]);
        let counting = u64::from(length) - expired;
        let needed = counting.saturating_add(units).min(self.room);
        let (has, size) = (self.size(words), self.size_for(needed));
        let suits = has >= needed && has / 4 <= size;
        (is_new || !suits).then(|| self.copied(words, head, expired, counting, size))
    }

    /// When the newest unit of a ring was charged; 0 if it has none.
    pub fn newest_us(words: &[u64]) -> u64 {
        let ((head, length), size) = (halves(words[0]), words.len() as u64 - 1);
        match length {
            0 => 0,
            _ => words[1 + ((u64::from(head) + u64::from(length) - 1) % size) as usize],
        }
    }

    /// Units of a ring that has room for so many: with its first word a power of two, which allocators have room for.
    fn size_for(&self, units: u64) -> u64 {
        ((units + 1).next_power_of_two() - 1).max(SMALLEST).min(self.room)
    }

    /// So many units of a ring, from this one on, in a ring of that size.
    fn copied(&self, words: &[u64], head: u32, from: u64, units: u64, size: u64) -> Vec<u64> {
        let mut copied = vec![0; 1 + size as usize];
        copied[0] = joined(0, units as u32);
        for nth in 0..units {
            copied[1 + nth as usize] = words[self.slot(words, head, from + nth)];
        }
        copied
    }

    /// Units that this ring holds. Words behind the largest one belong to somebody else.
    fn size(&self, words: &[u64]) -> u64 {
        (words.len() as u64 - 1).min(self.room)
    }

    fn slot(&self, words: &[u64], head: u32, nth: u64) -> usize {
        1 + ((u64::from(head) + nth) % self.size(words)) as usize
    }

    /// How many of the ring's oldest have expired.
    fn expired(&self, words: &[u64], now_us: u64) -> u64 {
        let (head, length) = halves(words[0]);
        // Ascending: time only goes on in the ring.
        let (mut low, mut high) = (0, u64::from(length));
        while low < high {
            let middle = (low + high) / 2;
            // One that is exactly a window old still counts, so that an interval with both its ends holds no more than the limit.
            if words[self.slot(words, head, middle)] + self.period_us < now_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl Counting for Log {
    /// Where the ring begins and how many are in it, and the times: of the largest ring.
    fn words(&self) -> usize {
        1 + self.room as usize
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        let (_, length) = halves(words[0]);
        self.limit.saturating_sub(u64::from(length) - self.expired(words, now_us))
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        let expired = self.expired(words, now_us);
        let (head, length) = halves(words[0]);
        let size = self.size(words);
        let head = ((u64::from(head) + expired) % size) as u32;
        let length = u64::from(length) - expired;
        let newest = length.checked_sub(1).map_or(0, |nth| words[self.slot(words, head, nth)]);
        // More than there is room for: the oldest make way, and the ring is as full as it can be.
        let units = units.min(size);
        let over = (length + units).saturating_sub(size);
        let head = ((u64::from(head) + over) % size) as u32;
        let length = length - over.min(length);
        for nth in length..length + units {
            let at = self.slot(words, head, nth);
            words[at] = now_us.max(newest);
        }
        words[0] = joined(head, (length + units) as u32);
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        let expired = self.expired(words, now_us);
        let (head, length) = halves(words[0]);
        // The newest that may have been meant: not those that came later than it was charged.
        let then_us = now_us.saturating_sub(age_us);
        let later = match age_us {
            0 => 0,
            _ => (0..length)
                .rev()
                .take_while(|nth| words[self.slot(words, head, (*nth).into())] > then_us)
                .count(),
        };
        let end = u64::from(length) - later as u64;
        if units > end.saturating_sub(expired) {
            return false;
        }
        for nth in end..u64::from(length) {
            let moved = words[self.slot(words, head, nth)];
            let to = self.slot(words, head, nth - units);
            words[to] = moved;
        }
        words[0] = joined(head, length - units as u32);
        true
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        let expired = self.expired(words, now_us);
        let (head, length) = halves(words[0]);
        let counting = u64::from(length) - expired;
        match (counting + units).checked_sub(self.limit) {
            None | Some(0) => 0,
            Some(must_go) if must_go <= counting => {
                let last = words[self.slot(words, head, expired + must_go - 1)];
                (last + self.period_us + 1).saturating_sub(now_us)
            }
            Some(_) => NEVER_US,
        }
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        let (head, length) = halves(words[0]);
        if u64::from(length) == self.expired(words, now_us) {
            return 0;
        }
        let newest = words[self.slot(words, head, u64::from(length) - 1)];
        (newest + self.period_us + 1).saturating_sub(now_us)
    }

    fn reset_from(&self, _used: u64, _now_us: u64) -> u64 {
        self.period_us
    }

    fn layout(&self) -> String {
        format!("l{}:{}", self.period_us, self.room)
    }

    fn kin(&self) -> String {
        format!("l{}", self.period_us)
    }

    fn keeps_every_unit(&self) -> bool {
        true
    }

    fn make_room(&mut self, units: u64) {
        *self = self.with_room(units);
    }

    fn script(&self, _now_us: u64) -> [u64; 4] {
        [5, self.limit, self.period_us, 0]
    }

    fn scaled(&self, _numerator: u64, _denominator: u64, capacity: u64) -> Self {
        Self::new(capacity, self.period_us)
    }
}
