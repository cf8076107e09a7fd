//! State of keys, all of one shape, in a table of bounded size: the key that was not asked about for longest makes way.
//!
//! ```text
//! fingerprint --+--> set a: k k k k k k - -   a a a a a a - -   w w w w w w - -      8 places each: who, when, state
//!               +--> set b: k k k - - - - -   a a a - - - - -   w w w - - - - -      a key is in one of its two sets
//! ```
//!
//! No pointers, no lists: a key costs its words, 8 bytes for its fingerprint and 4 for the time of the last question. With two sets to choose from,
//! five of seven places are taken before a key has to make way. If both sets of a new key are full, the one of their sixteen keys makes way that was
//! not asked about for longest, which is among the oldest of the table. Tables with the exact order of use take three to five times the space.
//!
//! Logs are elsewhere, in rings that grow (`rings`); in the table a log is one word, the number of its ring. The owner of several tables bounds the
//! bytes of all rings together: it has keys make way with [`Cells::drop_a_log`].
//!
//! Speed depends on how many cache lines are touched that another CPU has written to. So all state of a key lies together, and a question about a key
//! that is there writes little but its state: time is counted in new keys, because only new keys make others go.

use super::rings::{Rings, SAMPLE};
use crate::meter::Log;

/// Places in a set: their fingerprints fill one line of the processor's cache.
const WAYS: usize = 8;
/// Words of a set for the times of the last questions: two times in each word.
const ASKED: usize = WAYS / 2;
/// A key goes to its first set while that has more free places than this, so that most keys are in the set that is looked at first.
const SPARE: usize = 3;
/// Sets of a new table.
const FIRST_SETS: usize = 4;

/// The words of a key in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// How many words of 64 bits a key has.
    pub words: usize,
    /// How many of the words, from the first on, are numbers of logs.
    pub logs: usize,
}

/// A table of counters, with a fixed number of words for each key.
#[derive(Debug)]
pub struct Cells {
    words: usize,
    logs: usize,
    sets: usize,
    most_sets: usize,
    used: usize,
    /// All sets, one after the other. Each has fingerprints (0 for a free place), then the times of the last questions, then the states.
    memory: Vec<u64>,
    /// The number of new keys so far, which wraps. It is the clock of the table.
    newcomers: u32,
    /// Keys that had to make way.
    evicted: u64,
    rings: Rings,
    /// The place at which the next search begins for a key whose logs make way.
    hand: usize,
}

impl Cells {
    /// Makes a table for about `most` keys of this shape: nearly all of `most` keys fit, and at most two fifths more.
    pub fn new(shape: Shape, most: usize) -> Self {
        // Sets do not fill evenly: nearly all of `most` keys fit if there are two fifths more places.
        let most_sets = (most + most * 2 / 5).div_ceil(WAYS).max(2);
        Self::of_size(shape, FIRST_SETS.min(most_sets), most_sets)
    }

    fn of_size(Shape { words, logs }: Shape, sets: usize, most_sets: usize) -> Self {
        let memory = vec![0; sets * (WAYS + ASKED + WAYS * words)];
        let rings = Rings::default();
        Self { words, logs, sets, most_sets, used: 0, memory, newcomers: 0, evicted: 0, rings, hand: 0 }
    }

    /// The number of keys in the table.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether the table has no key.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The number of keys that had to make way.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns the place of a key, and records that somebody asked about the key.
    #[inline]
    pub fn find(&mut self, fingerprint: u64) -> Option<usize> {
        let sets = self.sets_of(fingerprint);
        self.expect(sets[0]);
        let found = sets.into_iter().find_map(|set| {
            // Compares all places without a branch for each: which one matches cannot be predicted, and a wrong prediction costs more.
            let same = |(way, other): (usize, &u64)| u32::from(*other == fingerprint) << way;
            let found = self.keys(set).iter().enumerate().map(same).fold(0, |all, one| all | one);
            (found != 0).then(|| set * WAYS + found.trailing_zeros() as usize)
        })?;
        self.touch(found);
        Some(found)
    }

    /// Returns the place of a key, looking first where the key was a moment ago. It may have had to make way since.
    #[inline]
    pub fn find_again(&mut self, before: Option<usize>, fingerprint: u64) -> Option<usize> {
        before.filter(|place| self.key(*place) == fingerprint).or_else(|| self.find(fingerprint))
    }

    /// Returns the place of a key. A key that is not there is inserted, with words that are all 0.
    pub fn find_or_insert(&mut self, fingerprint: u64) -> usize {
        self.find(fingerprint).unwrap_or_else(|| self.insert(fingerprint))
    }

