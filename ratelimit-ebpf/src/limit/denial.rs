//! Sources that are known to be over a limit, and until when: what most packets of a flood meet.

use ratelimit_common::{abi::Reason, limit::gate};

use super::{request::Request, word};
use crate::tables::Tables;

/// Whether the packet's source is over a limit anyway. Reads one word of its cell.
#[inline(always)]
pub(super) fn holds<T: Tables>(tables: &T, request: &Request<'_>) -> bool {
    if request.policy.gate.tolerance_q8 == 0 {
        return false;
    }
    let Some(cell) = tables.cell(gate::cell_index(request.hash)) else { return false };
    let name = name(request);
    gate::denies(tables.load(tables.cell_denial(cell, gate::denial_slot(name))), name, request.now_q8)
}

/// Which limit it was is not remembered; the first is the one that nearly always decides.
#[inline(always)]
pub(super) fn reason(request: &Request<'_>) -> Reason {
    request.limit(0).map_or(Reason::LimitPackets, word::refusal)
}

/// Remembers that every packet of this source will be refused until then.
#[inline(always)]
pub(super) fn remember<T: Tables>(tables: &T, cell: T::Cell, request: &Request<'_>, until_q8: u64) {
    let name = name(request);
    let denial = gate::denial(name, until_q8);
    // Not for a moment that is as good as now: the word would be written for every packet.
    if gate::denies(denial, name, request.now_q8) {
        tables.store(tables.cell_denial(cell, gate::denial_slot(name)), denial);
    }
}

#[inline(always)]
fn name(request: &Request<'_>) -> u64 {
    gate::denial_name(request.hash, request.policy.generation)
}
