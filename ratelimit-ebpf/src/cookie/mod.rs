//! SYN cookies: answering a SYN without remembering it, and knowing the acknowledgement again.
//!
//! ```text
//! SYN ---> Segment ---> listener's cookie ---> Reply ---> sent back in the same frame
//! ACK ---> Segment ---> connection or valid cookie? ---> pass | drop
//! ```
//!
//! The cookie is the kernel's own: it comes from the listening socket, and the kernel that gets the acknowledgement makes the
//! connection out of it. So nothing has to be kept here, and no sequence number has to be translated later.
//!
//! Why the helpers that take a socket and not the raw ones of kernel 6.0: a listener accepts cookies only within two minutes
//! of a moment at which it is known to have handed some out. The helper that takes the listener records that moment; the raw
//! one does not know any listener, and the kernel would answer every acknowledgement with a reset. (The raw ones
//! are for netfilter's SYNPROXY, which does not ask.)
//!
//! # What an answer costs
//! One frame per SYN, at most [`MAX_GROWTH`] bytes longer than it. Whoever hopes to reflect a flood at a third party gains
//! nothing, and the limits of the forged source hold for it.

mod options;
mod synack;

pub use options::Offer;
pub use synack::MAX_GROWTH;

use ratelimit_common::abi::{Clock, Policy, Reason, Verdict, policy::NO_TCP_OPTIONS};

use crate::{
    frame::Frame,
    limit::{self, Sender, Stages},
    notes::{parse_tcp_again, take},
    packet::{Family, Packet, Transport},
    pipeline::conclude,
    reply::{Reply, Wire},
    segment::Segment,
    tables::{Baton, Relay},
};
use synack::Terms;

/// What an acknowledgement can show for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// There is a connection that it belongs to.
    Connection,
    /// It carries a cookie of ours.
    Cookie,
    /// Nothing.
    Nothing,
}

/// The sockets of the host.
pub trait Sockets: Wire {
    /// The listener's cookie for a SYN; `None` if nobody listens, or the kernel does not want one.
    fn issue(&self, syn: &Segment, mss: u16) -> Option<u32>;
    /// Whether a segment belongs to a connection, or makes one.
    fn prove(&self, segment: &Segment) -> Proof;
    /// What the interface can receive in one packet.
    fn mtu(&self) -> u32;
}

/// Answers a SYN whose source has been charged for it, and counts it.
#[inline(always)]
pub fn answer<T: Stages, R: Relay, W: Sockets>(
    frame: &Frame<'_>,
    tables: &T,
    relay: &R,
    wire: &W,
) -> Verdict {
    let baton = take(wire);
    let reason = answer_or_admit(frame, tables, wire, &baton);
    conclude(tables, relay, tables.policy(), baton.service, reason, frame.len())
}

#[inline(always)]
fn answer_or_admit<T: Stages, W: Sockets>(frame: &Frame<'_>, tables: &T, wire: &W, baton: &Baton) -> Reason {
    let packet = match parse_tcp_again(frame, wire, Transport::TCP_SYN) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let now_ns = tables.now_ns(Clock::Coarse);
    // Nobody waits for an answer to it, and the kernel would send one too: no need to let it pass.
    if !Segment::read(&wire.reread(frame), &packet).is_some_and(|syn| syn.answerable()) {
        return Reason::CookieInvalid;
    }
    let Some(offer) = options::read(wire, &wire.reread(frame), &packet) else { return Reason::Truncated };
    let frame = &wire.reread(frame);
    // What cannot be answered, nor grow by a word, is for the kernel; then it costs the service what every packet does.
    match reply(wire, frame, policy, &packet, &offer, now_ns) {
        Some(reply) if wire.send(frame.len(), &reply) => Reason::CookieSent,
        _ => limit::limit_crowd(
            tables,
            policy,
            &Packet { service: baton.service as u16, ..packet },
            frame.len(),
            now_ns,
        ),
    }
}

/// Decides about TCP that is no SYN, to a service whose SYNs are answered with cookies, and counts it. The lists have been
/// asked already, by whoever sent the frame here.
#[inline(always)]
pub fn prove<T: Stages, R: Relay, W: Sockets>(frame: &Frame<'_>, tables: &T, relay: &R, wire: &W) -> Verdict {
    let baton = take(wire);
    let reason = prove_and_limit(frame, tables, wire, &baton);
    conclude(tables, relay, tables.policy(), baton.service, reason, frame.len())
}

#[inline(always)]
fn prove_and_limit<T: Stages, W: Sockets>(frame: &Frame<'_>, tables: &T, wire: &W, baton: &Baton) -> Reason {
    let packet = match parse_tcp_again(frame, wire, Transport::TCP) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let frame = &wire.reread(frame);
    let Some(segment) = Segment::read(frame, &packet) else { return Reason::Truncated };
    let proof = wire.prove(&segment);
    let now_ns = tables.now_ns(Clock::Coarse);
    let packet = Packet { service: baton.service as u16, user: baton.user, ..packet };
    let admitted = match proof {
        Proof::Connection => Reason::Conforming,
        Proof::Cookie => Reason::CookieValid,
        Proof::Nothing => {
            let refused = (&packet, Sender::key_of(policy, &packet));
            limit::report_unasked(tables, policy, refused, frame.len(), now_ns, baton.otherwise);
            return baton.otherwise;
        }
    };
    limit::limit_proven(tables, policy, &packet, frame.len(), now_ns, admitted)
}

/// The answer to a SYN, if it is to have one.
#[inline(always)]
fn reply<W: Sockets>(
    wire: &W,
    frame: &Frame<'_>,
    policy: &Policy,
    packet: &Packet,
    offer: &Offer,
    now_ns: u64,
) -> Option<Reply> {
    if !wire.answers() {
        return None;
    }
    // Sent to a group: the stack does not take it either, and an answer would come from the group.
    // (A view of one byte would do, but not compile to a comparison that the verifier knows.)
    if frame.view::<14>(0)?.u8::<0>() & 1 != 0 {
        return None;
    }
    let syn = Segment::read(frame, packet)?;
    let cookie = wire.issue(&syn, offer.mss_or_default(packet.source.family))?;
    let headers = match packet.source.family {
        Family::V4 => 40,
        Family::V6 => 60,
    };
    let terms = Terms {
        cookie,
        mss: wire.mtu().saturating_sub(headers).min(u16::MAX as u32) as u16,
        window_scale: if policy.window_scale == NO_TCP_OPTIONS {
            None
        } else {
            Some(policy.window_scale as u8)
        },
        now_ms: now_ns / 1_000_000,
    };
    Some(synack::build(wire, &syn, offer, &terms, packet.network_at))
}

#[cfg(test)]
mod tests;
