//! One packet's question to the limits.

use ratelimit_common::{
    abi::{Limit, Meter, Policy, SourceKey},
    limit::{gate, gcra},
};

use crate::packet::{Address, Family, Packet, Transport};

/// What a packet asks for, from whom, and when.
pub(super) struct Request<'p> {
    pub(super) policy: &'p Policy,
    pub(super) packet: &'p Packet,
    pub(super) len: u64,
    pub(super) now_q8: u64,
    pub(super) key: SourceKey,
    pub(super) hash: u64,
}

impl<'p> Request<'p> {
    #[inline(always)]
    pub(super) fn new(policy: &'p Policy, packet: &'p Packet, len: u64, now_ns: u64) -> Self {
        let source = &policy.source;
        let Address { family, key } = packet.source;
        let key = match family {
            Family::V4 => SourceKey { hi: key.hi, lo: key.lo & source.v4_mask },
            Family::V6 => SourceKey { hi: key.hi & source.v6_mask_hi, lo: key.lo & source.v6_mask_lo },
        };
        let hash = gate::hash(key, policy.gate.secret);
        Self { policy, packet, len, now_q8: gcra::time_q8(now_ns), key, hash }
    }

    /// The limit of a source in this place, if the policy has one.
    #[inline(always)]
    pub(super) fn limit(&self, index: usize) -> Option<&'p Limit> {
        let source = &self.policy.source;
        if index < source.limit_count as usize { source.limits.get(index) } else { None }
    }

    /// What this packet costs under a limit; `None` if the limit does not apply to it.
    #[inline(always)]
    pub(super) fn charge_q8(&self, limit: &Limit) -> Option<u64> {
        if limit.meter == Meter::Bytes as u32 {
            return Some(gcra::charge_q8(limit, self.len));
        }
        let applies = limit.meter == Meter::Packets as u32
            || (limit.meter == Meter::Syns as u32 && self.packet.transport == Transport::TcpSyn)
            || (limit.meter == Meter::Fragments as u32 && self.packet.fragment);
        applies.then_some(limit.cost_fp)
    }
}
