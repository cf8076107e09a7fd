//! The answer to a SYN.

use super::options::Offer;
use crate::{
    notes::Notes,
    reply::{Check, Pen, ReplyFrame, Route, TCP, tcp},
    segment::Segment,
};

/// Bytes by which an answer may be longer than its SYN: for the MSS if the SYN has none, or for options that the client has packed
/// closer than whole words.
pub const MAX_GROWTH: u64 = 4;

const SYN_ACK: u32 = 0x12;

/// Segments that a client may send before it hears from the kernel, which then announces its real window: the usual
/// first flight (RFC 6928).
const FIRST_FLIGHT: u32 = 10;
/// A larger MSS does not make the first window larger.
const LARGEST_COOKIE_MSS: u32 = 1460;

/// Where the kernel looks for the options when the acknowledgement comes: the low bits of the timestamp that is echoed.
/// (TS_OPT_* in net/ipv4/syncookies.c; bit 5 would be ECN, which we do not offer.)
const OPTION_BITS: u32 = 6;
const OPTION_SACK: u64 = 1 << 4;
const OPTION_NO_SCALE: u64 = 0xf;

/// The terms of a SYN-ACK that this host sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SynAckTerms {
    /// The cookie, which is the sequence number.
    pub(super) cookie: u32,
    /// The MSS that this host announces.
    pub(super) mss: u16,
    /// Bytes that the listener has room for, if that is less than usual.
    pub(super) room: u32,
    /// Whether options other than the MSS can be used.
    pub(super) options: bool,
    /// The window scale, if it is known.
    pub(super) window_scale: Option<u8>,
    /// The kernel's clock of TCP timestamps in milliseconds, without an offset.
    pub(super) now_ms: u64,
}

#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    syn: &Segment,
    offer: &Offer,
    terms: &SynAckTerms,
    network_at: usize,
) -> ReplyFrame {
    let mut header = Pen::new(notes);
    let words = tcp_header(&mut header, syn, offer, terms);
    let route = Route { source: syn.destination, destination: syn.source, protocol: TCP, network_at };
    ReplyFrame::with_body(header, words, Check::Upper(tcp::CHECKSUM), &route)
}

/// Writes a TCP header without its checksum, and returns its length in words.
#[inline(always)]
fn tcp_header<N: Notes>(header: &mut Pen<'_, N>, syn: &Segment, offer: &Offer, terms: &SynAckTerms) -> u32 {
    let window = (FIRST_FLIGHT * u32::from(terms.mss).min(LARGEST_COOKIE_MSS)).min(terms.room);
    header.body(tcp::PORTS, syn.ports().rotate_left(16));
    header.body(tcp::SEQUENCE, terms.cookie.to_be());
    header.body(tcp::ACKNOWLEDGED, syn.sequence().wrapping_add(1).to_be());
    header.body(tcp::OPTIONS, (0x0204_0000 | u32::from(terms.mss)).to_be());
    header.body(tcp::CHECKSUM, 0);
    let mut words = tcp::OPTIONS as u32 + 1;
    // Without a timestamp that carries them, the kernel would not recover the other options.
    if terms.options
        && let Some(theirs) = offer.timestamp()
    {
        let scales = offer.window_scale().zip(terms.window_scale);
        header.body(tcp::OPTIONS + 1, (if offer.sack() { 0x0402_080a_u32 } else { 0x0101_080a }).to_be());
        header
            .body(tcp::OPTIONS + 2, timestamp(offer, scales.map(|(theirs, _)| theirs), terms.now_ms).to_be());
        header.body(tcp::OPTIONS + 3, theirs.to_be());
        words += 3;
        if let Some((_, ours)) = scales {
            header.body(tcp::OPTIONS + 4, (0x0103_0300 | u32::from(ours)).to_be());
            words += 1;
        }
    }
    header.body(tcp::SHAPE, ((words << 28) | (SYN_ACK << 16) | window).to_be());
    words
}

/// The timestamp with the options in its low bits. Never ahead of the clock, which the kernel's next timestamp will have.
/// `scale` is the client's window scale, if windows are scaled.
#[inline(always)]
fn timestamp(offer: &Offer, scale: Option<u8>, now_ms: u64) -> u32 {
    let sack = if offer.sack() { OPTION_SACK } else { 0 };
    let options = sack | scale.map_or(OPTION_NO_SCALE, u64::from);
    let stamp = ((now_ms >> OPTION_BITS) << OPTION_BITS) | options;
    (if stamp > now_ms { stamp.wrapping_sub(1 << OPTION_BITS) } else { stamp }) as u32
}
