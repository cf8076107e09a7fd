//! A table with a bound that evicts what was not used for the longest, as the kernel's tables of sources do.

use foldhash::HashMap;
use ratelimit_ebpf::rows::RowKey;

/// Stands for no row.
const NOWHERE: u32 = u32::MAX;

/// One row: its key, and its neighbours in the order of last use.
#[derive(Clone, Copy, Debug)]
struct RecencyRow {
    key: RowKey,
    newer: u32,
    older: u32,
}

/// Rows by key, at most `bound` of them. A row keeps its number as long as it exists.
#[derive(Debug)]
pub(super) struct RecencyTable {
    bound: u32,
    index: HashMap<RowKey, u32>,
    rows: Vec<RecencyRow>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl RecencyTable {
    /// An empty table.
    pub(super) fn new(bound: u32) -> Self {
        let bound = bound.clamp(1, NOWHERE - 1);
        Self {
            bound,
            index: HashMap::default(),
            rows: Vec::new(),
            free: Vec::new(),
            newest: NOWHERE,
            oldest: NOWHERE,
        }
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether a key has a row, without counting as a use of it.
    pub(super) fn has(&self, key: &RowKey) -> bool {
        self.index.contains_key(key)
    }

    /// The number of a key's row, which becomes the most recently used.
    pub(super) fn get(&mut self, key: &RowKey) -> Option<usize> {
        let row = *self.index.get(key)?;
        if row != self.newest {
            self.unlink(row);
            self.put_first(row);
        }
        Some(row as usize)
    }

    /// Makes a row for a key that has none. If the table is full, the least recently used row is evicted.
    pub(super) fn insert(&mut self, key: RowKey) -> usize {
        let full = self.index.len() >= self.bound as usize;
        let row = if full { self.take_oldest() } else { self.free.pop().unwrap_or(self.rows.len() as u32) };
        let fresh = RecencyRow { key, newer: NOWHERE, older: NOWHERE };
        match self.rows.get_mut(row as usize) {
            Some(place) => *place = fresh,
            None => self.rows.push(fresh),
        }
        self.put_first(row);
        self.index.insert(key, row);
        row as usize
    }

    /// Removes the row of a key.
    pub(super) fn remove(&mut self, key: &RowKey) {
        if let Some(row) = self.index.remove(key) {
            self.unlink(row);
            self.free.push(row);
        }
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.bound);
    }

    fn take_oldest(&mut self) -> u32 {
        let row = self.oldest;
        self.unlink(row);
        self.index.remove(&self.rows[row as usize].key);
        row
    }

    fn unlink(&mut self, row: u32) {
        let RecencyRow { newer, older, .. } = self.rows[row as usize];
        match self.rows.get_mut(newer as usize) {
            Some(next) => next.older = older,
            None => self.newest = older,
        }
        match self.rows.get_mut(older as usize) {
            Some(next) => next.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn put_first(&mut self, row: u32) {
        let before = self.newest;
        (self.rows[row as usize].newer, self.rows[row as usize].older) = (NOWHERE, before);
        match self.rows.get_mut(before as usize) {
            Some(next) => next.newer = row,
            None => self.oldest = row,
        }
        self.newest = row;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_row_that_was_not_asked_for_the_longest_makes_room() {
        let mut table = RecencyTable::new(2);
        let (first, second) = (table.insert([1; 3]), table.insert([2; 3]));
        assert_eq!(table.get(&[1; 3]), Some(first));
        assert_eq!(table.insert([3; 3]), second, "its place is used again");
        assert_eq!((table.get(&[2; 3]), table.get(&[1; 3]), table.len()), (None, Some(first), 2));
    }

    proptest! {
        /// Compared with the plainest model: a queue that is searched.
        #[test]
        fn a_table_holds_what_a_queue_of_that_length_would(
            steps in prop::collection::vec((0_u8..3, 0_u64..12), 1..400), bound in 1_u32..8,
        ) {
            let mut table = RecencyTable::new(bound);
            let mut model: VecDeque<u64> = VecDeque::new();
            for (what, key) in steps {
                let known = model.iter().position(|other| *other == key);
                match what {
                    0 => {
                        prop_assert_eq!(table.get(&[key; 3]).is_some(), known.is_some());
                        if let Some(at) = known {
                            model.remove(at);
                            model.push_front(key);
                        }
                    }
                    1 if known.is_none() => {
                        table.insert([key; 3]);
                        model.truncate(bound as usize - 1);
                        model.push_front(key);
                    }
                    _ => {
                        table.remove(&[key; 3]);
                        model.retain(|other| *other != key);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for key in 0..12 {
                    prop_assert_eq!(table.has(&[key; 3]), model.contains(&key));
                }
            }
        }
    }
}