    /// The words of a place.
    #[inline]
    pub fn words(&self, place: usize) -> &[u64] {
        let at = self.state_at(place);
        &self.memory[at..at + self.words]
    }

    /// The words of a place, to be changed.
    #[inline]
    pub fn words_mut(&mut self, place: usize) -> &mut [u64] {
        let at = self.state_at(place);
        &mut self.memory[at..at + self.words]
    }

    /// The words of the limit that begins at word `at` of a place: for a log, the words of its ring.
    #[inline]
    pub fn part(&self, place: usize, at: usize) -> &[u64] {
        let words = self.words(place);
        if at < self.logs { self.rings.get(words[at]) } else { &words[at..] }
    }

    /// The words of the limit that begins at word `at` of a place, to be changed.
    #[inline]
    pub fn part_mut(&mut self, place: usize, at: usize) -> &mut [u64] {
        if at < self.logs {
            let number = self.words(place)[at];
            self.rings.get_mut(number)
        } else {
            &mut self.words_mut(place)[at..]
        }
    }

    /// Replaces the words of the limit that begins at word `at` of a place.
    pub fn set_part(&mut self, place: usize, at: usize, words: Vec<u64>) {
        if at < self.logs {
            let number = self.words(place)[at];
            self.words_mut(place)[at] = self.rings.replace(number, words);
        } else {
            self.words_mut(place)[at..at + words.len()].copy_from_slice(&words);
        }
    }

    /// Replaces the ring of a log if it does not suit a charge of `units`: [`Log::refit`].
    pub fn refit(&mut self, place: usize, at: usize, log: &Log, now_us: u64, units: u64) {
        let is_new = self.words(place)[at] == 0;
        if let Some(ring) = log.refit(self.part(place, at), is_new, now_us, units) {
            self.set_part(place, at, ring);
        }
    }

    /// Bytes that the logs of all keys take.
    pub fn log_bytes(&self) -> usize {
        self.rings.bytes()
    }

    /// Has one key with a log make way. Of the next few keys with logs it is the one that was not asked about for longest, and among equals the one
    /// that was charged longest ago. The key `but_not` stays. Returns whether there was such a key.
    pub fn drop_a_log(&mut self, but_not: u64) -> bool {
        let (places, mut seen, mut oldest) = (self.sets * WAYS, 0, None);
        for _ in 0..if self.rings.bytes() > 0 { places } else { 0 } {
            let place = self.hand % places;
            self.hand = place + 1;
            let key = self.key(place);
            let rings = &self.words(place)[..self.logs];
            if key == 0 || key == but_not || rings.iter().all(|number| *number == 0) {
                continue;
            }
            let newest_us = rings.iter().map(|number| Log::newest_us(self.rings.get(*number))).max();
            let age = (self.newcomers.wrapping_sub(self.asked(place)), std::cmp::Reverse(newest_us));
            oldest = oldest.max(Some((age, place)));
            seen += 1;
            if seen == SAMPLE {
                break;
            }
        }
        let Some((_, place)) = oldest else { return false };
        self.clear(place);
        self.evicted += 1;
        true
    }

    /// Forgets a key.
    pub fn remove(&mut self, fingerprint: u64) {
        if let Some(place) = self.find(fingerprint) {
            self.clear(place);
        }
    }

    fn clear(&mut self, place: usize) {
        self.release_logs(place);
        self.put(place, 0);
        self.words_mut(place).fill(0);
        self.used -= 1;
    }

    fn release_logs(&mut self, place: usize) {
        for at in 0..self.logs {
            let number = self.words(place)[at];
            self.rings.release(number);
        }
    }

    /// Inserts a key that is not there, with words that are all 0, and returns its place.
    pub fn insert(&mut self, fingerprint: u64) -> usize {
        // Grows before a set is likely to be full.
        if self.used * 10 >= self.sets * WAYS * 7 && self.sets < self.most_sets {
            self.grow();
        }
        let place = match self.free(fingerprint) {
            Some(place) => place,
            None if self.sets < self.most_sets => {
                self.grow();
                return self.insert(fingerprint);
            }
            None => {
                self.evicted += 1;
                self.used -= 1;
                let place = self.oldest(fingerprint);
                self.release_logs(place);
                place
            }
        };
        self.used += 1;
        self.newcomers = self.newcomers.wrapping_add(1);
        self.put(place, fingerprint);
        self.touch(place);
        self.words_mut(place).fill(0);
        place
    }

