//! Sliding window, log: the time of every unit. Exact, and as large as the count: a ring with one word per unit.
//!
//! A ring begins small and grows with what is charged, up to the room of its limit, so that names that are asked about once take little memory. A
//! ring that has become much too large shrinks again. Words are a slice, so the owner of a ring calls [`Log::refit`] before it charges.
//!
//! A ring may have room for more units than the limit: for units that a larger limit has counted earlier and that still lie in the window. Without
//! this room, a limit that goes from 100 to 10 and back would forget 90 counted units.

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

    /// Returns this limit with a ring for `units` units, or for as many units as the limit admits if those are more.
    pub fn with_room(self, units: u64) -> Self {
        Self { room: units.clamp(self.limit, u64::from(u32::MAX)), ..self }
    }

    /// The length of a window, in microseconds.
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// Converts the ring of a key that a log of another size has counted. The newest units are kept, as far as there is room.
    pub(super) fn carried(&self, from: &Self, words: &[u64]) -> Vec<u64> {
        let (head, length) = halves(words[0]);
        let kept = u64::from(length).min(self.room);
        from.copied(words, head, u64::from(length) - kept, kept, self.size_for(kept))
    }

    /// Returns how many words a ring has that is made for `units` units.
    pub(super) fn words_for(&self, units: u64) -> usize {
        1 + self.size_for(units.min(self.room)) as usize
    }

    /// Returns a new ring for a key that is about to be charged `units`, if its ring is too small or more than four times too large.
    /// `is_new` means that the key has no ring yet.
    pub fn refit(&self, words: &[u64], is_new: bool, now_us: u64, units: u64) -> Option<Vec<u64>> {
        let expired = self.expired(words, now_us);
        let (head, length) = halves(words[0]);
        let counting = u64::from(length) - expired;
        let needed = counting.saturating_add(units).min(self.room);
        let (has, size) = (self.size(words), self.size_for(needed));
        let suits = has >= needed && has / 4 <= size;
        (is_new || !suits).then(|| self.copied(words, head, expired, counting, size))
    }

    /// Returns when the newest unit of a ring was charged, in microseconds since 1970; 0 if the ring has none.
    pub fn newest_us(words: &[u64]) -> u64 {
        let ((head, length), size) = (halves(words[0]), words.len() as u64 - 1);
        match length {
            0 => 0,
            _ => words[1 + ((u64::from(head) + u64::from(length) - 1) % size) as usize],
        }
    }

    /// Returns the size, in units, of a ring for `units` units. With its first word, a ring is a power of two of words long, as allocators like it.
    fn size_for(&self, units: u64) -> u64 {
        ((units + 1).next_power_of_two() - 1).max(SMALLEST).min(self.room)
    }

    /// Copies `units` units of a ring, beginning with unit number `from`, into a ring with room for `size` units.
    fn copied(&self, words: &[u64], head: u32, from: u64, units: u64, size: u64) -> Vec<u64> {
        let mut copied = vec![0; 1 + size as usize];
        copied[0] = joined(0, units as u32);
        for nth in 0..units {
            copied[1 + nth as usize] = words[self.slot(words, head, from + nth)];
        }
        copied
    }

    /// Returns how many units this ring can hold. Words behind the largest ring belong to another limit.
    fn size(&self, words: &[u64]) -> u64 {
        (words.len() as u64 - 1).min(self.room)
    }

    fn slot(&self, words: &[u64], head: u32, nth: u64) -> usize {
        1 + ((u64::from(head) + nth) % self.size(words)) as usize
    }

    /// Returns how many of the oldest units in the ring have expired.
    fn expired(&self, words: &[u64], now_us: u64) -> u64 {
        let (head, length) = halves(words[0]);
        // The times in a ring ascend, so a binary search finds the first unit that counts.
        let (mut low, mut high) = (0, u64::from(length));
        while low < high {
            let middle = (low + high) / 2;
            // A unit that is exactly a window old still counts, so that an interval with both its ends holds no more than the limit.
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
    /// Returns the number of words of the largest ring: one with the position of its first unit and its length, and one time for each unit.
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
        // Where there is no room for all units, the oldest make way, and the ring is full.
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
        // Removes the newest units that the caller can mean: not the units that were charged later than `age_us` ago.
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
