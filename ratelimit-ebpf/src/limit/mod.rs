//! Holds a packet to every limit that applies to it: those of its source, those of its service for each source, those of
//! its user, those of the prefixes around it, the total of the service, and that of the host.
//!
//! Everything is evaluated before anything is charged, so a packet that one limit refuses costs the others nothing. Charging
//! can still fail half way, when another CPU takes the last tokens in between: then nothing is refunded and the packet is
//! refused, which keeps the error on the safe side.

mod aggregation;
mod asked_first;
mod clients;
mod crowd;
mod crowded;
mod crowded_note;
mod crowded_out;
mod entry;
mod fair;
mod fetch;
mod further;
mod host;
mod known;
mod lease;
mod leaves;
mod negative_cache;
mod opening;
mod precedence;
mod proof;
mod refusal;
mod refused;
mod request;
mod sender;
mod service;
mod spent_note;
mod squeezed;
mod stages;
mod standing;
mod syns;
mod total;
mod user;
mod window;
mod windows;
mod word;

use ratelimit_common::{
    abi::{Clock, LimitSet, Policy, Reason, service::Party},
    limit::gcra,
};

use crate::{
    budget, lane,
    packet::{Packet, Transport},
    tables::{Relay, Successor},
};
pub use asked_first::{may_be_asked as may_ask_prefixes, may_be_proven, remember_proven};
pub use clients::{introduce, is_to_be_found, learn, unless_known};
pub use crowd::charge as charge_crowd;
pub use crowded::{NO_LEVEL, is_crowded_out_at, level as crowded_level};
pub use crowded_note::{is_crowded_out_at_noted_level, note_level};
pub use crowded_out::is_crowded_out;
pub use entry::{charge as charge_entry, charge_soft, judge as judge_entry};
pub use fetch::fetch_ahead;
pub(crate) use host::charge as charge_host;
pub use known::{Known, Weight, host_holds, known_refusal, spent_for_tracked, spent_total_noted};
pub use leaves::Leaves;
pub use negative_cache::{
    first_known, forget_shared, known, own_reason, remember_block, remember_shared, tidy,
};
pub use opening::open as open_entry;
pub use precedence::{Precedence, charge_reserve, press, spent_lately, take_precedence};
pub use proof::Proof;
pub use refusal::report_unasked;
use refusal::reported;
pub use refused::{report, report_source};
pub use request::PacketCharge;
pub use sender::Sender;
pub use service::{charge as charge_service, judge as judge_service, open as open_service};
pub use spent_note::{SpentFor, noted};
pub use stages::Stages;
use standing::Standing;
pub use syns::count as count_syn;
pub use total::{spend_host, stock_host};
pub use user::{charge as charge_user, judge as judge_user};
pub use window::{WindowCharge, ask as ask_window};
pub use windows::{Scope, ask as ask_windows};
pub use word::{refusal_of, take as take_word};

/// Charges a packet to its source, its prefixes and its service. `now_ns` is the coarse clock's time.
#[inline(always)]
pub fn limit<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: &Packet,
    sender: Sender,
    len: u64,
    now_ns: u64,
) -> Reason {
    let now_q8 = match unknown_at(tables, policy, packet, &sender, len, now_ns, packet.transport.is_tcp()) {
        Ok(now_q8) => now_q8,
        Err(reason) => {
            lane::open(tables, now_ns);
            if matches!(reason, Reason::ServiceTotal | Reason::HostTotal) {
                clients::note_scarcity(tables, now_ns);
            }
            return reason;
        }
    };
    let mut room = PacketCharge::NONE;
    let request = tables.room(&mut room);
    request.put(policy, packet, sender, len, now_q8);
    let reason = ask(tables, relay, policy, packet, request);
    if !reason.admits() {
        lane::open(tables, now_ns);
        tables.report(policy, request, reason);
    }
    reason
}

