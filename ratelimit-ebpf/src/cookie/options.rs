//! The TCP options of a SYN: what the client offers.

use network_types::tcp::TcpHdr;

use crate::{
    frame::Frame,
    notes::Notes,
    packet::{Family, Packet},
    segment::LENGTH_AT,
};

const MAX_OPTIONS: usize = 40;
/// Notes 0 to 4 have the options, big endian; the byte behind the last one may be read as a length, so one word more.
const OPTION_WORDS: usize = MAX_OPTIONS / 8;
const AT: usize = 6;
const FOUND: usize = 7;
const LEN: usize = 8;

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: (u8, usize) = (2, 4);
const WINDOW_SCALE: (u8, usize) = (3, 3);
const SACK_PERMITTED: (u8, usize) = (4, 2);
const TIMESTAMPS: (u8, usize) = (8, 10);

/// The largest window scale there is; larger ones count as this (RFC 7323).
const MAX_WINDOW_SCALE: u8 = 14;

/// The options that a client offers, packed into one word, so that they fit into a note.
///
/// ```text
/// | 63 ... 32 |  21  |  20   | 19 ... 16 | 15 ... 0 |
/// | timestamp | time | SACK  | scale + 1 |   MSS    |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offer(u64);

const SCALE_SHIFT: u32 = 16;
const SACK: u64 = 1 << 20;
const TIME: u64 = 1 << 21;
const TIMESTAMP_SHIFT: u32 = 32;

impl Offer {
    /// The MSS that the client offers, or the default without one (RFC 9293 3.7.1).
    #[inline(always)]
    pub fn mss_or_default(self, family: Family) -> u16 {
        match (self.0 as u16, family) {
            (0, Family::V4) => 536,
            (0, Family::V6) => 1220,
            (mss, _) => mss,
        }
    }

    /// The client's window scale.
    #[inline(always)]
    pub fn window_scale(self) -> Option<u8> {
        ((self.0 >> SCALE_SHIFT) as u8 & 0xf).checked_sub(1)
    }

    /// Whether the client can use selective acknowledgements.
    #[inline(always)]
    pub fn sack(self) -> bool {
        self.0 & SACK != 0
    }

    /// The client's timestamp.
    #[inline(always)]
    pub fn timestamp(self) -> Option<u32> {
        (self.0 & TIME != 0).then_some((self.0 >> TIMESTAMP_SHIFT) as u32)
    }

    #[inline(always)]
    fn with(self, mask: u64, bits: u64) -> Self {
        Self((self.0 & !mask) | bits)
    }
}

/// Reads the options of a TCP header; `None` if the header is not complete.
#[inline(always)]
pub(super) fn read<N: Notes>(notes: &N, frame: &Frame<'_>, packet: &Packet) -> Option<Offer> {
    let header = frame.view::<{ TcpHdr::LEN }>(packet.transport_at)?;
    let header_len = (header.u8::<LENGTH_AT>() >> 4) as usize * 4;
    if header_len < TcpHdr::LEN || header_len > packet.transport_len {
        return None;
    }
    let len = (header_len - TcpHdr::LEN) as u64;
    let start = packet.transport_at + TcpHdr::LEN;
    for index in 0..=OPTION_WORDS {
        // Options come in words of four bytes, so half of the last eight bytes may lie behind them.
        let at = index as u64 * 8;
        let high = if at < len { u64::from(frame.view::<4>(start + index * 8)?.u32_be::<0>()) } else { 0 };
        let low =
            if at + 4 < len { u64::from(frame.view::<4>(start + index * 8 + 4)?.u32_be::<0>()) } else { 0 };
        notes.set_note(index, (high << 32) | low);
    }
    notes.set_note(LEN, len);
    Some(walk(notes))
}

/// Walks over the options as the kernel does: an invalid option ends the walk, and the options before it count.
#[inline(always)]
fn walk<N: Notes>(notes: &N) -> Offer {
    let len = notes.note(LEN);
    notes.set_note(AT, 0);
    notes.set_note(FOUND, 0);
    for _ in 0..MAX_OPTIONS {
        let at = notes.note(AT);
        if at >= len {
            break;
        }
        let kind = byte(notes, at);
        if kind == END {
            break;
        }
        if kind == NOTHING {
            notes.set_note(AT, at + 1);
            continue;
        }
        let size = u64::from(byte(notes, at + 1));
        if size < 2 || at + size > len {
            break;
        }
        let found = Offer(notes.note(FOUND));
        notes.set_note(FOUND, take(notes, found, kind, size as usize, at + 2).0);
        notes.set_note(AT, at + size);
    }
    Offer(notes.note(FOUND))
}

#[inline(always)]
fn take<N: Notes>(notes: &N, found: Offer, kind: u8, size: usize, at: u64) -> Offer {
    if (kind, size) == MSS {
        let mss = (u64::from(byte(notes, at)) << 8) | u64::from(byte(notes, at + 1));
        found.with(0xffff, mss)
    } else if (kind, size) == WINDOW_SCALE {
        let scale = u64::from(byte(notes, at).min(MAX_WINDOW_SCALE));
        found.with(0xf << SCALE_SHIFT, (scale + 1) << SCALE_SHIFT)
    } else if (kind, size) == SACK_PERMITTED {
        found.with(SACK, SACK)
    } else if (kind, size) == TIMESTAMPS {
        let upper = (u64::from(byte(notes, at)) << 8) | u64::from(byte(notes, at + 1));
        let lower = (u64::from(byte(notes, at + 2)) << 8) | u64::from(byte(notes, at + 3));
        found.with(TIME | (u64::MAX << TIMESTAMP_SHIFT), TIME | (((upper << 16) | lower) << TIMESTAMP_SHIFT))
    } else {
        found
    }
}

/// One byte of the options.
#[inline(always)]
fn byte<N: Notes>(notes: &N, at: u64) -> u8 {
    (notes.note((at >> 3) as usize) >> (56 - (at & 7) * 8)) as u8
}
