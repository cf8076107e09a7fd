//! The answer to a SYN.

use super::{
    checksum,
    options::{NOTES, Notes, Offer},
    segment::{HEADER_LEN, Segment},
};
use crate::{frame::Canvas, packet::Family};

/// Bytes that an answer may be longer than its SYN: the MSS of a SYN that has none, or options that the client has packed
/// closer than whole words.
pub const MAX_GROWTH: u64 = 4;

/// Hops that the answer may take, as Linux has it.
const HOPS: u32 = 64;
/// Don't fragment, as the kernel's own answers.
const DONT_FRAGMENT: u32 = 0x4000;
const TCP: u32 = 6;
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

/// What this host says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The sequence number.
    pub(super) cookie: u32,
    /// What we can receive.
    pub(super) mss: u16,
    /// The window scale, if options can be used at all.
    pub(super) window_scale: Option<u8>,
    /// The kernel's clock of TCP timestamps, without an offset.
    pub(super) now_ms: u64,
}

/// An answer whose words are in [`Notes`]: the stack of a kernel program is too small for them. Words are as they lie in
/// memory; the Ethernet header and its tags are still those of the SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Where the IP header starts.
    network_at: usize,
    /// Whose it is.
    family: Family,
    /// Words of the TCP header: 6, 9 or 10.
    tcp_words: u32,
}

/// Where the words of the IP header are.
const IP_WORDS: usize = 10;
/// Where the words of the TCP header are.
const TCP_WORDS: usize = 20;
const _: () = assert!(TCP_WORDS + 10 <= NOTES, "the longest answer fits");

impl Reply {
    /// Length of the frame.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        let ip = match self.family {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        self.network_at as u64 + ip + u64::from(self.tcp_words) * 4
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[inline(always)]
pub(super) fn build<N: Notes>(
    notes: &N,
    syn: &Segment,
    offer: &Offer,
    terms: &Terms,
    network_at: usize,
) -> Reply {
    let mut tcp = Pen { notes, sum: 0 };
    let tcp_words = tcp_header(&mut tcp, syn, offer, terms);
    let tcp_len = tcp_words * 4;
    let mut ip = Pen { notes, sum: 0 };
    let (source, destination) = (syn.destination, syn.source);
    let family = syn.source.family;
    // What the checksum of TCP covers of IP: protocol, length and addresses.
    let pseudo = u64::from(TCP.to_be()) + u64::from(tcp_len.to_be());
    match family {
        Family::V4 => {
            let hops = ((HOPS << 24) | (TCP << 16)).to_be();
            ip.put(IP_WORDS + 3, source.v4_word());
            ip.put(IP_WORDS + 4, destination.v4_word());
            tcp.sum += ip.sum + pseudo;
            ip.put(IP_WORDS, (0x4500_0000 | (20 + tcp_len)).to_be());
            ip.put(IP_WORDS + 1, DONT_FRAGMENT.to_be());
            ip.put(IP_WORDS + 2, hops);
            let check = checksum::finish(ip.sum);
            ip.put(IP_WORDS + 2, hops | in_lower_half(check));
        }
        Family::V6 => {
            ip.put_halves(IP_WORDS + 2, source.key.hi);
            ip.put_halves(IP_WORDS + 4, source.key.lo);
            ip.put_halves(IP_WORDS + 6, destination.key.hi);
            ip.put_halves(IP_WORDS + 8, destination.key.lo);
            tcp.sum += ip.sum + pseudo;
            ip.put(IP_WORDS, 0x6000_0000_u32.to_be());
            ip.put(IP_WORDS + 1, ((tcp_len << 16) | (TCP << 8) | HOPS).to_be());
        }
    }
    let check = checksum::finish(tcp.sum);
    tcp.put(TCP_WORDS + 4, in_upper_half(check));
    Reply { network_at, family, tcp_words }
}

/// Writes words down and adds them up.
struct Pen<'n, N> {
    notes: &'n N,
    sum: u64,
}

