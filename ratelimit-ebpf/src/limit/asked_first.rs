//! Whether prefixes decide before the source of a packet is looked up, and which sources may be proven, for which prefixes keep a part back.

use ratelimit_common::{
    abi::Policy,
    limit::{
        fair,
        prefilter::{self, REMEMBERED_BIT},
    },
};

use super::request::PacketCharge;
use crate::tables::Tables;

/// Whether prefixes may decide before the source of a packet for a service is looked up.
#[inline(always)]
pub fn may_be_asked(policy: &Policy, service: u32) -> bool {
    policy.aggregation.packet_q8 != 0
        && policy.host_total_count == 0
        && policy.service(service).is_none_or(|(_, service)| service.total_count == 0)
}

/// Whether prefixes decide before the source of a request is looked up: then their refusals need not be remembered for the source.
#[inline(always)]
pub(super) fn answers_first<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge) -> bool {
    may_be_asked(policy, request.service as u32) && !may_be_proven(tables, request.hash, request.now_q8)
}

/// Whether some source in the cell of this hash may be proven.
#[inline(always)]
pub fn may_be_proven<T: Tables>(tables: &T, hash: u64, now_q8: u64) -> bool {
    let cell = prefilter::cell_index(hash);
    tables.cell_bits(cell) & REMEMBERED_BIT != 0 && fair::may_be_proven(tables.proven_mark(cell), now_q8)
}

/// Remembers that a source of this hash is proven, before it has an entry with that mark: it must not be refused the part that a prefix keeps back for it.
#[inline(always)]
pub fn remember_proven<T: Tables>(tables: &T, hash: u64, now_q8: u64) {
    let cell = prefilter::cell_index(hash);
    tables.mark_proven(cell, now_q8);
    tables.something_remembered(cell);
}
