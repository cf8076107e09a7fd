//! Refusals that are known before any limit is asked.

use ratelimit_common::{
    abi::{Policy, Reason, service::Party},
    limit::prefilter,
};

use super::{negative_cache, sender::Sender, total::Account};
use crate::tables::Tables;

/// What a packet counts as, in one word: functions of the kernel program tell each other numbers, and at most five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(u64);

impl Weight {
    /// A packet for a service, as the table of ports has it, in a frame of so many bytes.
    #[inline(always)]
    pub const fn new(is_tcp: bool, service: u16, len: u64) -> Self {
        let len = if len > u32::MAX as u64 { u32::MAX as u64 } else { len };
        Self(len | (service as u64) << 32 | (is_tcp as u64) << 48)
    }

    /// As a number.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From the number.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    const fn is_tcp(self) -> bool {
        self.0 >> 48 != 0
    }

    const fn service(self) -> u32 {
        (self.0 >> 32) as u32 & 0xffff
    }

    const fn len(self) -> u64 {
        self.0 & u32::MAX as u64
    }
}

/// The reason to refuse a packet for what is known of its source, or of the totals that it would count towards. What most packets of
/// a flood meet.
///
/// The coarse clock decides here. It is behind, so what is refused is refused a moment longer than it must be, and never too short.
#[inline(always)]
pub fn known_refusal<T: Tables>(
    tables: &T,
    policy: &Policy,
    sender: &Sender,
    weight: Weight,
    now_q8: u64,
) -> Option<Reason> {
    let set = &policy.source.set;
    if set.prefilter_tolerance_q8 == 0 {
        return None;
    }
    if prefilter::is_tracked_in(set, sender.tracked_until_q8, now_q8) {
        return negative_cache::check(tables, policy, sender.hash, now_q8);
    }
    // Nobody of this cell is tracked. Not for TCP, which may be answered with a cookie or belong to a connection.
    if weight.is_tcp() { None } else { spent_total(tables, policy, weight.service(), (weight.len(), now_q8)) }
}

/// Which total is known to have nothing left for sources without state.
#[inline(always)]
pub fn spent_total<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (len, now_q8): (u64, u64),
) -> Option<Reason> {
    if let Some(account) = Account::of(tables, policy, service)
        && account.is_spent(tables, len, now_q8, Party::Untracked)
    {
        return Some(Reason::ServiceTotal);
    }
    if let Some(account) = Account::of_host(tables, policy)
        && account.is_spent(tables, len, now_q8, Party::Untracked)
    {
        return Some(Reason::HostTotal);
    }
    None
}

/// Which total is known to have nothing left for anybody, in the order in which totals are charged.
#[inline(always)]
pub fn spent_for_all<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (len, now_q8): (u64, u64),
) -> Option<Reason> {
    if let Some(account) = Account::of_host(tables, policy) {
        if account.is_spent(tables, len, now_q8, Party::Tracked) {
            return Some(Reason::HostTotal);
        }
        // What the host has to say is not known.
        if !account.holds(tables, len, Party::Tracked) {
            return None;
        }
    }
    let account = Account::of(tables, policy, service)?;
    account.is_spent(tables, len, now_q8, Party::Tracked).then_some(Reason::ServiceTotal)
}
