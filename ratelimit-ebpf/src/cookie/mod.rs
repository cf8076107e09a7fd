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

mod checksum;
mod options;
mod segment;
mod synack;

pub use options::{NOTES, Notes, Offer};
pub use segment::Segment;
pub use synack::{MAX_GROWTH, Reply, draw};

use ratelimit_common::abi::{Clock, Policy, Reason, Verdict, policy::NO_TCP_OPTIONS};

use crate::{
    frame::{Frame, MAX_OFFSET},
    limit::{self, Stages},
    packet::{Family, Packet, Transport},
    parse::parse,
    pipeline::conclude,
    tables::Baton,
};
use synack::Terms;

/// Where the notes have what another program handed over.
const OTHERWISE: usize = NOTES - 1;
const SERVICE: usize = NOTES - 2;
const USER: usize = NOTES - 3;

/// Leaves a baton for the next program.
#[inline(always)]
pub fn leave<N: Notes>(notes: &N, baton: Baton) {
    notes.set_note(OTHERWISE, baton.otherwise as u64);
    notes.set_note(SERVICE, baton.service as u64);
    notes.set_note(USER, baton.user as u64);
}

/// Takes the baton that was left.
#[inline(always)]
fn take<N: Notes>(notes: &N) -> Baton {
    Baton {
        otherwise: Reason::from_code(notes.note(OTHERWISE) as u32),
        service: notes.note(SERVICE) as u32,
        user: notes.note(USER) as u16,
    }
}

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

/// The sockets of the host, and the frame as something to write to.
pub trait Wire: Notes {
    /// The listener's cookie for a SYN; `None` if nobody listens, or the kernel does not want one.
    fn issue(&self, syn: &Segment, mss: u16) -> Option<u32>;
    /// Whether a segment belongs to a connection, or makes one.
    fn prove(&self, segment: &Segment) -> Proof;
    /// The same frame by fresh pointers. The verifier remembers of each pointer how many bytes behind it have been checked, and
    /// does not take two ways for one that checked differently far.
    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f>;
    /// What the interface can receive in one packet.
    fn mtu(&self) -> u32;
    /// Turns the frame of this length into a reply.
    fn send(&self, len: u64, reply: &Reply) -> bool;
}

/// Answers a SYN whose source has been charged for it, and counts it.
#[inline(always)]
pub fn answer<T: Stages, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Verdict {
    let baton = take(wire);
    let reason = answer_or_admit(frame, tables, wire, &baton);
    conclude(tables, tables.policy(), baton.service, reason, frame.len())
}

#[inline(always)]
fn answer_or_admit<T: Stages, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W, baton: &Baton) -> Reason {
    let packet = match tcp(frame, wire, Transport::TCP_SYN) {
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
pub fn prove<T: Stages, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W) -> Verdict {
    let baton = take(wire);
    let reason = prove_and_limit(frame, tables, wire, &baton);
    conclude(tables, tables.policy(), baton.service, reason, frame.len())
}

#[inline(always)]
fn prove_and_limit<T: Stages, W: Wire>(frame: &Frame<'_>, tables: &T, wire: &W, baton: &Baton) -> Reason {
    let packet = match tcp(frame, wire, Transport::TCP) {
        Ok(packet) => packet,
        Err(reason) => return reason,
    };
    let Some(policy) = tables.policy() else { return Reason::Unlimited };
    let frame = &wire.reread(frame);
    let Some(segment) = Segment::read(frame, &packet) else { return Reason::Truncated };
    let admitted = match wire.prove(&segment) {
        Proof::Connection => Reason::Conforming,
        Proof::Cookie => Reason::CookieValid,
        Proof::Nothing => return baton.otherwise,
    };
    let now_ns = tables.now_ns(Clock::Coarse);
    let packet = Packet { service: baton.service as u16, user: baton.user, ..packet };
    limit::limit_proven(tables, policy, &packet, frame.len(), now_ns, admitted)
}

/// The packet, once more, which is of the kind that was sent here.
///
/// The verifier is made to forget how the parser got to it: tags and extension headers have hundreds of ways to the same place,
/// and it would go on along each.
#[inline(always)]
fn tcp<N: Notes>(frame: &Frame<'_>, notes: &N, expected: Transport) -> Result<Packet, Reason> {
    let packet = parse(frame)?;
    if packet.transport != expected {
        return Err(Reason::Conforming);
    }
    notes.set_note(0, packet.network_at as u64);
    notes.set_note(1, packet.transport_at as u64);
    notes.set_note(2, packet.transport_len as u64);
    notes.set_note(3, u64::from(packet.fragment));
    Ok(Packet {
        transport: expected,
        // Older verifiers do not see from a comparison that these have an end; they do from a mask.
        network_at: notes.note(0) as usize & MAX_OFFSET,
        transport_at: notes.note(1) as usize & MAX_OFFSET,
        transport_len: notes.note(2) as usize,
        fragment: notes.note(3) != 0,
        ..packet
    })
}

/// The answer to a SYN, if it is to have one.
#[inline(always)]
fn reply<W: Wire>(
    wire: &W,
    frame: &Frame<'_>,
    policy: &Policy,
    packet: &Packet,
    offer: &Offer,
    now_ns: u64,
) -> Option<Reply> {
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
