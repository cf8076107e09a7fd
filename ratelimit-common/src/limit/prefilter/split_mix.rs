//! Random numbers for the tests of limits.

use super::secret;

/// Numbers that look random and are the same in every run (splitmix64).
pub(in crate::limit) struct SplitMix(pub(in crate::limit) u64);

impl SplitMix {
    /// The next number.
    pub(in crate::limit) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A secret out of the next two numbers.
    pub(in crate::limit) fn secret(&mut self) -> [u64; 2] {
        secret([self.next(), self.next()])
    }

    /// A number below an end.
    pub(in crate::limit) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
