//! The answer to a SYN.

use super::options::Offer;
use crate::{
    notes::Notes,
    reply::{Check, Pen, ReplyFrame, Route, TCP, tcp},
    segment::Segment,
};

/// Bytes that an answer may be longer than its SYN: the MSS of a SYN that has none, or options that the client has packed
/// closer than whole words.
pub const MAX_GROWTH: u64 = 4;

const SYN_ACK: u32 = 0x12;

/// Segments that a client may send before it hears from the kernel, which then says what it really has room for: the usual
/// first flight (RFC 6928).
const FIRST_FLIGHT: u32 = 10;
/// An MSS above this does not make that window larger.
const LARGEST_COOKIE_MSS: u32 = 1460;

/// Where the kernel looks for the options when the acknowledgement comes: the low bits of the timestamp that is echoed.
/// (TS_OPT_* in net/ipv4/syncookies.c; bit 5 would be ECN, which we do not offer.)
const OPTION_BITS: u32 = 6;
const OPTION_SACK: u64 = 1 << 4;
const OPTION_NO_SCALE: u64 = 0xf;

/// What this host says in a SYN-ACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct SynAckTerms {
    /// The sequence number.
    pub(super) cookie: u32,
    /// What we can receive in one segment.
    pub(super) mss: u16,
    /// What the listener has room for, if less than that is usual.
    pub(super) room: u32,
    /// Whether options other than the MSS can be used at all.
    pub(super) options: bool,
    /// The window scale, if it is known.
    pub(super) window_scale: Option<u8>,
    /// The kernel's clock of TCP timestamps, without an offset.
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

/// Writes a header without its checksum, and says how many words it has.
#[inline(always)]
fn tcp_header<N: Notes>(header: &mut Pen<'_, N>, syn: &Segment, offer: &Offer, terms: &SynAckTerms) -> u32 {
    let window = (FIRST_FLIGHT * u32::from(terms.mss).min(LARGEST_COOKIE_MSS)).min(terms.room);
    header.body(tcp::PORTS, syn.ports().rotate_left(16));
    header.body(tcp::SEQUENCE, terms.cookie.to_be());
    header.body(tcp::ACKNOWLEDGED, syn.sequence().wrapping_add(1).to_be());
    header.body(tcp::OPTIONS, (0x0204_0000 | u32::from(terms.mss)).to_be());
    header.body(tcp::CHECKSUM, 0);
    let mut words = tcp::OPTIONS as u32 + 1;
    // Without a timestamp to carry them, the kernel would not know of the other options.
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

/// The clock, with the options in its low bits. Never ahead of the clock, which the kernel's next timestamp will show.
/// `scale` is the client's, if windows are scaled at all.
#[inline(always)]
fn timestamp(offer: &Offer, scale: Option<u8>, now_ms: u64) -> u32 {
    let sack = if offer.sack() { OPTION_SACK } else { 0 };
    let options = sack | scale.map_or(OPTION_NO_SCALE, u64::from);
    let stamp = ((now_ms >> OPTION_BITS) << OPTION_BITS) | options;
    (if stamp > now_ms { stamp.wrapping_sub(1 << OPTION_BITS) } else { stamp }) as u32
}
