//! The express lane: repeats refusals that the limiter decided a moment ago, at a fraction of the price.
//!
//! ```text
//!   frame ---> has this CPU refused anything lately? ---> short parse ---> known refusal? ---> drop, count
//!                  |  no                                      |  unusual        |  no
//!                  +------------------------------------------+-----------------+---> the limiter
//! ```
//!
//! The lane decides nothing by itself. It reads the words that the limiter has written, and a copy of the policy at an address
//! known in advance. So a packet ends in the lane as it would have ended in the limiter, and is counted by the same counter.
//!
//! While nothing is refused, a packet pays for one load and one comparison.

mod first_look;
mod noted_refusal;

use ratelimit_common::{
    abi::{
        Clock, Policy, Reason, SourceKey, Verdict,
        counter::{Fate, slot},
        destination::BY_DESTINATION,
        service::MAX_SERVICES,
    },
    limit::{
        gcra,
        prefilter::{self, NegativeCause},
    },
};

use crate::{
    budget,
    classify::classify,
    frame::Frame,
    lane,
    limit::{self, Known, Leaves, Sender},
    origin::Origin,
    packet::Family,
    parse::{Brief, brief_v4, brief_v6, network},
    report, service,
    tables::{CpuBudget, Tables},
};

pub use first_look::drop_at_first_look;

/// Drops and counts a frame whose refusal is known. `None`: the limiter has to decide.
pub fn drop_known<T: Leaves>(frame: &Frame<'_>, tables: &T) -> Option<Verdict> {
    let now_ns = tables.now_ns(Clock::Coarse);
    if !lane::is_open(tables, now_ns) {
        return None;
    }
    if let Some(verdict) = drop_at_first_look(frame, tables, now_ns) {
        return Some(verdict);
    }
    let counter = drop_again(frame, tables, now_ns)?;
    note_refusal(frame, tables, counter, now_ns);
    Some(Verdict::Drop)
}

/// Drops and counts a frame whose refusal is known to the rest of the lane, and returns the counter. A function of its own in the kernel: the verifier would
/// otherwise check the limiter once for every path that leads there.
#[inline(always)]
pub fn drop_again<T: Leaves>(frame: &Frame<'_>, tables: &T, now_ns: u64) -> Option<u32> {
    let (service, reason) = refusal(frame, tables, now_ns)?;
    let counter = slot(service.min(MAX_SERVICES as u32), reason, Fate::Decided);
    tables.count(counter, frame.len());
    Some(counter)
}

/// Notes down a frame that the rest of the lane has refused, and its counter, for packets like it. Another function of its own: it reads the frame again, because
/// the function that refused the frame has no stack left for what is noted down.
#[inline(always)]
pub fn note_refusal<T: Tables>(frame: &Frame<'_>, tables: &T, counter: u32, now_ns: u64) {
    // Checked before the frame is read, because most frames here are not the first of their clock reading.
    if noted_refusal::is_noted(tables, now_ns) {
        return;
    }
    match network(frame) {
        Some((Family::V4, at)) => note_packet(brief_v4(frame, at), tables, counter, now_ns),
        Some((Family::V6, at)) => note_packet(brief_v6(frame, at), tables, counter, now_ns),
        None => {}
    }
}

#[inline(always)]
fn note_packet<T: Tables, S: Origin>(packet: Option<Brief<S>>, tables: &T, counter: u32, now_ns: u64) {
    if let (Some(packet), Some(lane)) = (packet, tables.express(S::FAMILY, now_ns)) {
        noted_refusal::note(tables, lane.policy, &packet, counter, now_ns);
    }
}

/// The service and the reason of a frame whose refusal is known.
#[inline(always)]
fn refusal<T: Leaves>(frame: &Frame<'_>, tables: &T, now_ns: u64) -> Option<(u32, Reason)> {
    let (family, at) = network(frame)?;
    match family {
        Family::V4 => refusal_of(tables, &brief_v4(frame, at)?, (frame.len(), now_ns)),
        Family::V6 => refusal_of(tables, &brief_v6(frame, at)?, (frame.len(), now_ns)),
    }
}

/// The service and the reason of a packet whose refusal is known. The frame that carries it has `len` bytes.
#[inline(always)]
fn refusal_of<T: Leaves, S: Origin>(
    tables: &T,
    packet: &Brief<S>,
    (len, now_ns): (u64, u64),
) -> Option<(u32, Reason)> {
    let lane = tables.express(S::FAMILY, now_ns)?;
    let service = service::number(lane.policy, packet.port_slot(), packet.protocol_slot());
    if service & BY_DESTINATION != 0 {
        return None;
    }
    let hash = packet.source.hash(lane.policy);
    let known = known_reason(tables, lane.policy, packet, (service, hash), (len, now_ns));
    let Some(reason) = known else {
        limit::fetch_ahead(tables, lane.policy, packet.source.address(), hash);
        return None;
    };
    lane::open(tables, now_ns);
    Some((service, reason))
}

