//! State of keys, all of one size, in a table that never grows beyond its end: who has not been asked about for longest makes way.
//!
//! ```text
//! fingerprint --+--> set a: |k|k|k|k|k|k| | |      8 places each; a key is in one of its two sets,
//!               +--> set b: |k|k|k| | | | | |      new ones go where there is more room
//! ```
//!
//! No pointers, no lists: a key costs its words, 8 bytes for who it is and 4 for when it was last asked about, and with two sets to choose from
//! five of seven places are taken before the first key has to go. What makes way when both sets are full is the oldest of their sixteen, which
//! is among the oldest of all. The usual tables with exact order of use take three to five times the space.

/// Places in a set: their fingerprints are one line of the processor's cache.
const WAYS: usize = 8;
/// Sets to begin with.
const FIRST_SETS: usize = 4;

/// A table.
#[derive(Debug)]
pub struct Cells {
    words: usize,
    sets: usize,
    most_sets: usize,
    used: usize,
    /// Who is where; 0 is nobody.
    fingerprints: Vec<u64>,
    /// When each was last asked about, as a count of questions that wraps.
    asked: Vec<u32>,
    state: Vec<u64>,
    question: u32,
    /// Keys that had to make way.
    evicted: u64,
    /// Where the last key was found: one decision looks for it up to three times.
    last: usize,
}

impl Cells {
    /// A table of keys with so many words each, for at most about so many of them.
    pub fn new(words: usize, most: usize) -> Self {
        // Two fifths more, because sets do not fill evenly: then all of so many fit.
        let most_sets = (most + most * 2 / 5).div_ceil(WAYS).max(2);
        Self::of_size(words, FIRST_SETS.min(most_sets), most_sets)
    }

