//! The exact buckets of one source.

use ratelimit_common::{
    abi::{Bucket, Limit, MAX_LIMITS, Meter, Reason},
    limit::gcra::{self, Outcome},
};

use super::{
    request::Request,
    word::{self, Unmoved, refusal},
};
use crate::tables::Tables;

/// Smallest frame that has a source. What is refused for it is refused for every other.
const SMALLEST_FRAME: u64 = 34;

/// A refusal by an exact bucket.
pub(super) struct Refused {
    pub(super) reason: Reason,
    /// Until when every packet of the source would be refused; `None` if that depends on the packet.
    pub(super) until_q8: Option<u64>,
}

/// The first bucket of a source: full, less what its cell may have given it, less this packet.
#[inline(always)]
pub(super) fn open(request: &Request<'_>) -> Result<Bucket, Reason> {
    let restart = request.policy.gate.tolerance_q8;
    let mut bucket = Bucket { tat_q8: [request.now_q8.wrapping_add(restart); MAX_LIMITS] };
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        match gcra::take_restarting(request.now_q8, limit, request.now_q8, charge, restart) {
            Outcome::Conforms { tat_q8 } => bucket.tat_q8[index] = tat_q8,
            Outcome::Refused | Outcome::Overdrawn { .. } => return Err(refusal(limit)),
        }
    }
    Ok(bucket)
}

/// Whether all limits would admit the packet. Writes nothing, but to settle an old debt.
#[inline(always)]
pub(super) fn evaluate<T: Tables>(
    tables: &T,
    bucket: T::Bucket,
    request: &Request<'_>,
) -> Result<(), Refused> {
    let restart = request.policy.gate.tolerance_q8;
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        let word = tables.bucket_word(bucket, index);
        let seen = tables.load(word);
        match gcra::take_restarting(seen, limit, request.now_q8, charge, restart) {
            Outcome::Conforms { .. } => {}
            Outcome::Refused => {
                return Err(Refused { reason: refusal(limit), until_q8: refused_until(seen, limit) });
            }
            Outcome::Overdrawn { tat_q8 } => {
                // Losing this race is fine: somebody else has settled the bucket.
                tables.compare_exchange(word, seen, tat_q8);
                return Err(Refused { reason: refusal(limit), until_q8: None });
            }
        }
    }
    Ok(())
}

/// Charges all limits.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, bucket: T::Bucket, request: &Request<'_>) -> Result<(), Reason> {
    let restart = request.policy.gate.tolerance_q8;
    for index in 0..MAX_LIMITS {
        let Some(limit) = request.limit(index) else { break };
        let Some(charge) = request.charge_q8(limit) else { continue };
        let word = tables.bucket_word(bucket, index);
        match word::charge(tables, word, limit, request.now_q8, charge, restart) {
            Ok(()) => {}
            Err(Unmoved::Refused) => return Err(refusal(limit)),
            Err(Unmoved::Contended) => return Err(Reason::Contended),
        }
    }
    Ok(())
}

/// When a bucket that refused will first admit the smallest frame.
#[inline(always)]
fn refused_until(tat_q8: u64, limit: &Limit) -> Option<u64> {
    if limit.meter == Meter::Syns as u32 || limit.meter == Meter::Fragments as u32 {
        return None;
    }
    let smallest = if limit.meter == Meter::Bytes as u32 {
        gcra::charge_q8(limit, SMALLEST_FRAME)
    } else {
        limit.cost_fp
    };
    Some(tat_q8.wrapping_add(smallest).wrapping_sub(limit.tolerance_q8))
}
