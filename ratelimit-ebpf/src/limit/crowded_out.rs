//! Whether prefixes refuse a packet before its source is looked up, in the limiter.

use ratelimit_common::{abi::Policy, limit::prefilter};

use super::{
    asked_first::{may_be_asked, may_be_proven},
    crowded::NO_LEVEL,
    known::{self, Weight},
    leaves::Leaves,
    sender::Sender,
};

/// Whether a packet, neither a TCP segment nor a fragment, is refused for a prefix around its sender, in the limiter.
#[inline(always)]
pub fn is_crowded_out<T: Leaves>(
    tables: &T,
    policy: &Policy,
    sender: &Sender,
    weight: Weight,
    now_q8: u64,
) -> bool {
    // For sources without an entry, the totals are known to have something left at this point.
    let asked = if prefilter::is_tracked_in(&policy.source.set, sender.tracked_until_q8, now_q8) {
        may_be_asked(policy, weight.service()) && !may_be_proven(tables, sender.hash, now_q8)
    } else {
        policy.aggregation.packet_q8 != 0 && known::host_holds(tables, policy, weight.len())
    };
    asked && tables.crowded_level(policy, sender.key.hi, sender.key.lo, sender.hash, now_q8) != NO_LEVEL
}
