//! Frames that are sent back: the one that came, written over.

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

/// Hops that a reply may take, as Linux has it.
const HOPS: u32 = 64;
/// Don't fragment, as the kernel's own answers.
const DONT_FRAGMENT: u32 = 0x4000;

/// The frame as something to write to.
pub trait Wire: Notes {
    /// Whether packets that came in by this interface may be answered.
    fn answers(&self) -> bool;
    /// The same frame by fresh pointers. The verifier remembers of each pointer how many bytes behind it have been checked, and
    /// does not take two ways for one that checked differently far.
    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f>;
    /// Turns the frame of this length into a reply.
    fn send(&self, len: u64, reply: &ReplyFrame) -> bool;
    /// Gives the frame another class of service.
    fn mark(&self, network_at: usize, family: Family, dscp: u32) -> bool;
}

/// A reply whose words are in [`Notes`]: the stack of a kernel program is too small for them. Words are as they lie in
/// memory; the Ethernet header and its tags are still those of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyFrame {
    /// Where the IP header starts.
    network_at: usize,
    /// The family of the IP header.
    family: Family,
    /// Words behind the IP header: one of the numbers that [`draw`] knows.
    words: u32,
}

/// Where the words of the IP header are.
const IP_WORDS: usize = 10;
/// Where a field of the IP header is among those words, by its offset in bytes.
const fn word(offset: usize) -> usize {
    IP_WORDS + offset / WORD
}
/// Bytes of a word.
pub(crate) const WORD: usize = size_of::<u32>();
/// Words of half an IPv6 address.
const HALF_ADDRESS: usize = size_of::<u64>() / WORD;
/// Where the words behind it are.
pub(crate) const BODY_WORDS: usize = 20;
/// The longest body there is: an ICMPv6 error with 48 bytes of the packet.
const MAX_BODY: usize = (Icmpv6Hdr::LEN + Ipv6Hdr::LEN + UdpHdr::LEN) / WORD;
/// Where the half words before the IP header are: addresses, up to two tags, and a type.
const HEAD_WORDS: usize = BODY_WORDS + MAX_BODY;
const HEAD: usize = (EthHdr::LEN + 2 * VlanHdr::LEN) / 2;
/// Where the half words of the addresses end, and those of tags and type begin.
const ADDRESSES: usize = offset_of!(EthHdr, ether_type) / 2;
/// Where the IP header starts behind one tag.
const ONE_TAG: usize = EthHdr::LEN + VlanHdr::LEN;
const _: () = assert!(HEAD_WORDS + HEAD <= NOTES_TAKEN, "the longest reply fits");

impl ReplyFrame {
    /// Length of the frame.
    #[inline(always)]
    pub fn len(&self) -> u64 {
        self.network_at as u64 + self.family.header_len() as u64 + u64::from(self.words) * 4
    }

    /// False: a reply has headers at least.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Puts the IP header before a body that is in the notes already, and the body's checksum where it belongs: into the upper or
    /// the lower half of one of its words, which must have zeros there.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "nothing may be written after the sum has been taken")]
    pub(crate) fn with_body<N: Notes>(body: Pen<'_, N>, words: u32, check: Check, route: &Route) -> Self {
        let Pen { notes, mut sum } = body;
        let Route { source, destination, protocol, network_at } = *route;
        let len = words * 4;
        let mut ip = Pen { notes, sum: 0 };
        let family = source.family;
        // What most checksums cover of IP: protocol, length and addresses.
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
        let field = checksum::finish(sum);
        let (at, field) = match check {
            Check::Upper(at) => (at, in_upper_half(field)),
            Check::Lower(at) => (at, in_lower_half(field)),
        };
        notes.set_note(BODY_WORDS + at, notes.note(BODY_WORDS + at) | u64::from(field));
        Self { network_at, family, words }
    }
}

pub(crate) const ICMP: u32 = IpProto::Icmp as u32;
pub(crate) const TCP: u32 = IpProto::Tcp as u32;
pub(crate) const ICMPV6: u32 = IpProto::Ipv6Icmp as u32;

/// From whom to whom a reply goes, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) source: Address,
    pub(crate) destination: Address,
    /// Number of the protocol.
    pub(crate) protocol: u32,
    /// Where the IP header starts.
    pub(crate) network_at: usize,
}

/// Where a body has its checksum: in one half of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    Upper(usize),
    Lower(usize),
}

/// Writes words down and adds them up.
pub(crate) struct Pen<'n, N> {
    notes: &'n N,
    sum: u64,
}

impl<'n, N: Notes> Pen<'n, N> {
    #[inline(always)]
    pub(crate) fn new(notes: &'n N) -> Self {
        Self { notes, sum: 0 }
    }

    /// Puts a word of the body.
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

/// Notes down what stands before the IP header: a frame that grows, grows there.
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

/// Writes a reply over the packet. The frame has its length already, and its head is in the notes.
#[inline(always)]
pub fn draw<N: Notes>(notes: &N, canvas: &mut Canvas<'_>, reply: &ReplyFrame) -> Option<()> {
    let head = |i| notes.note(HEAD_WORDS + i) as u16;
    // Destination and source, each of three half words, change places.
    canvas.put::<u16, ADDRESSES>(0, |i| head((i + ADDRESSES / 2) % ADDRESSES))?;
    // Tags and type do not.
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
        5 => canvas.put::<u32, 5>(body_at, body),
        6 => canvas.put::<u32, 6>(body_at, body),
        9 => canvas.put::<u32, 9>(body_at, body),
        10 => canvas.put::<u32, 10>(body_at, body),
        _ => canvas.put::<u32, MAX_BODY>(body_at, body),
    }
}
