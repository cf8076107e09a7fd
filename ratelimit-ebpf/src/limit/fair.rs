//! Fair shares of sources in crowded prefixes, and who was asked for a connection. `limit::fair` in the common crate has the reasoning.

use ratelimit_common::{
    abi::Policy,
    limit::{fair, prefilter},
};

use super::request::PacketCharge;
use crate::tables::Tables;

/// Attempts to charge the word of a source. A CPU that loses them all is one of many that want the same word at once.
const ATTEMPTS: usize = 2;

/// Whether a source that is squeezed may still have the packet.
#[inline(always)]
pub(super) fn admits<T: Tables>(tables: &T, policy: &Policy, request: &PacketCharge, pressure: u32) -> bool {
    match share(tables, request) {
        Some(word) => after(tables.load(word), policy, request, pressure).is_some(),
        None => false,
    }
}

/// Charges the source for it.
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

/// Whether the source was asked for a connection a moment ago, and had none to show, or it would be proven. Who keeps no account with us cannot
/// be marked as proven, and so is never taken for asked.
#[inline(always)]
pub(super) fn was_asked<T: Tables>(tables: &T, request: &PacketCharge) -> bool {
    match tables.asked(prefilter::cell_index(request.hash)) {
        Some(asked) => {
            request.dearest_q8() != 0 && fair::was_asked(tables.load(asked), request.hash, request.now_q8)
        }
        None => false,
    }
}

/// Remembers that the source is asked now.
#[inline(always)]
pub(super) fn ask<T: Tables>(tables: &T, request: &PacketCharge) {
    if let Some(asked) = tables.asked(prefilter::cell_index(request.hash)) {
        // By a plain store: whoever else writes it at the same time says as much.
        tables.store(asked, fair::asked(request.hash, request.now_q8));
    }
}
