//! Notes of a program for itself or for the next one, in memory whose content the verifier does not follow.

use ratelimit_common::abi::Reason;

use crate::{
    frame::{Frame, MAX_OFFSET},
    packet::{Packet, Transport},
    parse::parse,
    tables::TailCallContext,
};

/// Numbers about which the verifier is made to forget everything.
///
/// The verifier follows every known value through every turn of a loop, and a walk over options has far too many paths: which option,
/// of which length, what was found before. Values that went through such memory look the same after each turn,
/// so all turns are alike, and forty cost little more than one.
pub trait Notes {
    /// The number at `index`, below [`NOTES`].
    fn note(&self, index: usize) -> u64;
    /// Replaces the number at `index`.
    fn set_note(&self, index: usize, value: u64);
}

/// How many numbers [`Notes`] keeps.
pub const NOTES: usize = 64;

/// The places of the tail-call context among the notes.
const OTHERWISE: usize = NOTES - 1;
const SERVICE: usize = NOTES - 2;
const USER: usize = NOTES - 3;
/// Notes from here on have the tail-call context.
pub(crate) const NOTES_TAKEN: usize = USER;

/// Leaves a tail-call context for the next program.
#[inline(always)]
pub fn leave<N: Notes>(notes: &N, context: TailCallContext) {
    notes.set_note(OTHERWISE, context.otherwise as u64);
    notes.set_note(SERVICE, context.service as u64);
    notes.set_note(USER, context.user as u64);
}

/// Takes the tail-call context that the program before has left.
#[inline(always)]
pub(crate) fn take<N: Notes>(notes: &N) -> TailCallContext {
    TailCallContext {
        otherwise: Reason::from_code(notes.note(OTHERWISE) as u32),
        service: notes.note(SERVICE) as u32,
        user: notes.note(USER) as u16,
    }
}

/// Parses the packet once more, for the positions of its headers.
///
/// The verifier is made to forget how the parser got to them: tags and extension headers have hundreds of paths to the same place,
/// and it would follow the rest along each.
#[inline(always)]
pub(crate) fn parse_again<N: Notes>(frame: &Frame<'_>, notes: &N) -> Result<Packet, Reason> {
    let packet = parse(frame)?;
    notes.set_note(0, packet.network_at as u64);
    notes.set_note(1, packet.transport_at as u64);
    notes.set_note(2, packet.transport_len as u64);
    let packet = packet.forgotten(frame.len());
    Ok(Packet {
        // Older verifiers do not see from a comparison that these numbers are bounded; they see it from a mask.
        network_at: notes.note(0) as usize & MAX_OFFSET,
        transport_at: notes.note(1) as usize & MAX_OFFSET,
        transport_len: notes.note(2) as usize,
        ..packet
    })
}

/// Parses a TCP packet once more; an error if it is not of the kind that was expected.
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
