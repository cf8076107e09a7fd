//! Changes one shared word.

use ratelimit_common::{
    abi::{Clock, Limit, Meter, Reason},
    limit::gcra::{self, GcraOutcome, Start, ahead_q8},
};

use crate::tables::Tables;

/// Attempts to store one word. Each failed attempt means that another CPU succeeded, so the bucket is charged
/// anyway; after the last attempt one packet is lost, which counts as not conforming.
const ATTEMPTS: usize = 4;

/// Why a word was not changed.
pub(super) enum Unmoved {
    /// The bucket has no tokens left.
    Refused,
    /// Other CPUs won every exchange.
    Contended,
}

/// How a bucket in use is charged. The compiler of policies knows which buckets have room for additions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Charging {
    Exchange,
    Add,
}

impl Charging {
    /// The way of charging, by a bit of `adds` in the policy.
    #[inline(always)]
    pub(super) fn by(adds: u64, bit: u64) -> Self {
        if adds & bit == 0 { Self::Exchange } else { Self::Add }
    }
}

/// Charges a bucket that was not evaluated before, and returns whether it had enough. A refusal only reads, unless the bucket was charged under an earlier limit.
#[inline(always)]
pub fn take<T: Tables>(tables: &T, word: T::Word, limit: &Limit, now_q8: u64, charge_q8: u64) -> bool {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(word);
        match gcra::take(seen, limit, now_q8, charge_q8) {
            GcraOutcome::Refused => {
                settle(tables, word, seen, now_q8, (limit.tolerance_q8, limit.tolerance_q8));
                return false;
            }
            GcraOutcome::Conforms { tat_q8 } => {
                if tables.compare_exchange(word, seen, tat_q8) {
                    return true;
                }
            }
        }
    }
    false
}

/// Makes a bucket that refused exactly empty if it was charged under an earlier limit, and returns whether it was. `most_q8` is how far packets under the limit in force
/// move the word ahead at most. See [`gcra::settled_q8`].
#[inline(always)]
pub(super) fn settle<T: Tables>(
    tables: &T,
    word: T::Word,
    seen_q8: u64,
    now_q8: u64,
    (most_q8, tolerance_q8): (u64, u64),
) -> bool {
    if ahead_q8(seen_q8, now_q8) <= most_q8 {
        return false;
    }
    // The coarse clock is behind by more than a small burst takes to fill, and another CPU may have read it later.
    let precise_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    let settled_q8 = gcra::settled_q8(seen_q8, most_q8, tolerance_q8, precise_q8);
    if settled_q8 == seen_q8 {
        return false;
    }
    // Losing this race is harmless: another CPU has settled the bucket, or charged it since.
    tables.compare_exchange(word, seen_q8, settled_q8);
    true
}

/// Charges a bucket that conformed a moment ago.
#[inline(always)]
pub(super) fn charge<T: Tables>(
    tables: &T,
    word: T::Word,
    limit: &Limit,
    now_q8: u64,
    charge_q8: u64,
    start: Start,
    charging: Charging,
) -> Result<(), Unmoved> {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(word);
        let ahead = ahead_q8(seen, now_q8);
        if charging == Charging::Add && ahead > start.owed_q8 {
            if ahead + charge_q8 > limit.tolerance_q8 {
                return Err(Unmoved::Refused);
            }
            tables.add(word, charge_q8);
            return Ok(());
        }
        let outcome = gcra::take_restarting(seen, limit, now_q8, charge_q8, start);
        let GcraOutcome::Conforms { tat_q8 } = outcome else { return Err(Unmoved::Refused) };
        if tables.compare_exchange(word, seen, tat_q8) {
            return Ok(());
        }
    }
    Err(Unmoved::Contended)
}

/// The reason of a refusal by a limit.
#[inline(always)]
pub(super) fn refusal(limit: &Limit) -> Reason {
    refusal_of(limit.meter)
}

/// The reason of a refusal by a limit in a meter.
#[inline(always)]
pub fn refusal_of(meter: u32) -> Reason {
    if meter == Meter::Bytes as u32 {
        Reason::LimitBytes
    } else if meter == Meter::Syns as u32 {
        Reason::LimitSyns
    } else if meter == Meter::Fragments as u32 {
        Reason::LimitFragments
    } else {
        Reason::LimitPackets
    }
}
