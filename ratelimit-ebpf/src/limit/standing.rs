//! The standing of a source: whether its cell or its own entry vouches for a packet. `limit::prefilter` in the common crate has the reasoning.

use ratelimit_common::{
    abi::{Limit, LimitSet, Policy, Reason, service::Party},
    limit::{
        fair,
        gcra::{self, GcraOutcome, SHARED_ROOM_Q8, Start},
        prefilter,
    },
};

use super::{
    entry,
    leaves::Leaves,
    request::PacketCharge,
    sender::tracked_until_q8,
    word::{self, Charging, Unmoved},
};
use crate::{budget, tables::Tables};

/// What vouches for a packet that its source's limits would admit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voucher {
    /// Nothing vouches for the packet: a limit refuses it, or there is no room for an entry.
    Nobody,
    /// Nothing has to vouch for the packet: no limit of the source applies to it.
    Free,
    /// The prefilter cell of the source vouches for the packet.
    Cell,
    /// The source's own entry vouches for the packet.
    Entry,
    /// An entry that is still to be made vouches for the packet.
    Newcomer,
}

/// The standing of a source for one packet.
///
/// A struct whose fields all have a value, rather than an enum: the compiler would let pointers and numbers of different
/// variants share a register, and the verifier refuses arithmetic on such a register.
pub(super) struct Standing<T: Tables> {
    voucher: Voucher,
    /// The reason of the refusal, if nothing vouches for the packet.
    reason: Reason,
    bucket: Option<T::Bucket>,
}

impl<T: Leaves> Standing<T> {
    const FREE: Self = Self { voucher: Voucher::Free, reason: Reason::Conforming, bucket: None };

    #[inline(always)]
    fn refused(reason: Reason) -> Self {
        Self { voucher: Voucher::Nobody, reason, ..Self::FREE }
    }

