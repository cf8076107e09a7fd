//! Source addresses whose family is known at compile time, so that the express lane has separate code for each family.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::prefilter,
};

use crate::packet::{Address, Family};

/// A source address of one family.
pub trait Origin: Copy {
    /// The address family.
    const FAMILY: Family;

    /// The address in the form that the lists use.
    fn address(self) -> Address;

    /// The address as it lies in memory, if it is an IPv4 address.
    fn v4(self) -> Option<u32>;

    /// The address in two words, as it lies in memory. An IPv4 address is in the first word.
    fn words(self) -> (u64, u64);

    /// The hash of the address's source in the prefilter: equal to that of [`Sender`](crate::limit::Sender).
    fn hash(self, policy: &Policy) -> u64;
}

/// An IPv4 address, as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginV4(pub u32);

/// An IPv6 address as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginV6 {
    /// Bytes 0 to 7 of the address.
    pub hi: u64,
    /// Bytes 8 to 15 of the address.
    pub lo: u64,
}

impl Origin for OriginV4 {
    const FAMILY: Family = Family::V4;

    #[inline(always)]
    fn address(self) -> Address {
        Address::v4(self.0)
    }

    #[inline(always)]
    fn v4(self) -> Option<u32> {
        Some(self.0)
    }

    #[inline(always)]
    fn words(self) -> (u64, u64) {
        (self.0 as u64, 0)
    }

    #[inline(always)]
    fn hash(self, policy: &Policy) -> u64 {
        let mask = Address { family: Family::V4, key: SourceKey { hi: 0, lo: policy.source.v4_mask } };
        prefilter::hash_v4(self.0 & mask.v4_word(), policy.prefilter.secret)
    }
}

impl Origin for OriginV6 {
    const FAMILY: Family = Family::V6;

    #[inline(always)]
    fn address(self) -> Address {
        Address::v6(self.hi, self.lo)
    }

    #[inline(always)]
    fn v4(self) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn words(self) -> (u64, u64) {
        (self.hi, self.lo)
    }

    #[inline(always)]
    fn hash(self, policy: &Policy) -> u64 {
        let source = &policy.source;
        let key = SourceKey { hi: self.hi & source.v6_mask_hi, lo: self.lo & source.v6_mask_lo };
        prefilter::hash_v6(key, policy.prefilter.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_known_as_one_and_none_of_ipv6_is() {
        assert_eq!([0, 7, u32::MAX].map(|word| OriginV4(word).v4()), [Some(0), Some(7), Some(u32::MAX)]);
        assert_eq!([(0, 0), (1, 2)].map(|(hi, lo)| OriginV6 { hi, lo }.v4()), [None; 2]);
    }
}
