//! The lists: whether a source is blocked or allowed, and which user it belongs to.

use ratelimit_common::abi::{Reason, list::ALLOWED, user::NO_USER};

use crate::{packet::Address, tables::Tables};

/// What the lists have about a source.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// The reason that the lists decide the packet with, if they do.
    pub settled: Option<Reason>,
    /// When the block ends, in nanoseconds of the monotonic clock, if the source is blocked.
    pub blocked_until_ns: u64,
    /// The user that the source belongs to, or `NO_USER`.
    pub user: u16,
}

/// Looks a source up in the lists. The allow list wins.
#[inline(always)]
pub fn classify<T: Tables>(tables: &T, source: Address, now_ns: u64) -> Listing {
    let Some(entry) = tables.listed(source) else {
        return Listing { settled: None, blocked_until_ns: 0, user: NO_USER };
    };
    let settled = if entry.allowed == ALLOWED {
        Some(Reason::Allowed)
    } else {
        // The block ends by its time: no process has to remove the entry.
        (now_ns < entry.blocked_until_ns).then_some(Reason::Blocked)
    };
    Listing { settled, blocked_until_ns: entry.blocked_until_ns, user: entry.user }
}
