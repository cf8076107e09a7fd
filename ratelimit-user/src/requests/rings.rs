//! The logs of the keys of a table. A log grows with what its key has been charged, so it has no place of a fixed size in the table.
//!
//! ```text
//! words of a key:  7  0  w w w     two logs and the words of other limits; 0 is a log that has counted nothing
//!                  |
//!                  +--> ring 7: t t t t t t t      the time of every unit
//! ```

/// Bytes that a ring takes beside its words: its entry among all rings, and what the allocator keeps of it.
const BESIDE: usize = 32;
/// Keys that are compared to find the one that makes way.
pub(super) const SAMPLE: usize = 32;

/// Rings by number, from 1 on.
#[derive(Debug)]
pub(super) struct Rings {
    /// All rings by number. Number 0 is the empty ring of keys that have none; it is replaced before it is charged, so nobody writes into it.
    all: Vec<Box<[u64]>>,
    /// Numbers that are free again.
    free: Vec<u32>,
    bytes: usize,
}

impl Default for Rings {
    fn default() -> Self {
        Self { all: vec![Box::new([0; 2])], free: Vec::new(), bytes: 0 }
    }
}

impl Rings {
    /// Bytes that all rings take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The words of a ring.
    pub(super) fn get(&self, number: u64) -> &[u64] {
        &self.all[number as usize]
    }

    /// The words of a ring, to be changed.
    pub(super) fn get_mut(&mut self, number: u64) -> &mut [u64] {
        &mut self.all[number as usize]
    }

    /// Replaces the words of a ring, or makes a new ring if the number is 0, and returns its number.
    pub(super) fn replace(&mut self, number: u64, words: Vec<u64>) -> u64 {
        self.bytes += words.len() * 8 + BESIDE;
        let words = words.into_boxed_slice();
        if number > 0 {
            let before = std::mem::replace(&mut self.all[number as usize], words);
            self.bytes -= before.len() * 8 + BESIDE;
            return number;
        }
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = words;
                number.into()
            }
            None => {
                self.all.push(words);
                self.all.len() as u64 - 1
            }
        }
    }

    /// Frees the ring of this number; 0 is no ring.
    pub(super) fn release(&mut self, number: u64) {
        if number > 0 {
            let before = std::mem::take(&mut self.all[number as usize]);
            self.bytes -= before.len() * 8 + BESIDE;
            self.free.push(number as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_given_back_takes_no_bytes_and_its_number_is_used_again() {
        let mut rings = Rings::default();
        let one = rings.replace(0, vec![1; 4]);
        let two = rings.replace(0, vec![2; 8]);
        assert_eq!((one, two, rings.bytes()), (1, 2, (4 + 8) * 8 + 2 * BESIDE));
        assert_eq!(rings.replace(one, vec![3; 16]), one);
        assert_eq!((rings.get(one), rings.bytes()), (&[3; 16][..], (16 + 8) * 8 + 2 * BESIDE));
        rings.release(one);
        rings.release(0);
        assert_eq!(rings.bytes(), 8 * 8 + BESIDE);
        assert_eq!((rings.replace(0, vec![4]), rings.get(two)), (one, &[2; 8][..]));
    }
}