    /// Returns a free place for a key: in its first set while there is room to spare, else in the emptier set.
    fn free(&self, fingerprint: u64) -> Option<usize> {
        let free = |set: usize| {
            let keys = self.keys(set);
            let count = keys.iter().filter(|other| **other == 0).count();
            (count, keys.iter().position(|other| *other == 0).map(|way| set * WAYS + way))
        };
        let [one, two] = self.sets_of(fingerprint).map(free);
        if one.0 > SPARE || one.0 >= two.0 { one.1 } else { two.1 }
    }

    fn oldest(&self, fingerprint: u64) -> usize {
        let places = self.sets_of(fingerprint).into_iter().flat_map(|set| set * WAYS..(set + 1) * WAYS);
        places.max_by_key(|place| self.newcomers.wrapping_sub(self.asked(*place))).unwrap_or(0)
    }

    fn sets_of(&self, fingerprint: u64) -> [usize; 2] {
        let scaled = |half: u64| ((half * self.sets as u64) >> 32) as usize;
        [scaled(fingerprint >> 32), scaled(fingerprint & u64::from(u32::MAX))]
    }

    /// Grows the table by a quarter, and again until every key has a place or the table is as large as it may be.
    fn grow(&mut self) {
        let mut sets = self.sets;
        loop {
            sets = (sets + sets.div_ceil(4)).min(self.most_sets);
            let (mut larger, homeless) = self.moved_to(sets);
            if larger.evicted == self.evicted || sets == self.most_sets {
                larger.rings = std::mem::take(&mut self.rings);
                homeless.into_iter().for_each(|number| larger.rings.release(number));
                *self = larger;
                return;
            }
        }
    }

    /// Copies all keys into a larger table, without the logs. Returns the table, and the numbers of the logs whose keys had to make way in it.
    fn moved_to(&self, sets: usize) -> (Self, Vec<u64>) {
        let shape = Shape { words: self.words, logs: self.logs };
        let (mut larger, mut homeless) = (Self::of_size(shape, sets, self.most_sets), Vec::new());
        (larger.newcomers, larger.evicted) = (self.newcomers, self.evicted);
        // Takes one place of every set after the other: neighbours go to neighbouring sets, which would fill up first.
        let places = (0..WAYS).flat_map(|way| (way..self.sets * WAYS).step_by(WAYS));
        for (place, fingerprint) in places.map(|place| (place, self.key(place))).filter(|(_, key)| *key != 0)
        {
            let to = match larger.free(fingerprint) {
                Some(to) => {
                    larger.used += 1;
                    to
                }
                None => {
                    larger.evicted += 1;
                    let oldest = larger.oldest(fingerprint);
                    homeless.extend(&larger.words(oldest)[..self.logs]);
                    oldest
                }
            };
            larger.put(to, fingerprint);
            larger.set_asked(to, self.asked(place));
            larger.words_mut(to).copy_from_slice(self.words(place));
        }
        (larger, homeless)
    }

    /// Returns the index of the first word of a set.
    fn set_at(&self, set: usize) -> usize {
        set * (WAYS + ASKED + WAYS * self.words)
    }

    fn state_at(&self, place: usize) -> usize {
        self.set_at(place / WAYS) + WAYS + ASKED + place % WAYS * self.words
    }

    fn keys(&self, set: usize) -> &[u64] {
        let at = self.set_at(set);
        &self.memory[at..at + WAYS]
    }

    fn key(&self, place: usize) -> u64 {
        self.keys(place / WAYS)[place % WAYS]
    }

    fn put(&mut self, place: usize, fingerprint: u64) {
        let at = self.set_at(place / WAYS) + place % WAYS;
        self.memory[at] = fingerprint;
    }

    /// Returns the index of the word with the time of a place's last question, and the number of the lowest bit of the time in it.
    fn asked_at(&self, place: usize) -> (usize, usize) {
        (self.set_at(place / WAYS) + WAYS + place % WAYS / 2, place % 2 * 32)
    }

    fn asked(&self, place: usize) -> u32 {
        let (at, shift) = self.asked_at(place);
        (self.memory[at] >> shift) as u32
    }

    fn set_asked(&mut self, place: usize, when: u32) {
        let (at, shift) = self.asked_at(place);
        let other = self.memory[at] & !(u64::from(u32::MAX) << shift);
        self.memory[at] = other | u64::from(when) << shift;
    }

