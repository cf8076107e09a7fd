//! Whose packet it is, as far as limits can tell sources apart.

use ratelimit_common::{
    abi::{Policy, SourceKey},
    limit::gate,
};

use crate::packet::{Address, Family, Packet};

/// The source of a packet: its address, cut to the prefix that the policy takes for one source.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) key: SourceKey,
    /// Where it belongs in the gate.
    pub(super) hash: u64,
}

impl Sender {
    #[inline(always)]
    pub(super) fn of(policy: &Policy, packet: &Packet) -> Self {
        let source = &policy.source;
        let Address { family, key } = packet.source;
        let key = match family {
            Family::V4 => SourceKey { hi: key.hi, lo: key.lo & source.v4_mask },
            Family::V6 => SourceKey { hi: key.hi & source.v6_mask_hi, lo: key.lo & source.v6_mask_lo },
        };
        Self { key, hash: gate::hash(key, policy.gate.secret) }
    }
}
