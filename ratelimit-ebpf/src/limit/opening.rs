//! Makes an entry for a source.

use ratelimit_common::abi::{Bucket, Event, LimitSet, Policy, Reason};

use super::{entry, leaves::Leaves, request::PacketCharge};
use crate::{
    budget,
    tables::{CpuBudget, InsertError},
};

/// Enters a source into the table, charged for its packet.
#[inline(always)]
pub fn open<T: Leaves>(tables: &T, policy: &Policy, set: &LimitSet, request: &PacketCharge) -> Reason {
    let bucket = match first(set, request) {
        Ok(bucket) => bucket,
        Err(reason) => return reason,
    };
    // The cell is tracked first: an entry behind a cell that is not tracked would be a second bucket.
    entry::keep_tracked(tables, set, request);
    // A source that was vouched for gets its entry even when nothing is left of the budget.
    budget::take(tables, policy, CpuBudget::Newcomers, request.now_q8);
    match tables.insert(&request.entry(), &bucket) {
        Ok(()) => {
            tables.note(Event::Promoted);
            if set.owed_q8 == 0 {
                return Reason::Conforming;
            }
        }
        Err(InsertError::Full) => return Reason::TableFull,
        // Another CPU was first, or the entry is from before the cell was last tracked: it restarts by itself.
        Err(InsertError::Exists) => {}
    }
    match tables.bucket(&request.entry()) {
        Some(bucket) => match tables.judge_entry(policy, set, request, bucket) {
            Reason::Conforming => tables.charge_limits(set, request, bucket),
            reason => reason,
        },
        None => Reason::TableFull,
    }
}

/// The first bucket of a source: full, less what its cell may have given it, less this packet; if the source owes something, the packet is charged
/// after the entry is made.
#[inline(always)]
fn first(set: &LimitSet, request: &PacketCharge) -> Result<Bucket, Reason> {
    match entry::judge_first(set, request) {
        Reason::Conforming => {
            let start = request.now_q8.wrapping_add(set.prefilter_tolerance_q8);
            let tat_q8 = request
                .charges_q8
                .map(|charge| start.wrapping_add(if set.owed_q8 == 0 { charge } else { 0 }));
            Ok(Bucket { tat_q8, proven_until_q8: request.proven_until_q8() })
        }
        reason => Err(reason),
    }
}
