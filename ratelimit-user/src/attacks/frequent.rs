//! The most frequent values of a stream, in bounded memory: the space-saving algorithm. A new value takes the place and the count of the rarest one, so a count
//! is too large by at most the count that it took over.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// Half of a 95 % interval, in standard deviations.
const CONFIDENCE: f64 = 1.96;

/// The counts of one value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FrequentTally {
    /// How often the value was seen since it has a place.
    pub(super) samples: u64,
    /// Packets that these samples stand for, plus the packets of the rarer value whose place this one took.
    pub(super) packets: u64,
    /// Of the packets, those taken over from the rarer value.
    pub(super) over: u64,
    /// The variance of `packets`, because not every packet was sampled.
    pub(super) variance: f64,
}

impl FrequentTally {
    /// Returns by how many packets the tally may be wrong, with a probability of 95 %.
    pub(super) fn error_packets(&self) -> u64 {
        self.over + (CONFIDENCE * self.variance.sqrt()).ceil() as u64
    }
}

/// The most frequent values of a stream, with their tallies.
#[derive(Clone, Debug)]
pub(super) struct Frequent<T> {
    room: usize,
    tallies: HashMap<T, FrequentTally>,
    /// Tallies and their values, the rarest first.
    order: BTreeSet<(u64, T)>,
}

impl<T: Ord + Hash + Clone> Frequent<T> {
    /// Makes an empty collection with room for `room` values.
    pub(super) fn new(room: usize) -> Self {
        Self { room, tallies: HashMap::new(), order: BTreeSet::new() }
    }

    /// Counts a value, and returns whether the value had no place before.
    pub(super) fn see(&mut self, value: &T, seen: FrequentTally) -> bool {
        let known = self.tallies.get(value).copied();
        let before = match known {
            Some(before) => {
                self.order.remove(&(before.packets, value.clone()));
                before
            }
            None if self.tallies.len() < self.room => FrequentTally::default(),
            None => self.order.pop_first().map_or_else(FrequentTally::default, |(packets, rarest)| {
                self.tallies.remove(&rarest);
                FrequentTally { packets, over: packets, ..FrequentTally::default() }
            }),
        };
        let tally = FrequentTally {
            samples: before.samples + seen.samples,
            packets: before.packets + seen.packets,
            over: before.over + seen.over,
            variance: before.variance + seen.variance,
        };
        self.order.insert((tally.packets, value.clone()));
        self.tallies.insert(value.clone(), tally);
        known.is_none()
    }

    /// Returns at most `most` values with their tallies, the most frequent first.
    pub(super) fn top(&self, most: usize) -> Vec<(T, FrequentTally)> {
        let newest = self.order.iter().rev().take(most);
        newest
            .map(|(_, value)| (value.clone(), self.tallies.get(value).copied().unwrap_or_default()))
            .collect()
    }

    /// Returns all values with their tallies.
    pub(super) fn all(&self) -> impl Iterator<Item = (&T, &FrequentTally)> {
        self.tallies.iter()
    }

    /// Returns how many different values have a place; if this is `room`, there may have been more.
    pub(super) fn known(&self) -> usize {
        self.tallies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FrequentTally = FrequentTally { samples: 1, packets: 1, over: 0, variance: 0.0 };

    #[test]
    fn the_most_frequent_of_many_values_are_found_in_the_room_there_is() {
        let mut frequent = Frequent::new(16);
        for number in 0..10_000_u32 {
            let value = if number % 4 == 0 { 7 } else { 1_000 + number };
            frequent.see(&value, ONE);
        }
        let top = frequent.top(1);
        let (value, tally) = top[0];
        assert_eq!((value, frequent.known()), (7, 16));
        assert!(tally.packets >= 2_500, "never too low: {tally:?}");
        assert!(tally.packets - tally.over <= 2_500, "and too high by what it took over at most: {tally:?}");
        let sum: u64 = frequent.all().map(|(_, tally)| tally.packets).sum();
        assert_eq!(sum, 10_000);
    }
}
