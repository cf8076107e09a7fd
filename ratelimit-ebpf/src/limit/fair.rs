//! Fair shares of sources in crowded prefixes, and marks of sources that were asked for a connection. `limit::fair` in the common crate has the reasoning.

use ratelimit_common::{
    abi::Policy,
    limit::{fair, prefilter},
};

use super::request::PacketCharge;
use crate::tables::Tables;

/// Attempts to charge the word of a source. A CPU that loses them all is one of many that want the word at once.
const ATTEMPTS: usize = 2;

/// Whether a source that is squeezed may still have the packet.
#[inline(always)]
pub(super) fn admits<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, pressure: u32) -> bool {
    match share(tables, request) {
        Some(word) => after(tables.load(word), policy, request, pressure).is_some(),
        None => false,
    }
}

/// Charges the fair share of a source; false if it is used up.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, pressure: u32) -> bool {
    let Some(word) = share(tables, request) else { return false };
    for _ in 0..ATTEMPTS {
        let seen = tables.load(word);
        let Some(after) = after(seen, policy, request, pressure) else { return false };
        if tables.compare_exchange(word, seen, after) {
            return true;
        }
    }
    false
}

#[inline(always)]
fn share<T: Tables>(tables: &T, request: &PacketCharge) -> Option<T::Word> {
    tables.fair_share(prefilter::cell_index(request.hash))
}

#[inline(always)]
fn after(word: u64, policy: &Policy, request: &PacketCharge, pressure: u32) -> Option<u64> {
    fair::take(word, &policy.aggregation.squeeze, request.now_q8, request.dearest_q8(), pressure)
}

/// Whether the source was asked for a connection a moment ago and showed none, or it would be proven. A source without limits has no entry and cannot
/// be marked as proven, so it never counts as asked.
#[inline(always)]
pub(super) fn was_asked<T: Tables>(tables: &T, request: &PacketCharge) -> bool {
    match tables.asked(prefilter::cell_index(request.hash)) {
        Some(asked) => {
            request.dearest_q8() != 0 && fair::was_asked(tables.load(asked), request.hash, request.now_q8)
        }
        None => false,
    }
}

/// Marks the source as asked now.
#[inline(always)]
pub(super) fn ask<T: Tables>(tables: &T, request: &PacketCharge) {
    if let Some(asked) = tables.asked(prefilter::cell_index(request.hash)) {
        // A plain store suffices: another CPU that writes at the same time writes an equivalent mark.
        tables.store(asked, fair::asked(request.hash, request.now_q8));
    }
}
