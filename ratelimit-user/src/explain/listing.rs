//! Entries of the block and allow lists around an address.

use std::net::IpAddr;

use ratelimit_common::abi::{
    ListEntry,
    list::{ALLOWED, FOREVER_NS},
    user::NO_USER,
};

use super::{ExplainContext, report::BlockMatch};
use crate::{
    compile::lists::{Lists, Prefix, reason_text},
    moment,
};

/// Entries of the allow list around an address, longest prefix first.
pub(super) fn allowed_by(lists: &Lists, address: IpAddr) -> Vec<String> {
    let allowed = around(lists, address).filter(|(_, entry)| entry.own_allowed == ALLOWED);
    allowed.map(|(prefix, _)| prefix.to_string()).collect()
}

/// Blocks around an address that have not ended, longest prefix first.
pub(super) fn blocked_by(setting: &ExplainContext<'_>, address: IpAddr) -> Vec<BlockMatch> {
    let holds = |(_, entry): &(Prefix, &ListEntry)| entry.own_blocked_until_ns > setting.now_ns;
    around(setting.lists, address)
        .filter(holds)
        .map(|(prefix, entry)| {
            let seconds_left = (entry.own_blocked_until_ns != FOREVER_NS)
                .then(|| (entry.own_blocked_until_ns - setting.now_ns).div_ceil(1_000_000_000));
            BlockMatch {
                prefix: prefix.to_string(),
                until: seconds_left.map(|left| moment::utc(setting.unix_seconds.saturating_add(left))),
                seconds_left,
                reason: reason_text(entry),
            }
        })
        .collect()
}

/// The prefix that makes the address one of a user.
pub(super) fn owned_by(lists: &Lists, address: IpAddr) -> Option<String> {
    around(lists, address).find(|(_, entry)| entry.own_user != NO_USER).map(|(prefix, _)| prefix.to_string())
}

/// Every listed prefix around an address, longest first.
fn around(lists: &Lists, address: IpAddr) -> impl Iterator<Item = (Prefix, &ListEntry)> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (0..=longest)
        .rev()
        .filter_map(move |len| lists.get_key_value(&Prefix::masked(address, len)))
        .map(|(prefix, entry)| (*prefix, entry))
}
