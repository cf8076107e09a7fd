//! Packet bytes, the sequence number and the two ways on: everything unsafe of the rig.
#![expect(
    unsafe_code,
    reason = "packet bytes and map values are reached through pointers the verifier checks"
)]

use core::mem::offset_of;

use aya_ebpf::{
    Global,
    bindings::xdp_action::XDP_ABORTED,
    btf_maps::{PerCpuArray, ProgramArray},
    helpers::bpf_redirect,
    macros::btf_map,
    programs::XdpContext,
};
use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
};
use ratelimit_rig::{
    checksum, sources,
    syn::{FRAME_LEN, WORD, WORDS},
};

const V4_PROTOCOL: usize = EthHdr::LEN + offset_of!(Ipv4Hdr, proto);
const V4_CHECKSUM: usize = EthHdr::LEN + offset_of!(Ipv4Hdr, check);
const V4_SOURCE: usize = EthHdr::LEN + offset_of!(Ipv4Hdr, src_addr);
const V4_END: usize = EthHdr::LEN + Ipv4Hdr::LEN;
const V6_PROTOCOL: usize = EthHdr::LEN + offset_of!(Ipv6Hdr, next_hdr);
const V6_SOURCE: usize = EthHdr::LEN + offset_of!(Ipv6Hdr, src_addr);
const V6_END: usize = EthHdr::LEN + Ipv6Hdr::LEN;
const UDP_DESTINATION: usize = offset_of!(UdpHdr, dst);
const UDP_CHECKSUM: usize = offset_of!(UdpHdr, check);
const TCP_CHECKSUM: usize = offset_of!(TcpHdr, check);

const ETHERTYPE_IPV4: u16 = u16::from_be(EtherType::Ipv4 as u16);
const ETHERTYPE_IPV6: u16 = u16::from_be(EtherType::Ipv6 as u16);
const IHL_MASK: u16 = 0x0f00;
const IHL_WITHOUT_OPTIONS: u16 = 0x0500;
const UDP: u8 = IpProto::Udp as u8;

/// How many sources; 0 is all there are.
#[unsafe(no_mangle)]
static SOURCES: Global<u32> = Global::new(1);
/// The first IPv4 source.
#[unsafe(no_mangle)]
static BASE_V4: Global<u32> = Global::new(0);
/// What the checksum covers, without the source: the IPv4 header, or the UDP datagram in IPv6.
#[unsafe(no_mangle)]
static FIXED_SUM: Global<u32> = Global::new(0);
/// What the checksum of a TCP segment in IPv4 covers, without the source.
#[unsafe(no_mangle)]
static FIXED_TCP_SUM: Global<u32> = Global::new(0);
/// A TCP segment that opens a connection, from the Ethernet header on, without source and checksums.
#[unsafe(no_mangle)]
static SYN: Global<[u64; WORDS]> = Global::new([0; WORDS]);
/// The port that is attacked.
#[unsafe(no_mangle)]
static PORT: Global<u16> = Global::new(0);
/// The interface that packets leave by.
#[unsafe(no_mangle)]
static INTERFACE: Global<u32> = Global::new(0);

/// Packets made so far. Goes on from one run to the next: a spoofed flood that repeats itself would not be one.
#[btf_map]
static SEQUENCE: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The program that `vary` hands its packets to.
#[btf_map]
static MEASURED: ProgramArray<1> = ProgramArray::new();

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// The next source, and an IPv4 header checksum that is right again: the stack drops others before peers see them.
#[inline(always)]
pub(crate) fn set_source_v4(ctx: &XdpContext) -> Option<()> {
    let start = at_least(ctx, V4_END)?;
    write_source_v4(start, next_source_v4()?);
    Some(())
}

/// A SYN from the next source. Its checksum is right too: the few that reach the kernel must be taken for real ones.
///
/// Written anew from beginning to end: the kernel uses the memory of a frame that is done with for another one and does
/// not clear it, and an answer (XDP_TX) is drawn into the memory of its SYN.
#[inline(always)]
pub(crate) fn write_syn(ctx: &XdpContext) -> Option<()> {
    let start = at_least(ctx, FRAME_LEN)?;
    let words = SYN.load();
    for (at, word) in words[..FRAME_LEN / WORD].iter().enumerate() {
        store_word(start + at * WORD, *word);
    }
    // What is left of the last word are two bytes.
    store(start + FRAME_LEN / WORD * WORD, (words[FRAME_LEN / WORD] as u16).to_be());
    let source = next_source_v4()?;
    write_source_v4(start, source);
    store(start + V4_END + TCP_CHECKSUM, checksum::finish(checksum::with_v4(FIXED_TCP_SUM.load(), source)));
    Some(())
}

#[inline(always)]
fn next_source_v4() -> Option<u32> {
    Some(sources::v4(next_sequence()?, BASE_V4.load(), SOURCES.load()))
}

#[inline(always)]
fn write_source_v4(start: usize, source: u32) {
    let checksum = checksum::finish(checksum::with_v4(FIXED_SUM.load(), source));
    store(start + V4_SOURCE, (source >> 16) as u16);
    store(start + V4_SOURCE + 2, source as u16);
    store(start + V4_CHECKSUM, checksum);
}

