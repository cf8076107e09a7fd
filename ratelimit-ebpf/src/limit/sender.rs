//! Whose packet it is, as far as limits can tell sources apart.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::prefilter,
};

use crate::{
    packet::{Address, Family, Packet},
    tables::Tables,
};

/// The source of a packet: its address, cut to the prefix that the policy takes for one source.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sender {
    pub(crate) key: SourceKey,
    /// The keyed hash that says where the source belongs in the prefilter.
    pub(super) hash: u64,
    /// Until when its cell there is tracked; 0 without a prefilter.
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

    /// What the policy takes for the source of a packet.
    #[inline(always)]
    pub fn key_of(policy: &Policy, Address { family, key }: Address) -> SourceKey {
        let source = &policy.source;
        match family {
            Family::V4 => SourceKey { hi: key.hi, lo: key.lo & source.v4_mask },
            Family::V6 => SourceKey { hi: key.hi & source.v6_mask_hi, lo: key.lo & source.v6_mask_lo },
        }
    }
}

/// Until when a cell is tracked, as a time word; 0 if it is not. Its bit is asked first: in a spoofed flood that says no, and marks have to come
/// from far.
#[inline(always)]
pub(super) fn tracked_until_q8<T: Tables>(tables: &T, cell: u32) -> u64 {
    if tables.may_be_tracked(cell) { tables.tracked_until(cell) } else { 0 }
}
