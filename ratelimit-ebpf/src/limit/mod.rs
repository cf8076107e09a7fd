//! Holding a packet to every limit that applies to it: those of its source, what its source may have of the service it is for, those of
//! its user, those of the prefixes around it, and the total of the service.
//!
//! Everything is evaluated before anything is charged, so a packet that one limit refuses costs the others nothing. Charging
//! can still fail half way, when another CPU takes the last tokens in between: then nothing is refunded and the packet is
//! refused, which keeps the error on the safe side.

mod crowd;
mod denial;
mod entry;
mod further;
mod ladder;
mod lease;
mod newcomers;
mod refusal;
mod request;
mod sender;
mod stages;
mod standing;
mod syns;
mod total;
mod window;
mod word;

use ratelimit_common::{
    abi::{Clock, Policy, Reason, service::Party},
    limit::{gate, gcra},
};

use crate::{
    packet::{Packet, Transport},
    tables::{Allowance, Relay, Successor},
};
pub use crowd::charge as charge_crowd;
pub use entry::{charge as charge_entry, charge_soft, judge as judge_entry, open as open_entry};
use further::Further;
pub use further::{charge_service, charge_user, judge_service, judge_user, open_service};
pub use newcomers::take as take_allowance;
use refusal::reported;
pub use refusal::{report, report_unasked};
pub use request::Request;
pub use sender::Sender;
pub use stages::Stages;
use standing::Standing;
pub use syns::count as count_syn;
use total::Account;
pub use total::{service, service_number};
pub use window::{Ask, Scope, ask as ask_window, ask_scope as ask_windows};

/// Charges a packet to its source, its prefixes and its service. `now_ns` is the coarse clock's.
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
    let mut request = match request(tables, policy, packet, sender, len, now_ns) {
        Ok(request) => request,
        Err(reason) => return reason,
    };
    let reason = ask(tables, relay, policy, packet, &mut request);
    reported(tables, policy, &request, reason)
}

/// Asks all limits, and charges them if none refuses.
#[inline(always)]
fn ask<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: &Packet,
    request: &mut Request,
) -> Reason {
    if packet.transport == Transport::TCP && syns::defended(tables, policy, request) {
        relay.hand_over(Successor::Prove, request.baton(Reason::CookieInvalid));
        // Still here: this kernel has no such program, and the limits alone must do. Some kernels hold that packet bytes may
        // have changed meanwhile; nothing below reads any.
    }
    let set = &policy.source.set;
    let standing = Standing::of(tables, policy, set, request);
    // Who is over a limit is refused; that there is no room to keep an account of a source is no reason not to answer its SYN.
    // Such a SYN does not reach the service and costs it nothing; its source pays.
    let answered = relay.answers()
        && (standing.refusal().is_none() || standing.wants_state())
        && packet.transport == Transport::TCP_SYN
        && !packet.fragment
        && policy.cookie_services != 0
        && tables.count_syn(policy, request);
    if let Some(reason) = standing.refusal() {
        if answered {
            relay.hand_over(Successor::Answer, request.baton(reason));
        } else if standing.wants_state() {
            ask_for_proof(tables, relay, policy, packet, request, reason);
        }
        return reason;
    }
    let further = Further::of(policy, request);
    if !answered {
        match further.judge(tables, policy, request) {
            Reason::Conforming => {}
            reason => return reason,
        }
        let reason = tables.charge_crowd(policy, request, standing.party());
        if reason != Reason::Conforming {
            if standing.party() == Party::Stranger {
                ask_for_proof(tables, relay, policy, packet, request, reason);
            }
            return reason;
        }
    }
    let reason = standing.charge(tables, policy, set, request);
    if !reason.admits() {
        return reason;
    }
    if answered {
        relay.hand_over(Successor::Answer, request.baton(reason));
    }
    further.charge(tables, policy, request, reason)
}

