//! The Internet checksum over words in memory order: a one's complement sum does not depend on byte order.

/// The checksum of a sum of words, in memory order.
#[inline(always)]
pub(crate) fn finish(sum: u64) -> u16 {
    // A few dozen words of 32 bits leave carries of a few bits: two folds to 32, two to 16.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}
