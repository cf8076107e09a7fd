//! SYN cookies: a SYN is answered without memory of it, and its acknowledgement proves that the client received the answer.
//!
//! ```text
//! SYN ---> Segment ---> listener's cookie ---> ReplyFrame ---> sent back in the same frame
//! ACK ---> Segment ---> connection or valid cookie? ---> pass | drop
//! ```
//!
//! The cookie is the kernel's own: it comes from the listening socket, and the kernel makes the connection
//! from the acknowledgement. So no state has to be kept here, and no sequence number has to be translated later.
//!
//! Where the destination is no listener of this host, because the host forwards the packet or translates its destination, no SYN is answered
//! and no segment is refused for lack of proof. Translation in front of a listener is not visible here; the daemon takes cookies off such services.
//!
//! This uses the helpers that take a socket, not the raw ones of kernel 6.0: a listener accepts cookies only within two minutes
//! of a moment at which it is known to have issued some. The helper that takes the listener records that moment; the raw
//! one knows no listener, and the kernel would answer every acknowledgement with a reset. (The raw ones
//! are for netfilter's SYNPROXY, which does not check the moment.)
//!
//! # What an answer costs
//! One frame per SYN, at most [`MAX_GROWTH`] bytes longer than the SYN. Reflecting a flood at a third party gains
//! nothing: the limits of the forged source in packets and bytes apply to it, if there is room for its entry.

mod listener;
mod options;
mod synack;

pub use crate::limit::Proof;
pub use listener::CookieListener;
pub use options::Offer;
pub use synack::MAX_GROWTH;

use network_types::tcp::TcpHdr;
use ratelimit_common::abi::{Clock, Policy, Reason, Verdict, policy::NO_TCP_OPTIONS};

use crate::{
    forget::forget,
    frame::Frame,
    limit::{self, Sender, Stages},
    notes::{parse_again, parse_tcp_again, take},
    packet::{Packet, Transport},
    reply::{ReplyFrame, Wire, is_of_group},
    segment::Segment,
    tables::{Relay, Successor},
    verdict::conclude,
};
use synack::SynAckTerms;

/// A cookie that the kernel has issued.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// The cookie, which is the sequence number of the answer.
    pub cookie: u32,
    /// The MSS in the cookie: the client's, rounded down.
    pub mss: u16,
    /// The listener; `None` if the program cannot read this kernel's sockets.
    pub listener: Option<CookieListener>,
}

/// The sockets of the host.
pub trait Sockets: Wire {
    /// The listener's cookie for a SYN; `None` if nobody listens, or the kernel refuses to issue one.
    fn issue(&self, syn: &Segment, mss: u16) -> Option<Issued>;
    /// What a segment can show: that it belongs to a connection, or opens one, or that it is for no socket of this host.
    /// The packet is refused with the reason `otherwise` if it shows nothing.
    fn prove(&self, packet: &Packet, otherwise: Reason) -> Proof;
    /// Whether the host forwards a packet to this destination: a listener at any address would be found, and would never get it.
    fn forwards(&self, packet: &Packet) -> bool;
    /// The MTU of the interface.
    fn mtu(&self) -> u32;
}

/// Answers a SYN for which its source has been charged, and counts the frame.
#[inline(always)]
pub fn answer<T: Stages, R: Relay, W: Sockets>(
    frame: &Frame<'_>,
    tables: &T,
    relay: &R,
    wire: &W,
) -> Verdict {
    let context = take(wire);
    let reason = answer_unless_admitted(frame, tables, wire).unwrap_or_else(|| {
        // A SYN that cannot be answered goes to the kernel, and is then charged like every SYN.
        relay.hand_over(Successor::Prove, context);
        Reason::CookieInvalid
    });
    conclude(tables, relay, tables.policy(), context.service, reason, frame.len())
}

/// The reason that a SYN ends with; `None` if no listener of this host gets it, or if the frame cannot grow by a word.
#[inline(always)]
fn answer_unless_admitted<T: Stages, W: Sockets>(frame: &Frame<'_>, tables: &T, wire: &W) -> Option<Reason> {
    let packet = match parse_tcp_again(frame, wire, Transport::TCP_SYN) {
        Ok(packet) => packet,
        Err(reason) => return Some(reason),
    };
    let Some(policy) = tables.policy() else { return Some(Reason::Unlimited) };
    let now_ns = tables.now_ns(Clock::Coarse);
    // No client waits for an answer to this SYN. It need not pass either: the kernel would send one.
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

/// Judges TCP packets to a service whose SYNs are answered with cookies, or of an untracked source that may have a connection, and SYNs that
/// could not be answered; counts the frame. The program that made the tail call has already looked into the lists.
#[inline(always)]
pub fn prove<T: Stages, R: Relay, W: Sockets>(frame: &Frame<'_>, tables: &T, relay: &R, wire: &W) -> Verdict {
    let reason = prove_and_limit(frame, tables, wire);
    conclude(tables, relay, tables.policy(), take(wire).service, reason, frame.len())
}

/// The reason that a packet ends with. The tail-call context is read where it is needed: kept meanwhile, it would not fit on the stack.
#[inline(always)]
fn prove_and_limit<T: Stages, W: Sockets>(frame: &Frame<'_>, tables: &T, wire: &W) -> Reason {
    let packet = match parse_again(frame, wire) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let frame = &wire.reread(frame);
    let len = frame.len();
    // A SYN shows nothing, even if its addresses and ports belong to a connection.
    let proof = match packet.transport {
        Transport::TCP_SYN => Proof::Handshake,
        _ => wire.prove(&packet, take(wire).otherwise),
    };
    let context = take(wire);
    // A cookie opens a connection, so the packet is charged as the SYN that was answered.
    let transport = if proof == Proof::Cookie { Transport::TCP_SYN } else { packet.transport };
    // Forgotten again: the lookup has a path for each family and each kind of socket, and the verifier would follow the rest along each.
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

/// The answer to a SYN, if there is one.
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
    // The stack does not accept a SYN from such a frame either, and an answer would have the group as its source, or go to all of it.
    if is_of_group(frame)? {
        return None;
    }
    let syn = Segment::read(frame, packet)?;
    let issued = wire.issue(&syn, offer.mss_or_default(packet.source.family))?;
    if wire.forwards(packet) {
        return None;
    }
    let headers = packet.source.family.header_len() + TcpHdr::LEN;
    let mss = wire.mtu().saturating_sub(headers as u32).min(u16::MAX as u32) as u16;
    let terms = SynAckTerms {
        cookie: issued.cookie,
        mss: issued.listener.map_or(mss, |listener| listener.segment(mss)),
        room: issued.listener.map_or(u32::MAX, |listener| listener.window(issued.mss)),
        options: policy.window_scale != NO_TCP_OPTIONS,
        // Not the host's scale if the listener may have another: without a scale both sides agree.
        window_scale: issued
            .listener
            .map(|listener| listener.window_scale(policy.window_scale as u8, issued.mss)),
        now_ms: now_ns / 1_000_000,
    };
    Some(synack::build(wire, &syn, offer, &terms, packet.network_at))
}

#[cfg(test)]
mod tests;
