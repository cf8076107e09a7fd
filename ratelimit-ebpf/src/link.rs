//! Frames without a source: ARP, neighbour discovery, and frames that are not IP.
//!
//! A host that does not hear its router is cut off, so these frames once passed without a limit, which opened a way around every limit to
//! senders on the link. Now each interface has a cap. Half of the cap is shared; the other half is for neighbours that
//! were seen before, and nobody can spend the part of another: see [`abi::link`](ratelimit_common::abi::link).
//!
//! ```text
//!   frame ---> its neighbour's own bucket ---> pass
//!                  |  none, or spent
//!                  v
//!              the interface's bucket ---> pass | drop
//! ```
//!
//! Senders are told apart by hardware address only: a sender with the router's address spends the router's part.

use ratelimit_common::{
    abi::{
        Clock, Limit, Policy, Reason,
        link::{LINK_INTERFACES, LINK_WAYS, LinkKind, NEIGHBOUR_HOLD_Q8, link_set, neighbour},
    },
    limit::gcra::{self, MAX_AMOUNT, ahead_q8},
};

use crate::{
    classify::classify,
    frame::Frame,
    limit::{Leaves, Sender, take_word},
    packet::{Address, Family},
    parse,
    report::Refused,
    tables::Tables,
};

/// Stands for no cell.
const NOWHERE: u32 = u32::MAX;

/// The reason of a frame that came in by an interface and would pass with the reason `passes`. Neighbour discovery has a source, which is looked up in the
/// lists: a source on the allow list is not held to the cap.
#[inline(always)]
pub fn judge<T: Leaves>(
    tables: &T,
    frame: &Frame<'_>,
    policy: &Policy,
    interface: u32,
    passes: Reason,
) -> Reason {
    let kind = match passes {
        Reason::Arp => LinkKind::Arp,
        Reason::NeighbourDiscovery => LinkKind::NeighbourDiscovery,
        Reason::NotIp => LinkKind::NotIp,
        _ => return passes,
    };
    let now_ns = tables.now_ns(Clock::Precise);
    if kind == LinkKind::NeighbourDiscovery
        && let Some(source) = parse::v6_source(frame)
    {
        match classify(tables, source, now_ns).settled {
            Some(Reason::Blocked) => {
                report_blocked(tables, policy, source, frame.len(), now_ns);
                return Reason::Blocked;
            }
            Some(_) => return passes,
            None => {}
        }
    }
    let now_q8 = gcra::time_q8(now_ns);
    let limits = &policy.link;
    if limits.shared.cost_fp == 0
        || own(tables, policy, frame, (interface, kind), now_q8)
        || shared(tables, &limits.shared, interface, now_q8)
    {
        passes
    } else {
        Reason::LinkCap
    }
}

/// Charges the neighbour that sent a frame, if it has a cell or gets one.
#[inline(always)]
fn own<T: Leaves>(
    tables: &T,
    policy: &Policy,
    frame: &Frame<'_>,
    (interface, kind): (u32, LinkKind),
    now_q8: u64,
) -> bool {
    // A link without hardware addresses has one neighbour, which uses the shared half.
    let Some(mac) = parse::hardware_source(frame) else { return false };
    let name = neighbour(interface, mac, kind);
    let first = link_set(interface, name, policy.prefilter.secret);
    let (mut free, mut before) = (NOWHERE, 0);
    for way in 0..LINK_WAYS {
        let Some((owner, tat)) = tables.link_cell(first + way) else { return false };
        let seen = tables.load(owner);
        if seen == name {
            return charge(tables, tat, &policy.link.own, now_q8);
        }
        let silent = ahead_q8(tables.load(tat).wrapping_add(NEIGHBOUR_HOLD_Q8), now_q8) == 0;
        if free == NOWHERE && (seen == 0 || silent) {
            (free, before) = (first + way, seen);
        }
    }
    let Some((owner, tat)) = tables.link_cell(free) else { return false };
    // A neighbour that loses the race for the cell is charged to the shared half.
    tables.compare_exchange(owner, before, name) && charge(tables, tat, &policy.link.own, now_q8)
}

#[inline(always)]
fn shared<T: Leaves>(tables: &T, limit: &Limit, interface: u32, now_q8: u64) -> bool {
    match tables.link(interface & (LINK_INTERFACES - 1)) {
        Some(word) => charge(tables, word, limit, now_q8),
        None => false,
    }
}

/// Takes one frame from a bucket. If the bucket refuses, it is only read.
#[inline(always)]
fn charge<T: Tables>(tables: &T, word: T::Word, limit: &Limit, now_q8: u64) -> bool {
    take_word(tables, word, limit, now_q8, limit.cost_fp)
}

#[inline(always)]
fn report_blocked<T: Leaves>(tables: &T, policy: &Policy, source: Address, len: u64, now_ns: u64) {
    let len = if len > MAX_AMOUNT { MAX_AMOUNT as u32 } else { len as u32 };
    let refused = Refused::new(Reason::Blocked, Family::V6 as u16, 0, 0, len);
    let key = Sender::key_of(policy, source);
    tables.report_unasked(policy, key.hi, key.lo, refused, gcra::time_q8(now_ns));
}

#[cfg(test)]
mod tests;