    /// Loads the state of a set from memory while its fingerprints are still compared, so that both waits for memory are one.
    #[inline]
    fn expect(&self, set: usize) {
        let at = self.state_at(set * WAYS);
        let word = |at: usize| self.memory.get(at).copied();
        std::hint::black_box((word(at), word(at + self.words * WAYS / 2)));
    }

    /// Records a question about a place. Where few keys are new, this seldom changes a word.
    fn touch(&mut self, place: usize) {
        if self.asked(place) != self.newcomers {
            self.set_asked(place, self.newcomers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::key::KeyHasher;

    fn key(n: u64) -> u64 {
        KeyHasher::known((1, 2)).begin(n).bytes(&[]).fingerprint
    }

    fn plain(words: usize) -> Shape {
        Shape { words, logs: 0 }
    }

    #[test]
    fn as_many_keys_as_were_asked_for_fit_but_for_one_in_a_thousand() {
        let mut cells = Cells::new(plain(2), 10_000);
        for n in 0..10_000 {
            let place = cells.find_or_insert(key(n));
            cells.words_mut(place)[1] = n;
        }
        assert!(cells.evicted() <= 10, "{}", cells.evicted());
        let found =
            (0..10_000).filter(|n| cells.find(key(*n)).is_some_and(|place| cells.words(place) == [0, *n]));
        assert_eq!(found.count() as u64, 10_000 - cells.evicted());
        assert!(cells.sets * WAYS <= 14_000, "{} sets", cells.sets);
    }

    #[test]
    fn keys_that_are_asked_about_stay_however_many_others_come() {
        let mut cells = Cells::new(plain(1), 1_000);
        for n in 0..100_u64 {
            let place = cells.find_or_insert(key(n));
            cells.words_mut(place)[0] = n + 1;
        }
        for other in 0..100_000 {
            cells.find_or_insert(key(1_000_000 + other));
            let place = cells.find(key(other % 100)).expect("asked about a hundred keys ago");
            assert_eq!(cells.words(place), [other % 100 + 1]);
        }
        assert!(cells.len() <= 1_400, "{}", cells.len());
        assert!(cells.evicted() > 98_000);
    }

    #[test]
    fn a_key_that_comes_back_after_it_had_to_go_starts_anew() {
        let mut cells = Cells::new(plain(1), 16);
        let place = cells.find_or_insert(key(0));
        cells.words_mut(place)[0] = 7;
        (1..1_000).for_each(|n| {
            let place = cells.find_or_insert(key(n));
            cells.words_mut(place)[0] = 9;
        });
        assert_eq!(cells.find(key(0)), None);
        let place = cells.find_or_insert(key(0));
        assert_eq!(cells.words(place), [0]);
    }

    #[test]
    fn a_key_is_found_again_wherever_others_have_moved_it_to() {
        let mut cells = Cells::new(plain(1), 1_000);
        let mut places: Vec<usize> = (0..20).map(|n| cells.find_or_insert(key(n))).collect();
        for n in 0..20 {
            let place = cells.find_or_insert(key(n));
            cells.words_mut(place)[0] = n + 1;
        }
        (20..500).for_each(|n| _ = cells.insert(key(n)));
        let moved = (0..20).filter(|n| cells.find(key(*n)) != Some(places[*n as usize])).count();
        assert!(moved > 0, "the table has grown");
        for (n, place) in (0..20).zip(&mut places) {
            *place = cells.find_again(Some(*place), key(n)).expect("there is room for all");
            assert_eq!(cells.words(*place), [n + 1]);
        }
        assert_eq!(cells.find_again(Some(places[0]), key(600)), None);
    }

    #[test]
    fn a_key_that_is_removed_leaves_nothing_behind() {
        let mut cells = Cells::new(plain(1), 16);
        let place = cells.find_or_insert(key(3));
        cells.words_mut(place)[0] = 7;
        cells.remove(key(3));
        assert_eq!((cells.find(key(3)), cells.len()), (None, 0));
        let place = cells.find_or_insert(key(3));
        assert_eq!(cells.words(place), [0]);
    }

    #[test]
    fn the_table_grows_by_a_quarter_when_seven_of_ten_places_are_taken_and_not_before() {
        let mut cells = Cells::new(plain(1), 10_000);
        assert_eq!((cells.sets, cells.memory.len()), (FIRST_SETS, FIRST_SETS * (WAYS + ASKED + WAYS)));
        let (mut steps, mut early) = (0, 0);
        for n in 0..9_000 {
            let (sets, used) = (cells.sets, cells.len());
            cells.insert(key(n));
            let places = sets * WAYS;
            match cells.sets == sets {
                true => assert!(used * 10 < places * 7, "{used} of {places}"),
                false => {
                    steps += 1;
                    early += usize::from(used * 10 < places * 7);
                    assert!(used * 10 >= places * 5, "{used} of {places}");
                    assert_eq!(cells.sets, (sets + sets.div_ceil(4)).min(cells.most_sets));
                }
            }
            assert_eq!(cells.memory.len(), cells.sets * (WAYS + ASKED + WAYS));
            assert_eq!((cells.len(), cells.evicted()), (n as usize + 1, 0));
        }
        assert!(steps > 20 && early <= 2, "{early} of {steps} steps because a set was full");
    }

    #[test]
    fn a_key_goes_to_its_first_set_while_there_is_room_to_spare_and_then_to_the_emptier_one() {
        let mut cells = Cells::of_size(plain(1), 2, 2);
        // The upper half of a number names the first set, the lower half the second: here 0 and 1.
        let number = |n: u64| n << 8 | 1 << 31 | n;
        let places: Vec<usize> = (1..=16).map(|n| cells.insert(number(n)) / WAYS).collect();
        assert_eq!(places[..5], [0; 5], "three are left free");
        let first = places.iter().filter(|set| **set == 0).count();
        assert_eq!((first, cells.evicted(), cells.len()), (8, 0, 16), "{places:?}");
        assert_eq!(places[5..10], [1; 5], "{places:?}");
        assert_eq!(cells.insert(number(17)) / WAYS, 0, "the oldest of all makes way");
        assert_eq!((cells.find(number(1)), cells.evicted(), cells.len()), (None, 1, 16));
        cells.remove(number(1));
        assert_eq!(cells.len(), 16, "nobody was there");
        cells.remove(number(2));
        assert_eq!((cells.len(), cells.is_empty()), (15, false));
    }

    /// Rings that keys of a table have, and the bytes of all rings.
    fn rings(cells: &Cells) -> (usize, usize) {
        let places = (0..cells.sets * WAYS).filter(|place| cells.key(*place) != 0);
        (
            places.map(|place| cells.words(place)[..2].iter().filter(|n| **n != 0).count()).sum(),
            cells.log_bytes(),
        )
    }

    #[test]
    fn a_key_that_makes_way_or_is_removed_gives_back_its_logs_also_while_the_table_grows() {
        let mut cells = Cells::new(Shape { words: 3, logs: 2 }, 500);
        for n in 0..5_000 {
            let place = cells.find_or_insert(key(n));
            cells.set_part(place, 0, vec![n; 4]);
            cells.set_part(place, 1, vec![n; 4]);
            cells.part_mut(place, 2)[0] = n;
            if n % 7 == 0 {
                cells.remove(key(n));
            }
            let (rings, bytes) = rings(&cells);
            assert_eq!((rings, bytes), (2 * cells.len(), cells.len() * 2 * 64), "after {n}");
        }
        for n in 4_900..5_000 {
            let Some(place) = cells.find(key(n)) else { continue };
            let parts = [0, 1, 2].map(|at| cells.part(place, at)[0]);
            assert_eq!(parts, [n; 3]);
        }
        assert!(cells.evicted() > 3_000);
    }

    #[test]
    fn of_keys_with_logs_the_one_that_nobody_asks_about_makes_way_and_the_one_that_is_charged_stays() {
        let mut cells = Cells::new(Shape { words: 2, logs: 1 }, 1_000);
        assert!(!cells.drop_a_log(0), "nobody is there");
        let ring = |time| vec![1, time, 0, 0];
        for n in 0..10 {
            let place = cells.insert(key(n));
            cells.set_part(place, 0, ring(100 + n));
        }
        cells.insert(key(99));
        (0..10).filter(|n| *n != 4).for_each(|n| _ = cells.find(key(n)));
        let mut gone = Vec::new();
        while cells.drop_a_log(key(0)) {
            gone.push((0..10).find(|n| cells.find(key(*n)).is_none() && !gone.contains(n)).unwrap());
        }
        // First the key that was not asked about, then the keys that were charged longest ago.
        assert_eq!(gone, [4, 1, 2, 3, 5, 6, 7, 8, 9]);
        assert!(cells.find(key(0)).is_some() && cells.find(key(99)).is_some(), "it has no log");
        assert_eq!((cells.len(), cells.evicted(), cells.log_bytes()), (2, 9, 64));
    }
}
