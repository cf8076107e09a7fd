//! Where a source stands: with its cell, or with an entry of its own. `limit::gate` in the common crate has the reasoning.

use ratelimit_common::{
    abi::{Bucket, Event, Limit, MAX_LIMITS, Reason, service::Party},
    limit::{
        gate,
        gcra::{self, Outcome},
    },
};

use super::{
    denial,
    entry::{self, Refused},
    request::Request,
    word::{self, Unmoved},
};
use crate::tables::{InsertError, Tables};

/// Who vouches for a packet that its source's limits would admit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voucher {
    /// Nobody: a limit refuses it, or there is no room to keep an account.
    Nobody,
    /// Nobody has to: no limit of the source applies to it.
    Free,
    /// The cell.
    Cell,
    /// An entry, with the cell in front of it.
    Entry,
    /// An entry that is still to be made.
    Newcomer,
}

/// Where a source stands.
///
/// A struct whose fields all have a value, rather than an enum: the compiler would let pointers and numbers of different
/// variants share a register, and the verifier refuses arithmetic on such a register.
pub(super) struct Standing<T: Tables> {
    voucher: Voucher,
    /// Why nobody vouches.
    reason: Reason,
    cell: Option<T::Cell>,
    bucket: Option<T::Bucket>,
    /// The first bucket of a newcomer.
    fresh: Bucket,
    /// What the cell is charged.
    charge_q8: u64,
}

impl<T: Tables> Standing<T> {
    const FREE: Self = Self {
        voucher: Voucher::Free,
        reason: Reason::Conforming,
        cell: None,
        bucket: None,
        fresh: Bucket { tat_q8: [0; MAX_LIMITS] },
        charge_q8: 0,
    };

    #[inline(always)]
    fn refused(reason: Reason) -> Self {
        Self { voucher: Voucher::Nobody, reason, ..Self::FREE }
    }

    /// Evaluates the source's limits.
    #[inline(always)]
    pub(super) fn of(tables: &T, request: &Request<'_>) -> Self {
        let gate = &request.policy.gate;
        if gate.tolerance_q8 == 0 {
            return match tables.bucket(&request.key) {
                Some(bucket) => of_entry(tables, bucket, None, request),
                None => newcomer(tables, None, request),
            };
        }
        let Some(charge_q8) = dearest_charge(request) else { return Self::FREE };
        let Some(cell) = tables.cell(gate::cell_index(request.hash)) else {
            return Self::refused(Reason::TableFull);
        };
        if gate::is_tracked(tables.load(tables.cell_tracked_until(cell)), request.now_q8)
            && let Some(bucket) = tables.bucket(&request.key)
        {
            return of_entry(tables, bucket, Some(cell), request);
        }
        let seen = tables.load(tables.cell_tat(cell));
        match gcra::take(seen, &cell_limit(gate.tolerance_q8), request.now_q8, charge_q8) {
            Outcome::Conforms { .. } => {
                Self { voucher: Voucher::Cell, cell: Some(cell), charge_q8, ..Self::FREE }
            }
            Outcome::Refused => newcomer(tables, Some(cell), request),
            Outcome::Overdrawn { tat_q8 } => {
                tables.compare_exchange(tables.cell_tat(cell), seen, tat_q8);
                newcomer(tables, Some(cell), request)
            }
        }
    }

    /// Why the packet is refused, if it is.
    #[inline(always)]
    pub(super) fn refusal(&self) -> Option<Reason> {
        if self.voucher == Voucher::Nobody { Some(self.reason) } else { None }
    }

    /// Whether the source is refused not for anything it did, but because there is no room to keep an account of it.
    #[inline(always)]
    pub(super) fn wants_state(&self) -> bool {
        matches!(self.refusal(), Some(Reason::NewSourceBudget | Reason::TableFull))
    }

    /// The standing of a source that something else speaks for, although it has no state yet: it gets some whatever the
    /// budget, because nobody can forge it.
    #[inline(always)]
    pub(super) fn vouched(tables: &T, request: &Request<'_>) -> Self {
        let gated = request.policy.gate.tolerance_q8 != 0;
        let cell = if gated { tables.cell(gate::cell_index(request.hash)) } else { None };
        match entry::open(request) {
            Ok(fresh) => Self { voucher: Voucher::Newcomer, cell, fresh, ..Self::FREE },
            Err(reason) => Self::refused(reason),
        }
    }

    /// Whether the source has state: strangers are the first to go when a service is full.
    #[inline(always)]
    pub(super) fn party(&self) -> Party {
        if self.voucher == Voucher::Entry { Party::Known } else { Party::Stranger }
    }