    fn of_size(words: usize, sets: usize, most_sets: usize) -> Self {
        Self {
            words,
            sets,
            most_sets,
            used: 0,
            fingerprints: vec![0; sets * WAYS],
            asked: vec![0; sets * WAYS],
            state: vec![0; sets * WAYS * words],
            question: 0,
            evicted: 0,
            last: 0,
        }
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Keys that had to make way.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Where a key is.
    #[inline]
    pub fn find(&mut self, fingerprint: u64) -> Option<usize> {
        if self.fingerprints[self.last] == fingerprint {
            return Some(self.last);
        }
        let found = self.sets_of(fingerprint).into_iter().find_map(|set| {
            let places = &self.fingerprints[set * WAYS..][..WAYS];
            places.iter().position(|other| *other == fingerprint).map(|way| set * WAYS + way)
        })?;
        self.question = self.question.wrapping_add(1);
        self.asked[found] = self.question;
        self.last = found;
        Some(found)
    }

    /// Where a key is, or is from now on, with words that are all 0.
    pub fn find_or_insert(&mut self, fingerprint: u64) -> usize {
        match self.find(fingerprint) {
            Some(place) => place,
            None => self.insert(fingerprint),
        }
    }

    /// The words of a place.
    pub fn words(&self, place: usize) -> &[u64] {
        &self.state[place * self.words..][..self.words]
    }

    /// The same, to be changed.
    pub fn words_mut(&mut self, place: usize) -> &mut [u64] {
        &mut self.state[place * self.words..][..self.words]
    }

    /// Forgets a key.
    pub fn remove(&mut self, fingerprint: u64) {
        if let Some(place) = self.find(fingerprint) {
            self.fingerprints[place] = 0;
            self.words_mut(place).fill(0);
            self.used -= 1;
        }
    }

    fn insert(&mut self, fingerprint: u64) -> usize {
        // Before a set is likely to be full.
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
                self.oldest(fingerprint)
            }
        };
        self.used += 1;
        self.question = self.question.wrapping_add(1);
        self.fingerprints[place] = fingerprint;
        self.asked[place] = self.question;
        self.last = place;
        self.words_mut(place).fill(0);
        place
    }

    /// A free place in the emptier of a key's sets.
    fn free(&self, fingerprint: u64) -> Option<usize> {
        let free = |set: usize| {
            let places = &self.fingerprints[set * WAYS..][..WAYS];
            let count = places.iter().filter(|other| **other == 0).count();
            (count, places.iter().position(|other| *other == 0).map(|way| set * WAYS + way))
        };
        let [one, two] = self.sets_of(fingerprint).map(free);
        if one.0 >= two.0 { one.1 } else { two.1 }
    }

    fn oldest(&self, fingerprint: u64) -> usize {
        let places = self.sets_of(fingerprint).into_iter().flat_map(|set| set * WAYS..(set + 1) * WAYS);
        places.max_by_key(|place| self.question.wrapping_sub(self.asked[*place])).unwrap_or(0)
    }

    fn sets_of(&self, fingerprint: u64) -> [usize; 2] {
        let scaled = |half: u64| ((half * self.sets as u64) >> 32) as usize;
        [scaled(fingerprint >> 32), scaled(fingerprint & u64::from(u32::MAX))]
    }

    /// Moves to a larger table: one step, or as many as it takes that everybody has a place.
    fn grow(&mut self) {
        let mut sets = self.sets;
        loop {
            sets = (sets + sets.div_ceil(4)).min(self.most_sets);
            let larger = self.moved_to(sets);
            if larger.evicted == self.evicted || sets == self.most_sets {
                *self = larger;
                return;
            }
        }
    }

    fn moved_to(&self, sets: usize) -> Self {
        let mut larger = Self::of_size(self.words, sets, self.most_sets);
        (larger.question, larger.evicted) = (self.question, self.evicted);
        // One place of every set after the other: neighbours go to neighbouring sets, which would fill up first.
        let places = (0..WAYS).flat_map(|way| (way..self.fingerprints.len()).step_by(WAYS));
        for place in places.filter(|place| self.fingerprints[*place] != 0) {
            let fingerprint = &self.fingerprints[place];
            let to = match larger.free(*fingerprint) {
                Some(to) => {
                    larger.used += 1;
                    to
                }
                None => {
                    larger.evicted += 1;
                    larger.oldest(*fingerprint)
                }
            };
            larger.fingerprints[to] = *fingerprint;
            larger.asked[to] = self.asked[place];
            larger.words_mut(to).copy_from_slice(self.words(place));
        }
        larger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::key::KeyHasher;

    fn key(n: u64) -> u64 {
        KeyHasher::known((1, 2)).begin(n).bytes(&[]).fingerprint
    }

    #[test]
    fn as_many_keys_as_were_asked_for_fit_but_for_one_in_a_thousand() {
        let mut cells = Cells::new(2, 10_000);
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
        let mut cells = Cells::new(1, 1_000);
        for n in 0..100_u64 {
            let place = cells.find_or_insert(key(n));
            cells.words_mut(place)[0] = n + 1;
        }
        for stranger in 0..100_000 {
            cells.find_or_insert(key(1_000_000 + stranger));
            let place = cells.find(key(stranger % 100)).expect("asked about a hundred keys ago");
            assert_eq!(cells.words(place), [stranger % 100 + 1]);
        }
        assert!(cells.len() <= 1_400, "{}", cells.len());
        assert!(cells.evicted() > 98_000);
    }

    #[test]
    fn a_key_that_comes_back_after_it_had_to_go_starts_anew() {
        let mut cells = Cells::new(1, 16);
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
    fn a_key_that_is_removed_leaves_nothing_behind() {
        let mut cells = Cells::new(1, 16);
        let place = cells.find_or_insert(key(3));
        cells.words_mut(place)[0] = 7;
        cells.remove(key(3));
        assert_eq!((cells.find(key(3)), cells.len()), (None, 0));
        let place = cells.find_or_insert(key(3));
        assert_eq!(cells.words(place), [0]);
    }
}
