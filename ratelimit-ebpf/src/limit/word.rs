//! Moving one shared word.

use ratelimit_common::{
    abi::{Limit, Meter, Reason},
    limit::gcra::{self, GcraOutcome, Start, ahead_q8},
};

use crate::tables::Tables;

/// Attempts to store one word. Each failed attempt means another CPU succeeded, so the bucket moves on
/// regardless; what is lost after the last is one packet, which counts as not conforming.
const ATTEMPTS: usize = 4;

/// Why a word was not moved.
pub(super) enum Unmoved {
    /// The tokens are gone.
    Refused,
    /// Other CPUs were always faster.
    Contended,
}

/// How a bucket that is in use is charged. The compiler of policies knows for which there is room to add.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Charging {
    Exchange,
    Add,
}

impl Charging {
    /// As the policy has it for a bit of its `adds`.
    #[inline(always)]
    pub(super) fn by(adds: u64, bit: u64) -> Self {
        if adds & bit == 0 { Self::Exchange } else { Self::Add }
    }
}

/// Takes from a bucket that nobody has looked at, and says whether there was enough. One that was overdrawn is settled; otherwise what is
/// refused is only read.
#[inline(always)]
pub fn take<T: Tables>(tables: &T, word: T::Word, limit: &Limit, now_q8: u64, charge_q8: u64) -> bool {
    for _ in 0..ATTEMPTS {
        let seen = tables.load(word);
        match gcra::take(seen, limit, now_q8, charge_q8) {
            GcraOutcome::Refused => return false,
            GcraOutcome::Overdrawn { tat_q8 } => {
                tables.compare_exchange(word, seen, tat_q8);
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

/// The reason of a limit's refusal.
#[inline(always)]
pub(super) fn refusal(limit: &Limit) -> Reason {
    refusal_of(limit.meter)
}

/// The reason of a refusal by a limit that counts this.
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