    /// Charges whoever vouched.
    #[inline(always)]
    pub(super) fn charge(&self, tables: &T, request: &Request<'_>) -> Reason {
        match (self.voucher, self.cell, self.bucket) {
            (Voucher::Free, ..) => Reason::Conforming,
            (Voucher::Cell, Some(cell), _) => {
                let limit = cell_limit(request.policy.gate.tolerance_q8);
                match word::charge(tables, tables.cell_tat(cell), &limit, request.now_q8, self.charge_q8, 0) {
                    Ok(()) => Reason::Conforming,
                    // The next packet of this source will find the cell as it is now.
                    Err(Unmoved::Refused | Unmoved::Contended) => Reason::Contended,
                }
            }
            (Voucher::Entry, cell, Some(bucket)) => charge_entry(tables, bucket, cell, request),
            (Voucher::Newcomer, cell, _) => promote(tables, &self.fresh, cell, request),
            (Voucher::Nobody | Voucher::Cell | Voucher::Entry, ..) => self.reason,
        }
    }
}

/// A cell's bucket has the rate of every limit, because all are charged as time.
#[inline(always)]
fn cell_limit(tolerance_q8: u64) -> Limit {
    Limit { tolerance_q8, ..Limit::UNUSED }
}

/// What the packet costs under the limit that it costs most: enough for a cell to answer for all of them.
#[inline(always)]
fn dearest_charge(request: &Request<'_>) -> Option<u64> {
    let mut dearest = None;
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        dearest = dearest.max(request.charge_q8(limit));
    }
    dearest
}

#[inline(always)]
fn of_entry<T: Tables>(
    tables: &T,
    bucket: T::Bucket,
    cell: Option<T::Cell>,
    request: &Request<'_>,
) -> Standing<T> {
    match entry::evaluate(tables, bucket, request) {
        Ok(()) => Standing { voucher: Voucher::Entry, cell, bucket: Some(bucket), ..Standing::FREE },
        Err(Refused { reason, until_q8 }) => {
            if let (Some(cell), Some(until_q8)) = (cell, until_q8) {
                denial::remember(tables, cell, request, until_q8, reason);
            }
            Standing::refused(reason)
        }
    }
}

/// A source that needs an entry, if this CPU may still make one.
#[inline(always)]
fn newcomer<T: Tables>(tables: &T, cell: Option<T::Cell>, request: &Request<'_>) -> Standing<T> {
    let fresh = match entry::open(request) {
        Ok(fresh) => fresh,
        Err(reason) => return Standing::refused(reason),
    };
    let Some(word) = tables.new_sources() else { return Standing::refused(Reason::NewSourceBudget) };
    let budget = &request.policy.gate.new_sources;
    match gcra::take(tables.load(word), budget, request.now_q8, budget.cost_fp) {
        Outcome::Conforms { .. } => Standing { voucher: Voucher::Newcomer, cell, fresh, ..Standing::FREE },
        Outcome::Overdrawn { tat_q8 } => {
            tables.store(word, tat_q8);
            Standing::refused(Reason::NewSourceBudget)
        }
        Outcome::Refused => Standing::refused(Reason::NewSourceBudget),
    }
}

#[inline(always)]
fn charge_entry<T: Tables>(
    tables: &T,
    bucket: T::Bucket,
    cell: Option<T::Cell>,
    request: &Request<'_>,
) -> Reason {
    if let Err(reason) = entry::charge(tables, bucket, request) {
        return reason;
    }
    if let Some(cell) = cell {
        keep_tracked(tables, cell, request);
    }
    Reason::Conforming
}

#[inline(always)]
fn promote<T: Tables>(tables: &T, bucket: &Bucket, cell: Option<T::Cell>, request: &Request<'_>) -> Reason {
    // First the cell: an entry behind a cell that does not know of it would be a second bucket.
    if let Some(cell) = cell {
        keep_tracked(tables, cell, request);
    }
    if let Some(word) = tables.new_sources() {
        let budget = &request.policy.gate.new_sources;
        let taken = gcra::take(tables.load(word), budget, request.now_q8, budget.cost_fp);
        if let Outcome::Conforms { tat_q8 } = taken {
            tables.store(word, tat_q8);
        }
    }
    match tables.insert(&request.key, bucket) {
        Ok(()) => {
            tables.note(Event::Promoted);
            Reason::Conforming
        }
        Err(InsertError::Full) => Reason::TableFull,
        // Another CPU was first, or an entry from before the cell was last tracked: it restarts by itself.
        Err(InsertError::Exists) => match tables.bucket(&request.key) {
            Some(bucket) => match entry::evaluate(tables, bucket, request) {
                Ok(()) => charge_entry(tables, bucket, cell, request),
                Err(refused) => refused.reason,
            },
            None => Reason::TableFull,
        },
    }
}

/// Sees to it that the cell is tracked until every entry behind it is full again.
#[inline(always)]
fn keep_tracked<T: Tables>(tables: &T, cell: T::Cell, request: &Request<'_>) {
    let word = tables.cell_tracked_until(cell);
    let longest = request.policy.source.longest_tolerance_q8;
    if let Some(until) = gate::track(tables.load(word), request.now_q8, longest) {
        tables.store(word, until);
    }
}
