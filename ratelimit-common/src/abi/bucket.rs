//! The table of sources: the key of each source, and how far each of its buckets is spent.

use super::MAX_LIMITS;
use crate::abi_struct;

abi_struct! {
    /// One source: an address cut to the policy's prefix length, as its bytes lie in memory.
    ///
    /// IPv4 lives at `::ffff:a.b.c.d`. An IPv6 packet cannot reach such a key: the parser refuses
    /// IPv4-mapped sources, as the kernel's own input path does.
    pub struct SourceKey: 16 {
        /// Bytes 0 to 7 of the address, native load.
        pub hi: u64,
        /// Bytes 8 to 15 of the address, native load.
        pub lo: u64,
    }
}

abi_struct! {
    /// The key of an entry in the table of sources: a source, and the group of limits that the entry is for.
    pub struct EntryKey: 24 {
        /// Bytes 0 to 7 of the source, native load.
        pub hi: u64,
        /// Bytes 8 to 15 of the source, native load.
        pub lo: u64,
        /// 0 for the limits of every source, or one more than the index of a service.
        pub group: u64,
    }
}

abi_struct! {
    /// The state of one source: one GCRA word per limit of the policy, in the policy's order.
    pub struct Bucket: 40 {
        /// Theoretical arrival time of each limit, in 1/256 ns of the kernel's monotonic clock.
        pub tat_q8: [u64; MAX_LIMITS],
        /// The source counts as proven until this time word; see `limit::fair`. 0 if it never was proven.
        pub proven_until_q8: u64,
    }
}

impl Bucket {
    /// A bucket of which nothing is spent, for a source that is not proven.
    pub const FULL: Self = Self { tat_q8: [0; MAX_LIMITS], proven_until_q8: 0 };
}

const MAPPED_PREFIX: [u8; 4] = [0, 0, 0xff, 0xff];

impl SourceKey {
    /// The key of an IPv4 address that is masked already.
    #[inline(always)]
    pub const fn from_v4(addr: u32) -> Self {
        let a = addr.to_ne_bytes();
        let m = MAPPED_PREFIX;
        Self { hi: 0, lo: u64::from_ne_bytes([m[0], m[1], m[2], m[3], a[0], a[1], a[2], a[3]]) }
    }

    /// The IPv4 address of a key, as its bytes lie in memory; `None` if the key is an IPv6 address.
    #[inline(always)]
    pub const fn v4(self) -> Option<u32> {
        let rest = self.lo ^ Self::from_v4(0).lo;
        let (mapped, address) = if cfg!(target_endian = "little") {
            (rest as u32, (rest >> 32) as u32)
        } else {
            ((rest >> 32) as u32, rest as u32)
        };
        if self.hi == 0 && mapped == 0 { Some(address) } else { None }
    }

    /// The address as 16 bytes in network order.
    pub const fn octets(self) -> [u8; 16] {
        let (h, l) = (self.hi.to_ne_bytes(), self.lo.to_ne_bytes());
        [h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], l[0], l[1], l[2], l[3], l[4], l[5], l[6], l[7]]
    }

    /// The key of an address of 16 bytes in network order.
    pub const fn from_octets(o: [u8; 16]) -> Self {
        Self {
            hi: u64::from_ne_bytes([o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7]]),
            lo: u64::from_ne_bytes([o[8], o[9], o[10], o[11], o[12], o[13], o[14], o[15]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_ipv4_address_gives_it_back_and_no_other_key_does() {
        for address in [0, 1, 0x0102_0304, u32::MAX] {
            let key = SourceKey::from_v4(address);
            assert_eq!(key.v4(), Some(address));
            assert_eq!(SourceKey { hi: 1, ..key }.v4(), None);
            let mut octets = key.octets();
            octets[8] = 1;
            assert_eq!(SourceKey::from_octets(octets).v4(), None);
        }
        assert_eq!(SourceKey { hi: 0, lo: 0 }.v4(), None);
    }
}
