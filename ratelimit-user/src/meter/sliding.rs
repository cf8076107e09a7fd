//! Sliding window, sub-windows: one counter for each sixtieth of the window, and one more, because the oldest counts in full although part of it
//! has expired.
//!
//! At most the limit in any interval as long as the window. A key that asks all the time gets the limit in every 61/60 windows.
//!
//! The packet path has this algorithm in words that many CPUs change at once (`ratelimit_common::limit::window::sliding`). Here a lock is held, so
//! a counter takes half a word and needs no closing: 61 of them fit in a quarter of the space.

use std::ops::Range;

use super::{Counting, counted, halves, joined};

/// Number of counters: sixty for the length of a window, and one for the sub-window (part) in which the window begins.
const PARTS: u64 = 61;
/// Number of words: one with the latest part, and one for every two counters.
pub(super) const WORDS: usize = 1 + (PARTS as usize).div_ceil(2);

/// A sliding window for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    limit: u64,
    part_us: u64,
}

impl Sliding {
    /// `limit` units in any `period_us`.
    pub fn new(limit: u64, period_us: u64) -> Self {
        Self { limit, part_us: period_us.max(1).div_ceil(PARTS - 1) }
    }

    /// The length of a window in microseconds, rounded up to whole parts.
    pub fn period_us(&self) -> u64 {
        self.part_us * (PARTS - 1)
    }

    /// The length of a part, which one counter counts, in microseconds.
    pub fn part_us(&self) -> u64 {
        self.part_us
    }

    /// Returns the part of `now_us`, or a later one that a clock further ahead has charged.
    fn part(&self, words: &[u64], now_us: u64) -> u64 {
        (now_us / self.part_us).max(words[0])
    }

    /// Returns the parts, oldest first, that have been written and that count while `part` is the current one.
    fn counting(words: &[u64], part: u64) -> Range<u64> {
        let latest = words[0];
        (part + 1).saturating_sub(PARTS)..(latest + 1).min(part + 1)
    }

    fn used(words: &[u64], part: u64) -> u64 {
        // All counters count, so it does not matter which counter has which part.
        if part == words[0] {
            let halves = words[1..WORDS].iter().map(|word| (word >> 32) + (word & u64::from(u32::MAX)));
            return halves.sum();
        }
        Self::counting(words, part).map(|part| u64::from(count(words, part))).sum()
    }
}

impl Counting for Sliding {
    fn words(&self) -> usize {
        WORDS
    }

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn left(&self, words: &[u64], now_us: u64) -> u64 {
        self.limit.saturating_sub(Self::used(words, self.part(words, now_us)))
    }

    fn charge(&self, words: &mut [u64], now_us: u64, units: u64) {
        let part = self.part(words, now_us);
        // Clears the counters that the new parts take over: what they counted has expired.
        for fresh in (words[0] + 1).max((part + 1).saturating_sub(PARTS))..=part {
            set(words, fresh, 0);
        }
        words[0] = part;
        let sum = units.saturating_add(count(words, part).into());
        set(words, part, counted(sum));
    }

    fn refund(&self, words: &mut [u64], now_us: u64, age_us: u64, units: u64) -> bool {
        // Removes the newest units that the caller can mean: not the units that were charged later than `age_us` ago.
        let mut parts = Self::counting(words, self.part(words, now_us));
        if age_us > 0 {
            parts.end = parts.end.min(now_us.saturating_sub(age_us) / self.part_us + 1);
        }
        let charged: u64 = parts.clone().map(|part| u64::from(count(words, part))).sum();
        if units > charged {
            return false;
        }
        let mut rest = counted(units);
        for part in parts.rev() {
            let back = rest.min(count(words, part));
            set(words, part, count(words, part) - back);
            rest -= back;
        }
        true
    }

    fn wait(&self, words: &[u64], now_us: u64, units: u64) -> u64 {
        let part = self.part(words, now_us);
        let mut used = Self::used(words, part);
        if used.saturating_add(units) <= self.limit {
            return 0;
        }
        // Walks the counters in the order of their parts without a division for each, because most decisions come here.
        let parts = Self::counting(words, part);
        let mut slot = (parts.start % PARTS) as usize;
        for part in parts {
            used -= u64::from(at_slot(words, slot));
            if used.saturating_add(units) <= self.limit {
                return ((part + PARTS) * self.part_us).saturating_sub(now_us);
            }
            slot = if slot + 1 == PARTS as usize { 0 } else { slot + 1 };
        }
        super::NEVER_US
    }

    fn reset(&self, words: &[u64], now_us: u64) -> u64 {
        let part = self.part(words, now_us);
        let last = Self::counting(words, part).rev().find(|part| count(words, *part) > 0);
        last.map_or(0, |part| ((part + PARTS) * self.part_us).saturating_sub(now_us))
    }

    fn reset_from(&self, _used: u64, _now_us: u64) -> u64 {
        self.period_us()
    }

    fn layout(&self) -> String {
        format!("s{}", self.part_us())
    }

    fn script(&self, _now_us: u64) -> [u64; 4] {
        [3, self.limit, self.part_us(), 0]
    }

    fn scaled(&self, _numerator: u64, _denominator: u64, capacity: u64) -> Self {
        Self::new(capacity, self.period_us())
    }
}

/// Returns the index of the word that counts a part, and whether its upper half does.
const fn place(part: u64) -> (usize, bool) {
    let slot = (part % PARTS) as usize;
    (1 + slot / 2, slot % 2 == 1)
}

fn count(words: &[u64], part: u64) -> u32 {
    at_slot(words, (part % PARTS) as usize)
}

fn at_slot(words: &[u64], slot: usize) -> u32 {
    let (upper, lower) = halves(words[1 + slot / 2]);
    if slot % 2 == 1 { upper } else { lower }
}

fn set(words: &mut [u64], part: u64, count: u32) {
    let (word, high) = place(part);
    let (upper, lower) = halves(words[word]);
    words[word] = if high { joined(count, lower) } else { joined(upper, count) };
}