    /// Evaluates the source's limits.
    #[inline(always)]
    pub(super) fn of(tables: &T, policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Self {
        if set.limit_count == 0 {
            return Self::FREE;
        }
        if set.prefilter_tolerance_q8 == 0 {
            return match tables.bucket(&request.entry()) {
                Some(bucket) => Self::of_entry(tables, policy, set, request, bucket),
                None => Self::of_newcomer(tables, policy, set, request),
            };
        }
        let charge_q8 = request.dearest_q8();
        if charge_q8 == 0 {
            return Self::FREE;
        }
        let cell = prefilter::cell_index(request.hash);
        if prefilter::is_tracked_in(set, tracked_until_q8(tables, cell), request.now_q8)
            && let Some(bucket) = tables.bucket(&request.entry())
        {
            return Self::of_entry(tables, policy, set, request, bucket);
        }
        let Some(cell) = tables.cell(cell) else { return Self::refused(Reason::TableFull) };
        let seen = tables.load(tables.cell_tat(cell));
        let limit = cell_limit(set.prefilter_tolerance_q8);
        match gcra::take_restarting(seen, &limit, request.now_q8, charge_q8, cell_start(set, request.now_q8))
        {
            GcraOutcome::Conforms { .. } => Self { voucher: Voucher::Cell, ..Self::FREE },
            GcraOutcome::Refused => {
                // Sets with other bursts share the cell.
                let most_q8 = limit.tolerance_q8 + SHARED_ROOM_Q8;
                word::settle(
                    tables,
                    tables.cell_tat(cell),
                    seen,
                    request.now_q8,
                    (most_q8, limit.tolerance_q8),
                );
                Self::of_newcomer(tables, policy, set, request)
            }
        }
    }

    #[inline(always)]
    fn of_entry(
        tables: &T,
        policy: &Policy,
        set: &LimitSet,
        request: &PacketCharge,
        bucket: T::Bucket,
    ) -> Self {
        match tables.judge_entry(policy, set, request, bucket) {
            Reason::Conforming => Self { voucher: Voucher::Entry, bucket: Some(bucket), ..Self::FREE },
            reason => Self::refused(reason),
        }
    }

    /// The standing of a source that needs an entry, if this CPU's budget has room for one.
    #[inline(always)]
    fn of_newcomer(tables: &T, policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Self {
        let standing = Self::vouched(set, request);
        if standing.voucher == Voucher::Newcomer && !budget::admits_newcomer(tables, policy, request.now_q8) {
            return Self::refused(Reason::NewSourceBudget);
        }
        standing
    }

    /// The standing of a source that showed a proof: it gets an entry whatever the budget, because nobody can forge the proof.
    #[inline(always)]
    pub(super) fn proven(self, set: &LimitSet, request: &PacketCharge) -> Self {
        let lacks_entry = matches!(self.voucher, Voucher::Cell | Voucher::Newcomer) || self.wants_state();
        if lacks_entry { Self::vouched(set, request) } else { self }
    }

    /// The standing of a source without an entry, if it got one.
    #[inline(always)]
    fn vouched(set: &LimitSet, request: &PacketCharge) -> Self {
        match entry::judge_first(set, request) {
            Reason::Conforming => Self { voucher: Voucher::Newcomer, ..Self::FREE },
            reason => Self::refused(reason),
        }
    }

    /// The reason of the refusal, if the packet is refused.
    #[inline(always)]
    pub(super) fn refusal(&self) -> Option<Reason> {
        if self.voucher == Voucher::Nobody { Some(self.reason) } else { None }
    }

    /// Whether the source is refused not for anything it did, but because there is no room for its entry.
    #[inline(always)]
    pub(super) fn wants_state(&self) -> bool {
        self.voucher == Voucher::Nobody && self.reason.wants_room()
    }

    /// The party of the source: whether it has an entry, and whether it is proven.
    #[inline(always)]
    pub(super) fn party(&self, tables: &T, request: &PacketCharge) -> Party {
        match (self.voucher, self.bucket) {
            (Voucher::Entry, Some(bucket)) => {
                fair::party(tables.load(tables.proven_until(bucket)), request.now_q8)
            }
            _ => Party::Untracked,
        }
    }

    /// Remembers that the source is proven, if it has an entry; a new entry is made with that mark.
    #[inline(always)]
    pub(super) fn vouch(&self, tables: &T, request: &PacketCharge) {
        if let (Voucher::Entry, Some(bucket)) = (self.voucher, self.bucket) {
            tables.store(tables.proven_until(bucket), request.proven_until_q8());
        }
    }

    /// Charges the cell or the entry that vouched; `None` if the entry is still to be made.
    #[inline(always)]
    pub(super) fn charge_existing(
        &self,
        tables: &T,
        set: &LimitSet,
        request: &PacketCharge,
    ) -> Option<Reason> {
        match (self.voucher, self.bucket) {
            (Voucher::Free, _) => Some(Reason::Conforming),
            (Voucher::Cell, _) => Some(charge_cell(tables, set, request)),
            (Voucher::Entry, Some(bucket)) => Some(tables.charge_limits(set, request, bucket)),
            (Voucher::Newcomer, _) => None,
            (Voucher::Nobody | Voucher::Entry, _) => Some(self.reason),
        }
    }
}

#[inline(always)]
fn charge_cell<T: Tables>(tables: &T, set: &LimitSet, request: &PacketCharge) -> Reason {
    let Some(cell) = tables.cell(prefilter::cell_index(request.hash)) else { return Reason::TableFull };
    let limit = cell_limit(set.prefilter_tolerance_q8);
    let charge_q8 = request.dearest_q8();
    let word = tables.cell_tat(cell);
    let start = cell_start(set, request.now_q8);
    match word::charge(tables, word, &limit, request.now_q8, charge_q8, start, Charging::Exchange) {
        Ok(()) => Reason::Conforming,
        // The next packet of this source will read the cell again.
        Err(Unmoved::Refused | Unmoved::Contended) => Reason::Contended,
    }
}

/// A cell stands for all limits of its set, so it owes what the longest limit owes.
#[inline(always)]
fn cell_start(set: &LimitSet, now_q8: u64) -> Start {
    Start { restart_q8: 0, owed_q8: gcra::owed_q8(set, set.longest_tolerance_q8, now_q8) }
}

/// The limit of a cell's bucket. It has the rate of every limit, because all charges are times.
#[inline(always)]
fn cell_limit(tolerance_q8: u64) -> Limit {
    Limit { tolerance_q8, ..Limit::UNUSED }
}