impl<N: Notes> Pen<'_, N> {
    #[inline(always)]
    fn put(&mut self, index: usize, word: u32) {
        self.notes.set_note(index, u64::from(word));
        self.sum += u64::from(word);
    }

    #[inline(always)]
    fn put_halves(&mut self, index: usize, words: u64) {
        let b = words.to_ne_bytes();
        self.put(index, u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        self.put(index + 1, u32::from_ne_bytes([b[4], b[5], b[6], b[7]]));
    }
}

/// Writes a header without its checksum, and says how many words it has.
#[inline(always)]
fn tcp_header<N: Notes>(tcp: &mut Pen<'_, N>, syn: &Segment, offer: &Offer, terms: &Terms) -> u32 {
    let window = FIRST_FLIGHT * u32::from(terms.mss).min(LARGEST_COOKIE_MSS);
    tcp.put(TCP_WORDS, syn.ports().rotate_left(16));
    tcp.put(TCP_WORDS + 1, terms.cookie.to_be());
    tcp.put(TCP_WORDS + 2, syn.sequence().wrapping_add(1).to_be());
    tcp.put(TCP_WORDS + 5, (0x0204_0000 | u32::from(terms.mss)).to_be());
    let mut words = HEADER_LEN as u32 / 4 + 1;
    // Without a timestamp to carry them, the kernel would not know of the other options.
    if let (Some(ours), Some(theirs)) = (terms.window_scale, offer.timestamp()) {
        tcp.put(TCP_WORDS + 6, (if offer.sack() { 0x0402_080a_u32 } else { 0x0101_080a }).to_be());
        tcp.put(TCP_WORDS + 7, timestamp(offer, terms.now_ms).to_be());
        tcp.put(TCP_WORDS + 8, theirs.to_be());
        words += 3;
        if offer.window_scale().is_some() {
            tcp.put(TCP_WORDS + 9, (0x0103_0300 | u32::from(ours)).to_be());
            words += 1;
        }
    }
    tcp.put(TCP_WORDS + 3, ((words << 28) | (SYN_ACK << 16) | window).to_be());
    words
}

/// The clock, with the options in its low bits. Never ahead of the clock, which the kernel's next timestamp will show.
#[inline(always)]
fn timestamp(offer: &Offer, now_ms: u64) -> u32 {
    let sack = if offer.sack() { OPTION_SACK } else { 0 };
    let options = sack | offer.window_scale().map_or(OPTION_NO_SCALE, u64::from);
    let stamp = ((now_ms >> OPTION_BITS) << OPTION_BITS) | options;
    (if stamp > now_ms { stamp.wrapping_sub(1 << OPTION_BITS) } else { stamp }) as u32
}

/// A field in the first two bytes of a word.
#[inline(always)]
fn in_upper_half(field: u16) -> u32 {
    let b = field.to_ne_bytes();
    u32::from_ne_bytes([b[0], b[1], 0, 0])
}

/// A field in the last two bytes of a word.
#[inline(always)]
fn in_lower_half(field: u16) -> u32 {
    let b = field.to_ne_bytes();
    u32::from_ne_bytes([0, 0, b[0], b[1]])
}

/// Writes an answer over the SYN. The frame has its length already; tags stay where they are.
#[inline(always)]
pub fn draw<N: Notes>(notes: &N, canvas: &mut Canvas<'_>, reply: &Reply) -> Option<()> {
    // Destination and source, each of three half words, change places.
    let [a, b, c, d, e, f] = canvas.get::<u16, 6>(0)?;
    canvas.put::<u16, 6>(0, |i| [d, e, f, a, b, c][i])?;
    let at = reply.network_at;
    let ip = |i| notes.note(IP_WORDS + i) as u32;
    let tcp_at = match reply.family {
        Family::V4 => {
            canvas.put::<u32, 5>(at, ip)?;
            at + 20
        }
        Family::V6 => {
            canvas.put::<u32, 10>(at, ip)?;
            at + 40
        }
    };
    let tcp = |i| notes.note(TCP_WORDS + i) as u32;
    match reply.tcp_words {
        6 => canvas.put::<u32, 6>(tcp_at, tcp),
        9 => canvas.put::<u32, 9>(tcp_at, tcp),
        _ => canvas.put::<u32, 10>(tcp_at, tcp),
    }
}
