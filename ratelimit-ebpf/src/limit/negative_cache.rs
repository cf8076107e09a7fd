//! Sources that are known to be over a limit, and until when: what most packets of a flood meet.

use ratelimit_common::{
    abi::{LimitSet, Policy, Reason},
    limit::{
        gcra,
        prefilter::{self, LONGEST_NEGATIVE_ENTRY_Q8, NegativeCause},
    },
};

use super::{request::Request, sender::Sender};
use crate::tables::Tables;

/// What is remembered of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A limit of its own refuses it, for this reason.
    Limited(Reason),
    /// It is on the block list.
    Blocked,
    /// It keeps to its own limits, and a total refused it.
    Totalled,
}

/// What is remembered of a source that is refused. Reads one word of its cell.
#[inline(always)]
pub fn known<T: Tables>(tables: &T, policy: &Policy, sender: &Sender, now_q8: u64) -> Option<Known> {
    let negative_entry = live(tables, policy, sender.hash, now_q8)?;
    Some(match prefilter::denied_by(negative_entry) {
        NegativeCause::Packets => Known::Limited(Reason::LimitPackets),
        NegativeCause::Bytes => Known::Limited(Reason::LimitBytes),
        NegativeCause::Blocked => Known::Blocked,
        NegativeCause::Total => Known::Totalled,
    })
}

/// The reason to refuse the packet because its source is over a limit anyway. Lists and totals are asked themselves by who asks here.
#[inline(always)]
pub(super) fn check<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<Reason> {
    let negative_entry = live(tables, policy, hash, now_q8)?;
    let cause = prefilter::denied_by(negative_entry);
    if cause as u64 > NegativeCause::Bytes as u64 {
        return None;
    }
    Some(if matches!(cause, NegativeCause::Bytes) { Reason::LimitBytes } else { Reason::LimitPackets })
}

/// The negative entry of a source, if it has one that is not over.
#[inline(always)]
fn live<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> Option<u64> {
    let cell = tables.cell(prefilter::cell_index(hash))?;
    let name = prefilter::negative_name(hash, policy.generation);
    let negative_entry = tables.load(tables.cell_negative_entry(cell, prefilter::negative_slot(name)));
    prefilter::denies(negative_entry, name, now_q8).then_some(negative_entry)
}

/// Remembers that a total refused a source with state that keeps to its own limits, for as long as a negative entry lives.
#[inline(always)]
pub(super) fn remember_total<T: Tables>(tables: &T, policy: &Policy, request: &Request) {
    let Some(cell) = cell(tables, &policy.source.set, request) else { return };
    let name = prefilter::negative_name(request.hash, policy.generation);
    let until_q8 = request.now_q8.wrapping_add(LONGEST_NEGATIVE_ENTRY_Q8);
    let negative_entry = prefilter::negative_entry(name, request.now_q8, until_q8, NegativeCause::Total);
    tables.store(tables.cell_negative_entry(cell, prefilter::negative_slot(name)), negative_entry);
}

/// Remembers that a source is on the block list until then, or for as long as a negative entry lives.
#[inline(always)]
pub fn remember_block<T: Tables>(tables: &T, policy: &Policy, sender: &Sender, now_ns: u64, until_ns: u64) {
    let now_q8 = gcra::time_q8(now_ns);
    let Some(cell) = tables.cell(prefilter::cell_index(sender.hash)) else { return };
    let name = prefilter::negative_name(sender.hash, policy.generation);
    // A time word would wrap.
    let left_ns = until_ns.saturating_sub(now_ns).min(LONGEST_NEGATIVE_ENTRY_Q8 >> gcra::TIME_FRAC_BITS);
    let until_q8 = now_q8.wrapping_add(gcra::time_q8(left_ns));
    let negative_entry = prefilter::negative_entry(name, now_q8, until_q8, NegativeCause::Blocked);
    tables.store(tables.cell_negative_entry(cell, prefilter::negative_slot(name)), negative_entry);
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
    let cause =
        if matches!(reason, Reason::LimitBytes) { NegativeCause::Bytes } else { NegativeCause::Packets };
    let negative_entry = prefilter::negative_entry(name, request.now_q8, until_q8, cause);
    // Not for a moment that is as good as now: the word would be written for every packet.
    if prefilter::denies(negative_entry, name, request.now_q8) {
        tables.store(tables.cell_negative_entry(cell, prefilter::negative_slot(name)), negative_entry);
    }
}
