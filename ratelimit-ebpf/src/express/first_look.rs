//! The first look of the express lane, where most packets of a flood end: at a refusal that is noted down, a negative entry, a note of a total that is used up, or a
//! prefix that is used up or squeezes. Packets without any of these go on to the rest of the lane, which checks everything again.
//!
//! The first look decides as the rest of the lane would. It is separate so that its code has few values to keep, which fit into registers.

use ratelimit_common::{
    abi::{
        Policy, Reason, Verdict,
        counter::{Fate, slot},
    },
    limit::{
        gcra,
        prefilter::{self, NegativeCause, REMEMBERED_BIT, TRACKED_BIT},
    },
};

use super::{is_tracked, noted_refusal};
use crate::{
    forget::forget,
    frame::Frame,
    lane,
    limit::{self, Leaves, SpentFor},
    origin::Origin,
    packet::Family,
    parse::{Brief, brief_v4, brief_v6, network},
    report, service,
    tables::Tables,
};

/// Drops and counts a frame that is refused at first look; `None` for any other frame.
#[inline(always)]
pub fn drop_at_first_look<T: Leaves>(frame: &Frame<'_>, tables: &T, now_ns: u64) -> Option<Verdict> {
    tables.count(refusal(frame, tables, now_ns)?, frame.len());
    Some(Verdict::Drop)
}

/// The counter of a frame that is refused at first look.
#[inline(always)]
pub(super) fn refusal<T: Leaves>(frame: &Frame<'_>, tables: &T, now_ns: u64) -> Option<u32> {
    let (family, at) = network(frame)?;
    match family {
        Family::V4 => refusal_of(tables, &brief_v4(frame, at)?, now_ns),
        Family::V6 => refusal_of(tables, &brief_v6(frame, at)?, now_ns),
    }
}

#[inline(always)]
fn refusal_of<T: Leaves, S: Origin>(tables: &T, packet: &Brief<S>, now_ns: u64) -> Option<u32> {
    let policy = tables.express(S::FAMILY, now_ns)?.policy;
    // `OpenUntil` was written at this clock reading, when the refusal was noted down: writing it again would change nothing.
    if let Some(counter) = noted_refusal::counter_of(tables, policy, packet, now_ns) {
        return Some(counter);
    }
    let service = service::at_first_look(policy, packet)?;
    let hash = packet.source.hash(policy);
    let bits = tables.cell_bits(prefilter::cell_index(hash));
    let reason = if bits & REMEMBERED_BIT != 0 && bits & TRACKED_BIT != 0 {
        of_remembered(tables, policy, packet, (service, hash), now_ns)?
    } else if bits & TRACKED_BIT != 0 {
        // A source of the cell is tracked, but none has a negative entry or is proven.
        if packet.is_tcp() || tables.is_listed(S::FAMILY) {
            return None;
        }
        of_crowded(tables, policy, packet, (service, hash), now_ns)?
    } else if tables.is_listed(S::FAMILY) {
        of_listed(tables, policy, hash, now_ns)?
    } else if packet.is_tcp() {
        // The segment may be answered with a cookie or belong to a connection.
        return None;
    } else {
        // The packets of a spoofed flood do not read the cells.
        let reason = of_shared(tables, SpentFor::Untracked, policy, packet, (service, hash), now_ns)?;
        if reason != Reason::LimitPrefix && limit::is_to_be_found(tables, policy, service, hash, now_ns) {
            return None;
        }
        reason
    };
    lane::open(tables, now_ns);
    Some(slot(service, reason, Fate::Decided))
}

/// The reason to refuse a packet of a service from a source with this hash, in whose cell something may be remembered.
#[inline(always)]
fn of_remembered<T: Leaves, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    (service, hash): (u32, u64),
    now_ns: u64,
) -> Option<Reason> {
    let cause = limit::first_known(tables, policy, hash, gcra::time_q8(now_ns))?;
    // A source that is over a limit of its own has an entry that owes something, so its cell is tracked.
    if let Some(reason) = limit::own_reason(cause) {
        return unless_to_be_noted(tables, reason, now_ns);
    }
    // These are forgotten and computed again, so that packets that do not get here need not keep them in registers.
    let (hash, now_q8) = (forget(hash, now_ns), gcra::time_q8(forget(now_ns, hash)));
    match cause {
        NegativeCause::Blocked if tables.is_listed(S::FAMILY) && report::is_quiet(tables, hash, now_q8) => {
            unless_to_be_noted(tables, Reason::Blocked, now_ns)
        }
        // There is a note only under policies where nothing else can refuse the packet first.
        NegativeCause::Shared if !packet.is_tcp() && is_tracked(tables, policy, hash, now_q8) => {
            match of_shared(tables, SpentFor::Tracked, policy, packet, (service, hash), now_ns)? {
                // See the rest of the lane.
                Reason::LimitPrefix if limit::may_be_proven(tables, hash, now_q8) => None,
                Reason::LimitPrefix => Some(Reason::LimitPrefix),
                _ if limit::is_to_be_found(tables, policy, service, hash, now_ns) => None,
                total => unless_to_be_noted(tables, total, now_ns),
            }
        }
        _ => None,
    }
}

/// The reason to refuse a packet for a limit that its source shares with others, by this CPU's notes.
#[inline(always)]
fn of_shared<T: Leaves, S: Origin>(
    tables: &T,
    spent_for: SpentFor,
    policy: &Policy,
    packet: &Brief<S>,
    (service, hash): (u32, u64),
    now_ns: u64,
) -> Option<Reason> {
    if let Some(reason) = limit::noted(tables, spent_for, policy, service, now_ns) {
        return Some(reason);
    }
    of_crowded(tables, policy, packet, (service, hash), now_ns)
}

/// The reason to refuse a packet for the prefix around its source, at the aggregation level that this CPU noted down.
#[inline(always)]
fn of_crowded<T: Leaves, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    (service, hash): (u32, u64),
    now_ns: u64,
) -> Option<Reason> {
    let source = packet.source.v4()?;
    limit::is_crowded_out_at_noted_level(tables, policy, service, (source, hash), now_ns)
        .then_some(Reason::LimitPrefix)
}

/// The reason to refuse a packet from a source with this hash, whose cell is not tracked, while the lists have entries.
#[inline(always)]
fn of_listed<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_ns: u64) -> Option<Reason> {
    let now_q8 = gcra::time_q8(forget(now_ns, hash));
    // Only for sources whose refusal the daemon was told of a moment ago: a flood from all of a blocked prefix does not read the negative entries.
    if !report::is_quiet(tables, hash, now_q8) {
        return None;
    }
    match limit::first_known(tables, policy, hash, now_q8)? {
        NegativeCause::Blocked => unless_to_be_noted(tables, Reason::Blocked, now_ns),
        _ => None,
    }
}

/// A reason that was found at first look; `None` if nothing is noted down for this clock reading, so that the rest of the lane finds the reason too and notes the
/// packet down.
#[inline(always)]
fn unless_to_be_noted<T: Tables>(tables: &T, reason: Reason, now_ns: u64) -> Option<Reason> {
    noted_refusal::is_noted(tables, now_ns).then_some(reason)
}
