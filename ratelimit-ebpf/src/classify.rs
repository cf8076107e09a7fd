//! Who is exempt: the block and allow lists.

use ratelimit_common::abi::{Reason, list::ALLOWED};

use crate::{packet::Address, tables::Tables};

/// The reason that settles it, if the source is listed. The allow list wins.
#[inline(always)]
pub fn classify<T: Tables>(tables: &T, source: Address, now_ns: u64) -> Option<Reason> {
    let entry = tables.listed(source)?;
    if entry.allowed == ALLOWED {
        return Some(Reason::Allowed);
    }
    // The kernel itself ends a block: nobody has to be alive to remove the entry.
    (now_ns < entry.blocked_until_ns).then_some(Reason::Blocked)
}
