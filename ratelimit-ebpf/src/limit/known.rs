//! Refusals that are known before any limit is evaluated.

use ratelimit_common::{
    abi::{Policy, Reason, service::Party},
    limit::{gcra, prefilter},
};

use super::{
    clients::{note_scarcity, unless_known},
    negative_cache,
    sender::Sender,
    spent_note::{SpentFor, note_down, noted},
    total::TotalView,
};
use crate::tables::Tables;

/// The properties of a packet that limits depend on, packed into one word: functions of the kernel program pass numbers, and at most five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(u64);

impl Weight {
    /// The weight of a packet for a service (a number as in the table of ports), in a frame of `len` bytes.
    #[inline(always)]
    pub const fn new(is_tcp: bool, service: u16, len: u64) -> Self {
        let len = if len > u32::MAX as u64 { u32::MAX as u64 } else { len };
        Self(len | (service as u64) << 32 | (is_tcp as u64) << 48)
    }

    /// The weight as a number.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The weight that [`Self::to_bits`] made a number of.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    const fn is_tcp(self) -> bool {
        self.0 >> 48 != 0
    }

    pub(super) const fn service(self) -> u32 {
        (self.0 >> 32) as u32 & 0xffff
    }

    pub(super) const fn len(self) -> u64 {
        self.0 & u32::MAX as u64
    }
}

/// The reason to refuse a packet for what is known about its source, or about the totals of its service and of the host. Most packets of
/// a flood end here.
///
/// The coarse clock decides. It is behind, so a refusal lasts a moment longer than it must, and never too short.
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
    // No source of this cell is tracked. TCP is left out: it may be answered with a cookie or belong to a connection.
    if weight.is_tcp() {
        return None;
    }
    let reason = spent_total(tables, policy, weight.service(), (weight.len(), now_q8))?;
    let now_ns = now_q8 >> gcra::TIME_FRAC_BITS;
    unless_known(tables, policy, weight.service(), sender.hash, now_ns, reason)
}

/// The reason of the total that is known to have nothing left for untracked sources.
#[inline(always)]
pub(super) fn spent_total<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (len, now_q8): (u64, u64),
) -> Option<Reason> {
    if let Some(view) = TotalView::of(tables, policy, service)
        && view.is_spent(tables, len, now_q8, Party::Untracked)
    {
        return Some(Reason::ServiceTotal);
    }
    if let Some(view) = TotalView::of_host(tables, policy)
        && view.is_spent(tables, len, now_q8, Party::Untracked)
    {
        return Some(Reason::HostTotal);
    }
    None
}

/// The answer of `spent_total`, by this CPU's note of its last one: most packets of a spoofed flood end here.
#[inline(always)]
pub fn spent_total_noted<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (len, now_ns): (u64, u64),
) -> Option<Reason> {
    if let Some(reason) = noted(tables, SpentFor::Untracked, policy, service, now_ns) {
        return Some(reason);
    }
    let now_q8 = gcra::time_q8(now_ns);
    // Only the total that is charged first is noted: for another one it would not be known that the first still has something left.
    let (view, why) = match TotalView::of(tables, policy, service) {
        Some(view) => (view, Reason::ServiceTotal),
        None => (TotalView::of_host(tables, policy)?, Reason::HostTotal),
    };
    let Some(until_q8) = view.spent_until(tables, len, now_q8, Party::Untracked) else {
        return spent_total(tables, policy, service, (len, now_q8));
    };
    note_down(tables, SpentFor::Untracked, policy, service, (&view, until_q8, why), now_ns);
    note_scarcity(tables, now_ns);
    Some(why)
}

/// What this CPU knows of the totals by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Some total has nothing left.
    Spent(Reason),
    /// No total is known to have nothing left.
    Left,
    /// This CPU knows too little to say.
    Nothing,
}

/// Whether a total has nothing left for a source with an entry, in the order in which totals are charged. The one that is charged first is noted down.
#[inline(always)]
pub fn spent_for_tracked<T: Tables>(
    tables: &T,
    policy: &Policy,
    service: u32,
    (len, now_ns): (u64, u64),
) -> Known {
    let now_q8 = gcra::time_q8(now_ns);
    let host = TotalView::of_host(tables, policy);
    if let Some(view) = &host {
        if let Some(until_q8) = view.spent_for_tracked_until(tables, len, now_q8) {
            let why = Reason::HostTotal;
            note_down(tables, SpentFor::Tracked, policy, service, (view, until_q8, why), now_ns);
            return Known::Spent(why);
        }
        if !view.holds(tables, len, Party::Untracked) {
            return Known::Nothing;
        }
    }
    let Some(view) = TotalView::of(tables, policy, service) else { return Known::Left };
    let Some(until_q8) = view.spent_for_tracked_until(tables, len, now_q8) else { return Known::Left };
    if host.is_none() {
        let why = Reason::ServiceTotal;
        note_down(tables, SpentFor::Tracked, policy, service, (&view, until_q8, why), now_ns);
    }
    Known::Spent(Reason::ServiceTotal)
}

/// Whether this CPU knows by its own words that the total of the host has enough for a packet of an untracked source.
#[inline(always)]
pub fn host_holds<T: Tables>(tables: &T, policy: &Policy, len: u64) -> bool {
    TotalView::of_host(tables, policy).is_none_or(|view| view.holds(tables, len, Party::Untracked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_has_the_length_the_service_and_the_protocol_of_a_packet() {
        for (is_tcp, service, len) in [(false, 0, 0), (true, 7, 1514), (false, u16::MAX, u64::from(u32::MAX))]
        {
            let weight = Weight::from_bits(Weight::new(is_tcp, service, len).to_bits());
            assert_eq!((weight.is_tcp(), weight.service(), weight.len()), (is_tcp, u32::from(service), len));
        }
        assert_eq!(Weight::new(true, 7, 1 << 40).len(), u64::from(u32::MAX), "no frame is longer");
    }
}
