//! SYN cookies: answering a SYN without remembering it, and knowing the acknowledgement again.
//!
//! ```text
//! SYN ---> Segment ---> listener's cookie ---> ReplyFrame ---> sent back in the same frame
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
//! nothing: the limits of the forged source in packets and bytes hold for it, where there is room to keep an account of it.

mod listener;
mod options;
mod synack;

pub use crate::limit::Proof;
pub use listener::CookieListener;
pub use options::Offer;
pub use synack::MAX_GROWTH;

use network_types::{eth::EthHdr, tcp::TcpHdr};
use ratelimit_common::abi::{Clock, Policy, Reason, Verdict, policy::NO_TCP_OPTIONS};

use crate::{
    forget::forget,
    frame::Frame,
    limit::{self, Sender, Stages},
    notes::{parse_again, parse_tcp_again, take},
    packet::{Packet, Transport},
    reply::{ReplyFrame, Wire},
    segment::Segment,
    tables::{Relay, Successor, TailCallContext},
    verdict::conclude,
};
use synack::SynAckTerms;

/// A cookie, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// The sequence number.
    pub cookie: u32,
    /// The MSS that is in it: the client's, rounded down.
    pub mss: u16,
    /// The listener; `None` if this kernel does not let us look at it.
    pub listener: Option<CookieListener>,
}

/// The sockets of the host.
pub trait Sockets: Wire {
    /// The listener's cookie for a SYN; `None` if nobody listens, or the kernel does not want one.
    fn issue(&self, syn: &Segment, mss: u16) -> Option<Issued>;
    /// Whether a segment belongs to a connection, or makes one.
    fn prove(&self, packet: &Packet) -> Proof;
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
    let context = take(wire);
    let reason = answer_unless_admitted(frame, tables, wire).unwrap_or_else(|| {
        // What cannot be answered is for the kernel; then it costs what every SYN does.
        relay.hand_over(Successor::Prove, context);
        Reason::CookieInvalid
    });
    conclude(tables, relay, tables.policy(), context.service, reason, frame.len())
}

/// What became of a SYN; `None` if nobody listens for it, or the frame cannot grow by a word.
#[inline(always)]
fn answer_unless_admitted<T: Stages, W: Sockets>(frame: &Frame<'_>, tables: &T, wire: &W) -> Option<Reason> {
    let packet = match parse_tcp_again(frame, wire, Transport::TCP_SYN) {
        Ok(packet) => packet,
        Err(reason) => return Some(reason),
    };
    let Some(policy) = tables.policy() else { return Some(Reason::Unlimited) };
    let now_ns = tables.now_ns(Clock::Coarse);
    // No client waits for an answer to it, and the kernel would send one too: no need to let it pass.
    if !Segment::read(&wire.reread(frame), &packet).is_some_and(|syn| syn.answerable()) {
        return Some(Reason::CookieInvalid);
    }
    let Some(offer) = options::read(wire, &wire.reread(frame), &packet) else {
        return Some(Reason::Truncated);
    };
    let frame = &wire.reread(frame);
    match reply(wire, frame, policy, &packet, &offer, now_ns) {
        Some(reply) if wire.send(frame.len(), &reply) => Some(Reason::CookieSent),
        _ => None,
    }
}

/// Decides about TCP to a service whose SYNs are answered with cookies, or of an untracked source that may have a connection, and about SYNs that
/// could not be answered; counts it. The lists have been asked already, by whoever sent the frame here.
#[inline(always)]
pub fn prove<T: Stages, R: Relay, W: Sockets>(frame: &Frame<'_>, tables: &T, relay: &R, wire: &W) -> Verdict {
    let context = take(wire);
    let reason = prove_and_limit(frame, tables, wire, &context);
    conclude(tables, relay, tables.policy(), context.service, reason, frame.len())
}

#[inline(always)]
fn prove_and_limit<T: Stages, W: Sockets>(
    frame: &Frame<'_>,
    tables: &T,
    wire: &W,
    context: &TailCallContext,
) -> Reason {
    let packet = match parse_again(frame, wire) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let frame = &wire.reread(frame);
    let len = frame.len();
    // A SYN shows nothing, whatever there is of the same addresses and ports.
    let proof = if packet.transport == Transport::TCP_SYN { Proof::Handshake } else { wire.prove(&packet) };
    // A cookie opens a connection, so it pays for the SYN that was answered.
    let transport = if proof == Proof::Cookie { Transport::TCP_SYN } else { packet.transport };
    // Forgotten once more: the lookup has a way for each family and each kind of socket, and the verifier would go on along each.
    let proof = Proof::from_code(forget(proof as u64, len) as u32);
    let packet =
        Packet { transport, service: context.service as u16, user: context.user, ..packet }.forgotten(len);
    let now_ns = tables.now_ns(Clock::Coarse);
    if proof == Proof::Nothing {
        let refused = (&packet, Sender::key_of(policy, packet.source));
        limit::report_unasked(tables, policy, refused, len, now_ns, context.otherwise);
        return context.otherwise;
    }
    limit::limit_shown(tables, policy, &packet, len, now_ns, proof)
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
) -> Option<ReplyFrame> {
    if !wire.answers() {
        return None;
    }
    // Sent to a group: the stack does not take it either, and an answer would come from the group.
    // (A view of one byte would do, but not compile to a comparison that the verifier knows.)
    if frame.view::<{ EthHdr::LEN }>(0)?.u8::<0>() & 1 != 0 {
        return None;
    }
    let syn = Segment::read(frame, packet)?;
    let issued = wire.issue(&syn, offer.mss_or_default(packet.source.family))?;
    let headers = packet.source.family.header_len() + TcpHdr::LEN;
    let mss = wire.mtu().saturating_sub(headers as u32).min(u16::MAX as u32) as u16;
    let terms = SynAckTerms {
        cookie: issued.cookie,
        mss: issued.listener.map_or(mss, |listener| listener.segment(mss)),
        room: issued.listener.map_or(u32::MAX, |listener| listener.window(issued.mss)),
        options: policy.window_scale != NO_TCP_OPTIONS,
        // Not the host's where the listener may have another: without a scale both sides agree.
        window_scale: issued
            .listener
            .map(|listener| listener.window_scale(policy.window_scale as u8, issued.mss)),
        now_ms: now_ns / 1_000_000,
    };
    Some(synack::build(wire, &syn, offer, &terms, packet.network_at))
}

#[cfg(test)]
mod tests;