/// The same for a segment that belongs to a connection or makes one, which nobody can forge: its source gets an entry whatever the
/// budget, and the share of the service that is kept for those who are known. `admitted` is the reason if nothing refuses it.
#[inline(always)]
pub fn limit_proven<T: Stages>(
    tables: &T,
    policy: &Policy,
    packet: &Packet,
    len: u64,
    now_ns: u64,
    admitted: Reason,
) -> Reason {
    let sender = Sender::of(tables, policy, packet);
    let mut request = match request(tables, policy, packet, sender, len, now_ns) {
        Ok(request) => request,
        Err(reason) => return reason,
    };
    match ask_proven(tables, policy, &mut request) {
        Reason::Conforming => admitted,
        reason => reported(tables, policy, &request, reason),
    }
}

#[inline(always)]
fn ask_proven<T: Stages>(tables: &T, policy: &Policy, request: &mut Request) -> Reason {
    let set = &policy.source.set;
    let standing = Standing::of(tables, policy, set, request).proven(set, request);
    if let Some(reason) = standing.refusal() {
        return reason;
    }
    let further = Further::of(policy, request);
    match further.judge(tables, policy, request) {
        Reason::Conforming => {}
        reason => return reason,
    }
    match tables.charge_crowd(policy, request, Party::Known) {
        Reason::Conforming => {}
        reason => return reason,
    }
    let reason = standing.charge(tables, policy, set, request);
    if !reason.admits() {
        return reason;
    }
    further.charge(tables, policy, request, reason)
}

/// Charges what it shares with others alone, for a SYN that could not be answered after its source had been charged.
#[inline(always)]
pub fn limit_crowd<T: Stages>(tables: &T, policy: &Policy, packet: &Packet, len: u64, now_ns: u64) -> Reason {
    let sender = Sender::of(tables, policy, packet);
    let request = Request::new(policy, packet, sender, len, gcra::time_q8(now_ns));
    let reason = tables.charge_crowd(policy, &request, Party::Stranger);
    reported(tables, policy, &request, reason)
}

/// The question of a packet, unless the answer is known from its source alone.
#[inline(always)]
fn request<T: Stages>(
    tables: &T,
    policy: &Policy,
    packet: &Packet,
    sender: Sender,
    len: u64,
    now_ns: u64,
) -> Result<Request, Reason> {
    let mut now_q8 = gcra::time_q8(now_ns);
    if policy.source.set.gate_tolerance_q8 != 0 {
        // The coarse clock is behind, so what is refused by it here is refused a moment longer than it must be, and never too short.
        if gate::is_tracked(sender.tracked_until_q8, now_q8) {
            if let Some(cell) = tables.cell(gate::cell_index(sender.hash))
                && let Some(reason) = denial::check(tables, policy, cell, sender.hash, now_q8)
            {
                return Err(reason);
            }
        }
        // What most packets of a spoofed flood meet: nobody of this cell is known, and strangers have used up their part. Not for
        // TCP, which may be answered with a cookie or belong to a connection.
        else if packet.transport == Transport::UDP
            && let Some(account) = Account::of(tables, policy, packet.service as u32)
            && account.is_spent(tables, len, now_q8, Party::Stranger)
        {
            return Err(Reason::ServiceTotal);
        }
    }
    if policy.clock() == Clock::Precise {
        now_q8 = gcra::time_q8(tables.now_ns(Clock::Precise));
    }
    Ok(Request::new(policy, packet, sender, len, now_q8))
}

/// A stranger is about to be refused for want of room. If its segment can belong to a connection, the host's sockets are asked,
/// as often as the budget allows; does not come back if they are.
#[inline(always)]
fn ask_for_proof<T: Stages, R: Relay>(
    tables: &T,
    relay: &R,
    policy: &Policy,
    packet: &Packet,
    request: &Request,
    reason: Reason,
) {
    if packet.transport == Transport::TCP
        && newcomers::take(tables, policy, Allowance::Proofs, request.now_q8)
    {
        relay.hand_over(Successor::Prove, request.baton(reason));
    }
}
