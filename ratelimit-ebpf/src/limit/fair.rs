//! Fair shares of sources in crowded prefixes, and who was asked for a connection. `limit::fair` in the common crate has the reasoning.

use ratelimit_common::{
    abi::Policy,
    limit::{fair, gate},
};

use super::request::Request;
use crate::tables::Tables;

/// Attempts to charge the word of a source. Who loses them all is one of many that want the same word at once.
const ATTEMPTS: usize = 2;

/// Whether a source that is squeezed may still have the packet.
#[inline(always)]
pub(super) fn admits<T: Tables>(tables: &T, policy: &Policy, request: &Request, pressure: u32) -> bool {
    match share(tables, request) {
        Some(word) => after(tables.load(word), policy, request, pressure).is_some(),
        None => false,
    }
}

/// Charges the source for it.
#[inline(always)]
pub(super) fn charge<T: Tables>(tables: &T, policy: &Policy, request: &Request, pressure: u32) -> bool {
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
fn share<T: Tables>(tables: &T, request: &Request) -> Option<T::Word> {
    Some(tables.fair_share(tables.fair_cell(gate::cell_index(request.hash))?))
}

#[inline(always)]
fn after(word: u64, policy: &Policy, request: &Request, pressure: u32) -> Option<u64> {
    fair::take(word, &policy.ladder.squeeze, request.now_q8, request.dearest_q8(), pressure)
}

/// Whether the source may be asked for a connection now. It is not asked again for a moment: either it shows one, and is proven for long,
/// or it is one of those who forge addresses.
#[inline(always)]
pub(super) fn may_prove<T: Tables>(tables: &T, request: &Request) -> bool {
    let Some(cell) = tables.fair_cell(gate::cell_index(request.hash)) else { return false };
    let word = tables.fair_asked(cell);
    if fair::was_asked(tables.load(word), request.hash, request.now_q8) {
        return false;
    }
    // By a plain store: whoever else writes it at the same time says as much.
    tables.store(word, fair::asked(request.hash, request.now_q8));
    true
}
