//! Drop events: tells the daemon of a few refused packets, so few that a flood costs nothing more for it.
//!
//! Two things bound the events. A source is reported once in `QUIET_Q8`, so that a flood from one source does not displace all other
//! packets; and each CPU has a budget, for floods in which every packet has another source. Packets that are
//! refused without a look at their buckets are not reported: those of a source that is known to be over a limit, and of untracked sources when nothing is left for them.

use ratelimit_common::{
    abi::{Clock, DropEvent, Event, Policy, Reason, SourceKey, counter::Fate},
    limit::{
        gcra::{MAX_AMOUNT, TIME_FRAC_BITS, ahead_q8},
        prefilter,
    },
};

use crate::{
    budget,
    tables::{CpuBudget, Tables},
};

/// Words that remember which sources were reported lately. The hash of a source chooses its word, which other sources share.
pub const QUIET_SLOTS: u32 = 1024;
/// How long a source is not reported again by one CPU, in 1/256 ns: a tenth of a second.
const QUIET_Q8: u64 = 100_000_000 << TIME_FRAC_BITS;

/// A refused packet, packed into one word: functions of the kernel program pass numbers, and at most five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(u64);

impl Refused {
    /// A refused packet and its reason. The parts must fit: reasons below 64, services as in the table of ports.
    #[inline(always)]
    pub const fn new(reason: Reason, family: u16, port: u16, service: u16, len: u32) -> Self {
        let len = if len as u64 > MAX_AMOUNT { MAX_AMOUNT } else { len as u64 };
        Self(
            reason as u64
                | (family as u64 & 1) << 6
                | len << 7
                | (port as u64) << 32
                | (service as u64) << 48,
        )
    }

    /// The refusal packed into 64 bits, as functions of the kernel program pass it on.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The refusal that [`Self::to_bits`] packed into 64 bits.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    const fn reason(self) -> Reason {
        Reason::from_code(self.0 as u32 & 63)
    }

    const fn family(self) -> u32 {
        self.0 as u32 >> 6 & 1
    }

    const fn len(self) -> u32 {
        self.0 as u32 >> 7
    }

    const fn port(self) -> u32 {
        (self.0 >> 32) as u32 & 0xffff
    }

    const fn service(self) -> u32 {
        (self.0 >> 48) as u32
    }
}

/// The index of the word that remembers when a source was reported.
#[inline(always)]
const fn quiet_slot(hash: u64) -> u32 {
    prefilter::cell_index(hash) / (prefilter::CELLS / QUIET_SLOTS)
}

/// Whether a source would not be reported now, because it was reported a moment ago.
#[inline(always)]
pub(crate) fn is_quiet<T: Tables>(tables: &T, hash: u64, now_q8: u64) -> bool {
    match tables.quiet_until(quiet_slot(hash)) {
        Some(quiet_until) => ahead_q8(tables.load(quiet_until), now_q8) != 0,
        None => true,
    }
}

/// Sends a drop event about a refused packet, if one is due for its source and the CPU's budget has room.
#[inline(always)]
pub fn report<T: Tables>(tables: &T, policy: &Policy, source: SourceKey, refused: Refused, now_q8: u64) {
    let hash = prefilter::hash(source, policy.prefilter.secret);
    let Some(quiet_until) = tables.quiet_until(quiet_slot(hash)) else { return };
    if ahead_q8(tables.load(quiet_until), now_q8) != 0
        || !budget::take(tables, policy, CpuBudget::Reports, now_q8)
    {
        return;
    }
    tables.store(quiet_until, now_q8.wrapping_add(QUIET_Q8));
    let reason = refused.reason();
    let fate = if policy.lenient == 0 { Fate::Decided } else { policy.fate(refused.service(), reason) };
    let told = tables.tell(DropEvent {
        // The precise clock's nanoseconds: time words wrap after two years.
        time_ns: tables.now_ns(Clock::Precise),
        hi: source.hi,
        lo: source.lo,
        reason: reason as u32,
        fate: fate as u32,
        service: refused.service(),
        port: refused.port(),
        len: refused.len(),
        family: refused.family(),
    });
    if !told {
        tables.note(Event::ReportLost);
    }
}

#[cfg(test)]
mod tests;