/// The reason to refuse a packet of a service, if it is known.
#[inline(always)]
fn known_reason<T: Leaves, S: Origin>(
    tables: &T,
    policy: &Policy,
    packet: &Brief<S>,
    (service, hash): (u32, u64),
    (len, now_ns): (u64, u64),
) -> Option<Reason> {
    let now_q8 = gcra::time_q8(now_ns);
    let listed = tables.is_listed(S::FAMILY);
    let may_be_tracked = tables.may_be_tracked(prefilter::cell_index(hash));
    // The packets of a spoofed flood do not read the cells.
    let quiet = listed && report::is_quiet(tables, hash, now_q8);
    let cause = if may_be_tracked || quiet { limit::known(tables, policy, hash, now_q8) } else { None };
    match cause {
        Some(NegativeCause::Blocked) if quiet => return Some(Reason::Blocked),
        // A source that is over a limit of its own has an entry that owes something, so its cell is tracked.
        Some(cause @ (NegativeCause::Packets | NegativeCause::Bytes)) if may_be_tracked => {
            return limit::own_reason(cause);
        }
        _ => {}
    }
    // A TCP segment that is not refused here may be answered with a cookie or belong to a connection. The list is looked up only for sources whose refusal the
    // daemon was told of a moment ago: otherwise the limiter looks into the list.
    let is_tcp = packet.is_tcp();
    if is_tcp && !quiet {
        return None;
    }
    let spent = if may_be_tracked && is_tracked(tables, policy, hash, now_q8) {
        if is_tcp || !tables.weighs_alike() {
            return None;
        }
        // The express lane may refuse a tracked source that was refused for a shared limit, or, where prefixes are asked first, one that is not
        // listed. A tracked source is on no list, but another source of the same prefilter cell may be.
        if cause != Some(NegativeCause::Shared) && (listed || !limit::may_ask_prefixes(policy, service)) {
            return None;
        }
        if cause.is_none() {
            tables.tidy(hash, now_q8);
        }
        match limit::spent_for_tracked(tables, policy, service, (len, now_ns)) {
            Known::Spent(reason) => Some(reason),
            // A prefix keeps a part back for proven sources. A source may be proven on one CPU while another still notes down a refusal from before.
            Known::Left if !limit::may_be_proven(tables, hash, now_q8) => None,
            Known::Left | Known::Nothing => return None,
        }
    } else {
        if listed {
            let listing = classify(tables, packet.source.address(), now_ns);
            if listing.settled == Some(Reason::Blocked) {
                // Only for sources whose refusal the daemon was told of a moment ago: a source that sends much soon is, and a flood from all of a blocked prefix
                // does not touch the cells.
                if quiet {
                    limit::remember_block(tables, policy, hash, now_ns, listing.blocked_until_ns);
                } else if budget::has(tables, policy, CpuBudget::Reports, now_q8) {
                    return None;
                }
            }
            if listing.settled.is_some() {
                return listing.settled.filter(|reason| *reason == Reason::Blocked);
            }
        }
        if is_tcp {
            return None;
        }
        let spent = limit::spent_total_noted(tables, policy, service, (len, now_ns));
        if spent.is_none() && (!tables.weighs_alike() || !limit::host_holds(tables, policy, len)) {
            return None;
        }
        spent
    };
    if let Some(reason) = spent {
        return tables.unless_known(policy, service, hash, now_ns, reason);
    }
    if !lane::is_crowded(tables, now_ns) {
        return None;
    }
    let SourceKey { hi, lo } = Sender::key_of(policy, packet.source.address());
    let level = tables.crowded_level(policy, hi, lo, hash, now_q8);
    if level == limit::NO_LEVEL {
        return None;
    }
    if S::FAMILY == Family::V4 {
        limit::note_level(tables, policy, service, level);
    }
    Some(Reason::LimitPrefix)
}

/// Whether an entry behind a source's cell still owes something.
#[inline(always)]
fn is_tracked<T: Tables>(tables: &T, policy: &Policy, hash: u64, now_q8: u64) -> bool {
    let cell = prefilter::cell_index(hash);
    let tracked = prefilter::is_tracked_in(&policy.source.set, tables.tracked_until(cell), now_q8);
    if !tracked {
        tables.no_longer_tracked(cell, now_q8);
    }
    tracked
}

#[cfg(test)]
mod tests;
