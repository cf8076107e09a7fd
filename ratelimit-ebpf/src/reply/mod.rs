//! Replies: frames that are sent back in the buffer of the packet that they answer.

mod checksum;
pub(crate) mod tcp;

use core::mem::offset_of;

use network_types::{
    eth::EthHdr,
    icmp::Icmpv6Hdr,
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    udp::UdpHdr,
    vlan::VlanHdr,
};

use crate::{
    frame::{Canvas, Frame},
    notes::{NOTES_TAKEN, Notes},
    packet::{Address, Family},
};

/// The hop limit of a reply, as Linux sets it.
const HOPS: u32 = 64;
/// The don't-fragment flag, which the kernel's own replies have too.
const DONT_FRAGMENT: u32 = 0x4000;

/// Access to the current frame for writing.
pub trait Wire: Notes {
    /// Whether replies may be sent on the interface that the packet came in by.
    fn answers(&self) -> bool;
    /// The frame with fresh pointers. For each pointer the verifier remembers how many bytes behind it are checked, and
    /// does not merge two paths that checked differently far.
    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f>;
    /// Turns the frame of `len` bytes into a reply; false if that fails.
    fn send(&self, len: u64, reply: &ReplyFrame) -> bool;
    /// Writes another DSCP class into the frame; false if that fails.
    fn mark(&self, network_at: usize, family: Family, dscp: u32) -> bool;
}

/// Whether a frame was sent to a group of neighbours, or names a group as its sender: a reply would come from a group, or go to all of it. `None` if there is no
/// Ethernet header. (A view of eight bytes would suffice, but does not compile to a comparison that the verifier recognizes. Both bits are in one word, because
/// the verifier follows each comparison both ways.)
#[inline(always)]
pub(crate) fn is_of_group(frame: &Frame<'_>) -> Option<bool> {
    const { assert!(offset_of!(EthHdr, dst_addr) == 0 && offset_of!(EthHdr, src_addr) == 6) };
    // The lowest bit of an address's first byte tells that the address is a group's: of bytes 0 and 6 here.
    let groups = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 1, 0]);
    Some(frame.view::<{ EthHdr::LEN }>(0)?.u64_ne::<0>() & groups != 0)
}

/// A reply whose words are in [`Notes`]: the stack of a kernel program is too small for them. Words are in memory
/// order; the Ethernet header and its tags are still those of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFrame {
    /// Offset of the IP header in the frame.
    network_at: usize,
    /// The family of the IP header.
    family: Family,
    /// Words behind the IP header: one of the numbers that [`draw`] supports.
    words: u32,
    /// Bytes of the packet that stay as they are behind the words.
    kept: u32,
}

/// Index of the first note with a word of the IP header.
const IP_WORDS: usize = 10;
/// Index of the note with the word at a byte offset of the IP header.
const fn word(offset: usize) -> usize {
    IP_WORDS + offset / WORD
}
/// Bytes in a word.
pub(crate) const WORD: usize = size_of::<u32>();
/// Words of half an IPv6 address.
const HALF_ADDRESS: usize = size_of::<u64>() / WORD;
/// Index of the first note with a word behind the IP header.
pub(crate) const BODY_WORDS: usize = 20;
/// Words of the longest body: an ICMPv6 error with 48 bytes of the packet.
const MAX_BODY: usize = (Icmpv6Hdr::LEN + Ipv6Hdr::LEN + UdpHdr::LEN) / WORD;
/// Index of the first note with a half word before the IP header: addresses, up to two tags, and a type.
const HEAD_WORDS: usize = BODY_WORDS + MAX_BODY;
const HEAD: usize = (EthHdr::LEN + 2 * VlanHdr::LEN) / 2;
/// Half words of the two addresses; tags and type follow.
const ADDRESSES: usize = offset_of!(EthHdr, ether_type) / 2;
/// Offset of the IP header behind one tag.
const ONE_TAG: usize = EthHdr::LEN + VlanHdr::LEN;
const _: () = assert!(HEAD_WORDS + HEAD <= NOTES_TAKEN, "the longest reply fits");

