//! What a program notes down for itself or for the next one, in memory that the verifier does not look into.

use ratelimit_common::abi::Reason;

use crate::{
    frame::{Frame, MAX_OFFSET},
    packet::{Packet, Transport},
    parse::parse,
    tables::TailCallContext,
};

/// Numbers that the verifier is made to forget.
///
/// It follows every value it knows through every turn of a loop, and a walk over options has far too many ways: which option,
/// of which length, what was found before. Values that went through memory it does not follow look the same after each turn,
/// so one turn is as good as another and forty cost little more than one.
pub trait Notes {
    /// The number at `index`, below [`NOTES`].
    fn note(&self, index: usize) -> u64;
    /// Replaces the number at `index`.
    fn set_note(&self, index: usize, value: u64);
}

/// How many numbers [`Notes`] keeps.
pub const NOTES: usize = 64;

/// Where the notes have what another program handed over.
const OTHERWISE: usize = NOTES - 1;
const SERVICE: usize = NOTES - 2;
const USER: usize = NOTES - 3;
/// Notes from here on are taken.
pub(crate) const NOTES_TAKEN: usize = USER;

/// Leaves a tail-call context for the next program.
#[inline(always)]
pub fn leave<N: Notes>(notes: &N, context: TailCallContext) {
    notes.set_note(OTHERWISE, context.otherwise as u64);
    notes.set_note(SERVICE, context.service as u64);
    notes.set_note(USER, context.user as u64);
}

/// Takes the tail-call context that was left.
#[inline(always)]
pub(crate) fn take<N: Notes>(notes: &N) -> TailCallContext {
    TailCallContext {
        otherwise: Reason::from_code(notes.note(OTHERWISE) as u32),
        service: notes.note(SERVICE) as u32,
        user: notes.note(USER) as u16,
    }
}

/// The packet, once more, with where its headers are.
///
/// The verifier is made to forget how the parser got to it: tags and extension headers have hundreds of ways to the same place,
/// and it would go on along each.
#[inline(always)]
pub(crate) fn parse_again<N: Notes>(frame: &Frame<'_>, notes: &N) -> Result<Packet, Reason> {
    let packet = parse(frame)?;
    notes.set_note(0, packet.network_at as u64);
    notes.set_note(1, packet.transport_at as u64);
    notes.set_note(2, packet.transport_len as u64);
    let packet = packet.forgotten(frame.len());
    Ok(Packet {
        // Older verifiers do not see from a comparison that these have an end; they do from a mask.
        network_at: notes.note(0) as usize & MAX_OFFSET,
        transport_at: notes.note(1) as usize & MAX_OFFSET,
        transport_len: notes.note(2) as usize,
        ..packet
    })
}

/// The TCP packet, once more; an error if it is not of the kind that was sent here.
#[inline(always)]
pub(crate) fn parse_tcp_again<N: Notes>(
    frame: &Frame<'_>,
    notes: &N,
    expected: Transport,
) -> Result<Packet, Reason> {
    let packet = parse_again(frame, notes)?;
    if packet.transport == expected {
        Ok(Packet { transport: expected, ..packet })
    } else {
        Err(Reason::Conforming)
    }
}
