//! Sources that are known to be over a limit, and until when: what most packets of a flood meet.

use ratelimit_common::{
    abi::{LimitSet, Meter, Policy, Reason},
    limit::prefilter,
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
    let name = prefilter::negative_name(hash, policy.generation);
    let negative_entry = tables.load(tables.cell_negative_entry(cell, prefilter::negative_slot(name)));
    if !prefilter::denies(negative_entry, name, now_q8) {
        return None;
    }
    Some(match prefilter::denied_by(negative_entry) {
        Meter::Bytes => Reason::LimitBytes,
        Meter::Packets | Meter::Syns | Meter::Fragments => Reason::LimitPackets,
    })
}

/// The cell that knows of the source's negative entries, if there is a prefilter.
#[inline(always)]
pub(super) fn cell<T: Tables>(tables: &T, set: &LimitSet, request: &Request) -> Option<T::Cell> {
    if set.prefilter_tolerance_q8 == 0 { None } else { tables.cell(prefilter::cell_index(request.hash)) }
}

/// Remembers that every packet of this source will be refused until then, or for as long as a negative entry lives.
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
    let name = prefilter::negative_name(request.hash, policy.generation);
    let meter = if matches!(reason, Reason::LimitBytes) { Meter::Bytes } else { Meter::Packets };
    let negative_entry = prefilter::negative_entry(name, request.now_q8, until_q8, meter);
    // Not for a moment that is as good as now: the word would be written for every packet.
    if prefilter::denies(negative_entry, name, request.now_q8) {
        tables.store(tables.cell_negative_entry(cell, prefilter::negative_slot(name)), negative_entry);
    }
}