impl ReplyFrame {
    /// Length of the frame in bytes.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.network_at as u64
            + self.family.header_len() as u64
            + u64::from(self.words) * 4
            + u64::from(self.kept)
    }

    /// Always false: a reply has headers at least.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Adds the IP header to a body that is in the notes already, and writes the body's checksum into the upper or
    /// the lower half of one of its words, which must be zero there.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "nothing may be written after the sum has been taken")]
    pub(crate) fn with_body<N: Notes>(body: Pen<'_, N>, words: u32, check: Check, route: &Route) -> Self {
        let Pen { notes, mut sum, kept } = body;
        let Route { source, destination, protocol, network_at } = *route;
        let len = words * 4 + kept;
        let mut ip = Pen { notes, sum: 0, kept: 0 };
        let family = source.family;
        // The parts of the IP header that most checksums cover: protocol, length and addresses.
        let pseudo = u64::from(protocol.to_be()) + u64::from(len.to_be());
        match family {
            Family::V4 => {
                let hops = ((HOPS << 24) | (protocol << 16)).to_be();
                ip.put(const { word(offset_of!(Ipv4Hdr, src_addr)) }, source.v4_word());
                ip.put(const { word(offset_of!(Ipv4Hdr, dst_addr)) }, destination.v4_word());
                if protocol != ICMP {
                    sum += ip.sum + pseudo;
                }
                ip.put(
                    const { word(offset_of!(Ipv4Hdr, vihl)) },
                    (0x4500_0000 | (Ipv4Hdr::LEN as u32 + len)).to_be(),
                );
                ip.put(const { word(offset_of!(Ipv4Hdr, id)) }, DONT_FRAGMENT.to_be());
                ip.put(const { word(offset_of!(Ipv4Hdr, ttl)) }, hops);
                let check = checksum::finish(ip.sum);
                ip.put(const { word(offset_of!(Ipv4Hdr, ttl)) }, hops | in_lower_half(check));
            }
            Family::V6 => {
                const SOURCE: usize = word(offset_of!(Ipv6Hdr, src_addr));
                const DESTINATION: usize = word(offset_of!(Ipv6Hdr, dst_addr));
                ip.put_halves(SOURCE, source.key.hi);
                ip.put_halves(SOURCE + HALF_ADDRESS, source.key.lo);
                ip.put_halves(DESTINATION, destination.key.hi);
                ip.put_halves(DESTINATION + HALF_ADDRESS, destination.key.lo);
                sum += ip.sum + pseudo;
                ip.put(const { word(offset_of!(Ipv6Hdr, vcf)) }, 0x6000_0000_u32.to_be());
                ip.put(
                    const { word(offset_of!(Ipv6Hdr, payload_len)) },
                    ((len << 16) | (protocol << 8) | HOPS).to_be(),
                );
            }
        }
        // A zero would mean that a datagram has no checksum.
        let field = match checksum::finish(sum) {
            0 if protocol == UDP => u16::MAX,
            field => field,
        };
        let (at, field) = match check {
            Check::Upper(at) => (at, in_upper_half(field)),
            Check::Lower(at) => (at, in_lower_half(field)),
        };
        notes.set_note(BODY_WORDS + at, notes.note(BODY_WORDS + at) | u64::from(field));
        Self { network_at, family, words, kept }
    }
}

pub(crate) const ICMP: u32 = IpProto::Icmp as u32;
pub(crate) const TCP: u32 = IpProto::Tcp as u32;
pub(crate) const UDP: u32 = IpProto::Udp as u32;
pub(crate) const ICMPV6: u32 = IpProto::Ipv6Icmp as u32;