/// The next /64 and a right UDP checksum, which IPv6 does not do without.
#[inline(always)]
pub(crate) fn set_source_v6(ctx: &XdpContext) -> Option<()> {
    let start = at_least(ctx, V6_END + UdpHdr::LEN)?;
    let network = sources::v6(next_sequence()?, SOURCES.load());
    let checksum = checksum::finish(checksum::with_v6(FIXED_SUM.load(), network));
    store(start + V6_SOURCE, (network >> 48) as u16);
    store(start + V6_SOURCE + 2, (network >> 32) as u16);
    store(start + V6_SOURCE + 4, (network >> 16) as u16);
    store(start + V6_SOURCE + 6, network as u16);
    store(start + V6_END + UDP_CHECKSUM, checksum);
    Some(())
}

/// Whether this is UDP in IP, with both ports read.
#[inline(always)]
pub(crate) fn is_udp_with_ports(ctx: &XdpContext) -> bool {
    let Some(start) = at_least(ctx, V4_END + UdpHdr::LEN) else { return false };
    let (protocol, udp) = match load(start + offset_of!(EthHdr, ether_type)) {
        ETHERTYPE_IPV4 if load(start + EthHdr::LEN) & IHL_MASK == IHL_WITHOUT_OPTIONS => {
            (load(start + V4_PROTOCOL - 1) as u8, V4_END)
        }
        ETHERTYPE_IPV6 => ((load(start + V6_PROTOCOL) >> 8) as u8, V6_END),
        _ => return false,
    };
    if protocol != UDP {
        return false;
    }
    let Some(start) = at_least(ctx, udp + UdpHdr::LEN) else { return false };
    let source = u32::from(load(start + V4_SOURCE)) | u32::from(load(start + V4_SOURCE + 2));
    source | u32::from(load(start + udp)) | u32::from(load(start + udp + 2)) != 0
}

/// The source of a datagram to the attacked port, as the peer's table knows it: an IPv4 address, or the upper half of one of IPv6, which is never
/// below 2^32.
#[inline(always)]
pub(crate) fn source_of_attack(ctx: &XdpContext) -> Option<u64> {
    let start = at_least(ctx, V4_END + UdpHdr::LEN)?;
    let (protocol, udp, source) = match load(start + offset_of!(EthHdr, ether_type)) {
        ETHERTYPE_IPV4 if load(start + EthHdr::LEN) & IHL_MASK == IHL_WITHOUT_OPTIONS => {
            (load(start + V4_PROTOCOL - 1) as u8, V4_END, words_at(start + V4_SOURCE, 2))
        }
        ETHERTYPE_IPV6 => ((load(start + V6_PROTOCOL) >> 8) as u8, V6_END, words_at(start + V6_SOURCE, 4)),
        _ => return None,
    };
    let start = at_least(ctx, udp + UdpHdr::LEN)?;
    (protocol == UDP && load(start + udp + UDP_DESTINATION) == PORT.load()).then_some(source)
}

/// So many pairs of bytes as one number, the first pair on top.
#[inline(always)]
fn words_at(at: usize, count: usize) -> u64 {
    (0..count).fold(0, |number, word| number << 16 | u64::from(load(at + word * 2)))
}

/// Sends the packet out of the interface of the wire.
#[inline(always)]
pub(crate) fn redirect() -> u32 {
    // SAFETY: takes two numbers.
    (unsafe { bpf_redirect(INTERFACE.load(), 0) }) as u32
}

/// On into the program that is being measured.
#[inline(always)]
pub(crate) fn go_on(ctx: &XdpContext) -> u32 {
    // SAFETY: nothing here is waiting to be dropped. If it returns, there is no such program.
    unsafe { MEASURED.tail_call(ctx, 0) };
    XDP_ABORTED
}

#[inline(always)]
fn next_sequence() -> Option<u64> {
    let slot = SEQUENCE.get_ptr_mut(0)?;
    // SAFETY: the slot belongs to this CPU, and a program is not preempted by another one on it.
    unsafe {
        let sequence = *slot;
        *slot = sequence.wrapping_add(1);
        Some(sequence)
    }
}

/// The start of the frame, if it is at least this long.
#[inline(always)]
fn at_least(ctx: &XdpContext, len: usize) -> Option<usize> {
    (ctx.data() + len <= ctx.data_end()).then(|| ctx.data())
}

/// Two bytes, big endian. Offsets are even and frames start at a multiple of eight.
#[inline(always)]
fn load(at: usize) -> u16 {
    // SAFETY: every caller is behind `at_least`, and the verifier checks that it is.
    u16::from_be(unsafe { *(at as *const u16) })
}

/// Eight bytes as they are.
#[inline(always)]
fn store_word(at: usize, word: u64) {
    // SAFETY: as in `load`.
    unsafe { *(at as *mut u64) = word };
}

#[inline(always)]
fn store(at: usize, value: u16) {
    // SAFETY: as in `load`.
    unsafe { *(at as *mut u16) = value.to_be() };
}
