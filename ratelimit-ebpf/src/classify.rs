//! What a source is to the operator: on the block or allow list, and which user it belongs to.

use ratelimit_common::abi::{Reason, list::ALLOWED, user::NO_USER};

use crate::{packet::Address, tables::Tables};

/// What the lists say of a source.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// The reason that settles it.
    pub settled: Option<Reason>,
    /// Until when it is blocked, if that is the reason.
    pub blocked_until_ns: u64,
    /// The user that the source belongs to, or `NO_USER`.
    pub user: u16,
}

/// Asks the lists. The allow list wins.
#[inline(always)]
pub fn classify<T: Tables>(tables: &T, source: Address, now_ns: u64) -> Listing {
    let Some(entry) = tables.listed(source) else {
        return Listing { settled: None, blocked_until_ns: 0, user: NO_USER };
    };
    let settled = if entry.allowed == ALLOWED {
        Some(Reason::Allowed)
    } else {
        // The kernel itself ends a block: nobody has to be alive to remove the entry.
        (now_ns < entry.blocked_until_ns).then_some(Reason::Blocked)
    };
    Listing { settled, blocked_until_ns: entry.blocked_until_ns, user: entry.user }
}