/// Addresses, protocol and position of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) source: Address,
    pub(crate) destination: Address,
    /// The IP protocol number.
    pub(crate) protocol: u32,
    /// Offset of the IP header in the frame.
    pub(crate) network_at: usize,
}

/// The half word of the checksum in a body, by the index of its word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    Upper(usize),
    Lower(usize),
}

/// Writes words into the notes and adds them up.
pub(crate) struct Pen<'n, N> {
    notes: &'n N,
    sum: u64,
    kept: u32,
}

impl<'n, N: Notes> Pen<'n, N> {
    #[inline(always)]
    pub(crate) fn new(notes: &'n N) -> Self {
        Self { notes, sum: 0, kept: 0 }
    }

    /// Keeps bytes of the packet that follow the words of the body. Their words, in memory order, have this sum.
    #[inline(always)]
    pub(crate) fn keep(&mut self, len: u32, sum: u64) {
        (self.kept, self.sum) = (len, self.sum + sum);
    }

    /// Writes a word of the body.
    #[inline(always)]
    pub(crate) fn body(&mut self, index: usize, word: u32) {
        self.put(BODY_WORDS + index, word);
    }

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

/// A word with a field in its first two bytes.
#[inline(always)]
fn in_upper_half(field: u16) -> u32 {
    let b = field.to_ne_bytes();
    u32::from_ne_bytes([b[0], b[1], 0, 0])
}

/// A word with a field in its last two bytes.
#[inline(always)]
fn in_lower_half(field: u16) -> u32 {
    let b = field.to_ne_bytes();
    u32::from_ne_bytes([0, 0, b[0], b[1]])
}

/// Notes down the bytes before the IP header: a frame that grows, grows before them.
#[inline(always)]
pub fn keep_head<N: Notes>(notes: &N, canvas: &Canvas<'_>) -> Option<()> {
    let head = canvas.get::<u16, HEAD>(0)?;
    let mut i = 0;
    while i < HEAD {
        notes.set_note(HEAD_WORDS + i, u64::from(head[i]));
        i += 1;
    }
    Some(())
}

/// Writes a reply over the packet. The frame has the reply's length already, and the bytes before the IP header are in the notes.
#[inline(always)]
pub fn draw<N: Notes>(notes: &N, canvas: &mut Canvas<'_>, reply: &ReplyFrame) -> Option<()> {
    let head = |i| notes.note(HEAD_WORDS + i) as u16;
    // Destination and source, three half words each, are swapped.
    canvas.put::<u16, ADDRESSES>(0, |i| head((i + ADDRESSES / 2) % ADDRESSES))?;
    // Tags and type are kept.
    let rest = |i| head(ADDRESSES + i);
    const REST_AT: usize = ADDRESSES * 2;
    match reply.network_at {
        EthHdr::LEN => canvas.put::<u16, 1>(REST_AT, rest)?,
        ONE_TAG => canvas.put::<u16, 3>(REST_AT, rest)?,
        _ => canvas.put::<u16, 5>(REST_AT, rest)?,
    }
    let at = reply.network_at;
    let ip = |i| notes.note(IP_WORDS + i) as u32;
    let body_at = match reply.family {
        Family::V4 => {
            canvas.put::<u32, { Ipv4Hdr::LEN / 4 }>(at, ip)?;
            at + Ipv4Hdr::LEN
        }
        Family::V6 => {
            canvas.put::<u32, { Ipv6Hdr::LEN / 4 }>(at, ip)?;
            at + Ipv6Hdr::LEN
        }
    };
    let body = |i| notes.note(BODY_WORDS + i) as u32;
    match reply.words {
        4 => canvas.put::<u32, 4>(body_at, body),
        5 => canvas.put::<u32, 5>(body_at, body),
        6 => canvas.put::<u32, 6>(body_at, body),
        9 => canvas.put::<u32, 9>(body_at, body),
        10 => canvas.put::<u32, 10>(body_at, body),
        _ => canvas.put::<u32, MAX_BODY>(body_at, body),
    }
}