/// Evaluates all limits, and charges them if none refuses.
#[inline(always)]
fn ask<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: &Packet,
    request: &mut PacketCharge,
) -> Reason {
    let is_looked_up =
        syns::defended(tables, policy, request) || clients::asks_for_connection(policy, packet.port);
    if packet.transport == Transport::TCP && is_looked_up {
        relay.hand_over(Successor::Prove, request.context(Reason::CookieInvalid));
        // The tail call failed: this kernel has no such program, and the limits alone must do. Some kernels assume that packet bytes may
        // have changed meanwhile; nothing below reads any.
    }
    let set = &policy.source.set;
    let standing = Standing::of(tables, policy, set, request);
    // A source over a limit is refused; that there is no room for an entry of a source is no reason not to answer its SYN.
    let answered = relay.answers()
        && (standing.refusal().is_none() || standing.wants_state())
        && packet.transport == Transport::TCP_SYN
        && !packet.fragment
        && policy.cookie_services != 0
        && tables.count_syn(policy, request);
    if let Some(reason) = standing.refusal() {
        if answered {
            relay.hand_over(Successor::Answer, request.context(reason));
        } else if standing.wants_state() {
            ask_for_proof(tables, relay, policy, packet, request, reason);
        }
        return reason;
    }
    match further::judge(tables, policy, request) {
        Reason::Conforming => {}
        reason if answered && reason.wants_room() => {}
        reason => return reason,
    }
    if answered {
        // The answer costs the source a packet. The connection is charged when the answer is acknowledged: a SYN may be
        // forged, and the source named in it must not be charged for a connection.
        // Without a limit in packets or bytes the answer would be free, and a source named in forged SYNs would get answers without end.
        request.opens(policy, !set.counts_packets() as u8);
        let reason = charge_source(tables, policy, set, request, &standing);
        if !reason.admits() {
            return reason;
        }
        relay.hand_over(Successor::Answer, request.context(reason));
        // The tail call failed: there is no such program, and the SYN is treated like any other.
        request.opens(policy, 1);
    }
    let party = standing.party(tables, request);
    let reason = host::charge_all(tables, policy, request, party);
    if reason != Reason::Conforming {
        // The refusal of a proven source is not remembered: a prefix keeps a part back for proven sources, so others' refusals say nothing about them.
        if party == Party::Tracked && !packet.transport.is_tcp() {
            tables.remember_shared(policy, request);
        }
        if party == Party::Untracked || (party == Party::Tracked && reason == Reason::LimitPrefix) {
            ask_for_proof(tables, relay, policy, packet, request, reason);
        }
        return reason;
    }
    let reason = charge_source(tables, policy, set, request, &standing);
    if !reason.admits() {
        return reason;
    }
    // The source's own limits may refuse it next. Nothing reads the note while the lane is closed.
    if party.has_state() && lane::is_open(tables, request.now_q8 >> gcra::TIME_FRAC_BITS) {
        tables.forget_shared(policy, request);
    }
    let reason = further::charge(tables, policy, request, reason);
    if reason.admits() && !packet.transport.is_tcp() && clients::has_total(policy, request.service as u32) {
        tables.learn(policy, request);
    }
    reason
}

/// Charges everything for a segment that was looked up among the host's connections, or for a SYN that could not be answered. A source that has shown a
/// connection gets an entry whatever the budget, and is proven from then on.
#[inline(always)]
pub fn limit_shown<T: Stages>(
    tables: &T,
    policy: &Policy,
    packet: &Packet,
    len: u64,
    now_ns: u64,
    proof: Proof,
) -> Reason {
    let sender = Sender::of(tables, policy, packet);
    // Only segments get here; passed as a constant, so that the verifier skips the code for other packets.
    let now_q8 = match unknown_at(tables, policy, packet, &sender, len, now_ns, true) {
        Ok(now_q8) => now_q8,
        Err(reason) => return reason,
    };
    let mut room = PacketCharge::NONE;
    let request = tables.room(&mut room);
    request.put(policy, packet, sender, len, now_q8);
    match ask_shown(tables, policy, request, proof) {
        Reason::Conforming if proof == Proof::Cookie => Reason::CookieValid,
        Reason::Conforming => Reason::Conforming,
        reason => reported(tables, policy, request, reason),
    }
}

