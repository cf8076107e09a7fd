//! Sources that are known to be over a limit, and until when: what most packets of a flood meet.

use ratelimit_common::{
    abi::{LimitSet, Meter, Policy, Reason},
    limit::gate,
};

use super::request::Request;
use crate::tables::Tables;

/// The reason to refuse the packet because its source is over a limit anyway. Reads one word of its cell.
#[inline(always)]
pub(super) fn check<T: Tables>(
    tables: &T,
    policy: &Policy,
    cell: T::Cell,
    hash: u64,
    now_q8: u64,
) -> Option<Reason> {
    let name = gate::denial_name(hash, policy.generation);
    let denial = tables.load(tables.cell_denial(cell, gate::denial_slot(name)));
    if !gate::denies(denial, name, now_q8) {
        return None;
    }
    Some(match gate::denied_by(denial) {
        Meter::Bytes => Reason::LimitBytes,
        Meter::Packets | Meter::Syns | Meter::Fragments => Reason::LimitPackets,
    })
}

/// The cell that knows of the source's denials, if there is a gate.
#[inline(always)]
pub(super) fn cell<T: Tables>(tables: &T, set: &LimitSet, request: &Request) -> Option<T::Cell> {
    if set.gate_tolerance_q8 == 0 { None } else { tables.cell(gate::cell_index(request.hash)) }
}

/// Remembers that every packet of this source will be refused until then, or for as long as a denial lives.
#[inline(always)]
pub(super) fn remember<T: Tables>(
    tables: &T,
    policy: &Policy,
    set: &LimitSet,
    request: &Request,
    until_q8: u64,
    reason: Reason,
) {
    let Some(cell) = cell(tables, set, request) else { return };
    let name = gate::denial_name(request.hash, policy.generation);
    let meter = if matches!(reason, Reason::LimitBytes) { Meter::Bytes } else { Meter::Packets };
    let denial = gate::denial(name, request.now_q8, until_q8, meter);
    // Not for a moment that is as good as now: the word would be written for every packet.
    if gate::denies(denial, name, request.now_q8) {
        tables.store(tables.cell_denial(cell, gate::denial_slot(name)), denial);
    }
}
