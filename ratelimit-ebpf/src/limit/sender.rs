//! The source of a packet, as far as limits tell sources apart.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::prefilter,
};

use crate::{
    packet::{Address, Family, Packet},
    tables::Tables,
};

/// The source of a packet: its address, cut to the prefix of a source.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sender {
    pub(crate) key: SourceKey,
    /// The keyed hash of the source in the prefilter.
    pub(super) hash: u64,
    /// Until when the source's cell is tracked, as a time word; 0 without a prefilter.
    pub(super) tracked_until_q8: u64,
}

impl Sender {
    #[inline(always)]
    pub fn of<T: Tables>(tables: &T, policy: &Policy, packet: &Packet) -> Self {
        let source = &policy.source;
        let key = Self::key_of(policy, packet.source);
        let hash = prefilter::hash(key, policy.prefilter.secret);
        let prefiltered = source.set.prefilter_tolerance_q8 != 0;
        let tracked_until_q8 =
            if prefiltered { tracked_until_q8(tables, prefilter::cell_index(hash)) } else { 0 };
        Self { key, hash, tracked_until_q8 }
    }

    /// The key of the source of an address.
    #[inline(always)]
    pub fn key_of(policy: &Policy, Address { family, key }: Address) -> SourceKey {
        let source = &policy.source;
        match family {
            Family::V4 => SourceKey { hi: key.hi, lo: key.lo & source.v4_mask },
            Family::V6 => SourceKey { hi: key.hi & source.v6_mask_hi, lo: key.lo & source.v6_mask_lo },
        }
    }
}

/// Until when a cell is tracked, as a time word; 0 if it is not. Its bit is read first: in a spoofed flood the bit is clear, and marks have to be fetched
/// from memory.
#[inline(always)]
pub(super) fn tracked_until_q8<T: Tables>(tables: &T, cell: u32) -> u64 {
    if tables.may_be_tracked(cell) { tables.tracked_until(cell) } else { 0 }
}