#[inline(always)]
fn ask_shown<T: Stages>(tables: &T, policy: &Policy, request: &mut PacketCharge, proof: Proof) -> Reason {
    let set = &policy.source.set;
    let mut standing = Standing::of(tables, policy, set, request);
    if proof.is_real() {
        request.proven = 1;
        // Remembered before there is an entry with that mark: the source must not be refused the part that a prefix keeps back for it.
        tables.remember_proven(request.hash, request.now_q8);
        standing = standing.proven(set, request);
    }
    if let Some(reason) = standing.refusal() {
        return reason;
    }
    match further::judge(tables, policy, request) {
        Reason::Conforming => {}
        reason => return reason,
    }
    let party = if proof.is_real() { Party::Proven } else { standing.party(tables, request) };
    match host::charge_all(tables, policy, request, party) {
        Reason::Conforming => {}
        reason => return reason,
    }
    let reason = charge_source(tables, policy, set, request, &standing);
    if !reason.admits() {
        return reason;
    }
    if proof.is_real() {
        standing.vouch(tables, request);
    }
    // The source's own limits may refuse it next, and prefixes keep a part back for sources that have shown a connection.
    tables.forget_shared(policy, request);
    let reason = further::charge(tables, policy, request, reason);
    if reason.admits() && proof.is_real() && clients::asks_for_connection(policy, request.port) {
        let service = clients::datagram_service(policy, request.port);
        tables.introduce(policy, service, request.hash, request.now_q8);
    }
    reason
}

/// Charges the cell or the entry that vouched for the source, or makes an entry for it.
#[inline(always)]
fn charge_source<T: Stages>(
    tables: &T,
    policy: &Policy,
    set: &LimitSet,
    request: &PacketCharge,
    standing: &Standing<T>,
) -> Reason {
    match standing.charge_existing(tables, set, request) {
        Some(reason) => reason,
        None => tables.open_entry(policy, set, request),
    }
}

/// The time at which limits are evaluated for a packet, by the policy's clock, as a time word; `Err` if the packet is refused for what is known of its source.
#[inline(always)]
fn unknown_at<T: Stages>(
    tables: &T,
    policy: &Policy,
    packet: &Packet,
    sender: &Sender,
    len: u64,
    now_ns: u64,
    is_tcp: bool,
) -> Result<u64, Reason> {
    let now_q8 = gcra::time_q8(now_ns);
    let weight = Weight::new(is_tcp, packet.service, len);
    if let Some(reason) = tables.known_refusal(policy, sender, weight, now_q8) {
        return Err(reason);
    }
    // Combined into one branch, which nearly no packet takes.
    let may_be_asked = !is_tcp & !packet.fragment & lane::is_crowded(tables, now_ns);
    if may_be_asked && tables.is_crowded_out(policy, sender, weight, now_q8) {
        return Err(Reason::LimitPrefix);
    }
    if policy.clock() == Clock::Precise {
        return Ok(gcra::time_q8(tables.now_ns(Clock::Precise)));
    }
    Ok(now_q8)
}

/// For an untracked source that is about to be refused for lack of room: if its segment can belong to a connection, tail-calls the program that looks it up among the
/// host's sockets, as often as the budget allows. The tail call does not return.
#[inline(always)]
fn ask_for_proof<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: &Packet,
    request: &PacketCharge,
    reason: Reason,
) {
    if packet.transport == Transport::TCP
        && budget::take_proof(tables, policy, fair::was_asked(tables, request), request.now_q8)
    {
        fair::ask(tables, request);
        relay.hand_over(Successor::Prove, request.context(reason));
    }
}

#[cfg(test)]
mod tests;
