//! Sockets that the kernel lends to the program, the settings of listeners, and whether a packet is for a socket at all.
#![expect(
    unsafe_code,
    reason = "sockets are reached through pointers from helpers, and headers and questions are handed to helpers by address"
)]

use core::ffi::c_void;

use aya_ebpf::{
    bindings::{
        BPF_FIB_LKUP_RET_FWD_DISABLED, BPF_FIB_LKUP_RET_NOT_FWDED, bpf_fib_lookup as RouteQuestion, bpf_sock,
        bpf_sock_tuple,
    },
    helpers::{
        bpf_fib_lookup, bpf_sk_release, bpf_skc_lookup_tcp, bpf_skc_to_tcp_sock, bpf_tcp_check_syncookie,
        bpf_tcp_gen_syncookie,
    },
    programs::XdpContext,
};
use ratelimit_common::abi::listener::{Offset, Offsets, UNKNOWN};
use ratelimit_ebpf::{
    cookie::{CookieListener, Proof},
    frame::Frame,
    packet::{Address, Family},
    segment::Segment,
};

/// Offsets at which this kernel keeps a listener's settings. The daemon writes them before it loads the program, so the verifier knows them:
/// a read at these offsets is checked like a field of the structure, and code behind an offset of 0 is removed.
#[unsafe(no_mangle)]
static LISTENER: Offsets = UNKNOWN;

/// The network namespace of the interface (BPF_F_CURRENT_NETNS).
const SAME_NAMESPACE: u64 = u64::MAX;
/// The numbers of the address families in a question about routes.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The state of a socket that waits for connections.
const LISTEN: u32 = 10;

/// The state of a connection of which only the SYN has come.
const NEW_SYN_RECV: u32 = 12;

/// A socket that the kernel has lent. The verifier refuses a program that does not release it on every path.
pub(crate) struct Socket(*mut bpf_sock);

impl Socket {
    /// The socket to which the kernel would deliver a segment.
    #[inline(always)]
    pub(crate) fn of(ctx: &XdpContext, segment: &Segment) -> Option<Self> {
        let ports = segment.ports();
        match segment.source.family {
            Family::V4 => Self::find(ctx, [segment.source.v4_word(), segment.destination.v4_word(), ports]),
            Family::V6 => {
                let halves = |word: u64| [word as u32, (word >> 32) as u32];
                let ([a, b], [c, d]) = (halves(segment.source.key.hi), halves(segment.source.key.lo));
                let ([e, f], [g, h]) =
                    (halves(segment.destination.key.hi), halves(segment.destination.key.lo));
                Self::find(ctx, [a, b, c, d, e, f, g, h, ports])
            }
        }
    }

    /// Looks up a tuple of addresses and ports in packet order; its length tells the family.
    #[inline(always)]
    fn find<const N: usize>(ctx: &XdpContext, mut tuple: [u32; N]) -> Option<Self> {
        let (at, len) = ((&raw mut tuple).cast::<bpf_sock_tuple>(), size_of_val(&tuple) as u32);
        // SAFETY: the tuple is on this stack frame and as long as said.
        let found = unsafe { bpf_skc_lookup_tcp(ctx.ctx.cast(), at, len, SAME_NAMESPACE, 0) };
        if found.is_null() { None } else { Some(Self(found)) }
    }

    #[inline(always)]
    pub(crate) fn listens(&self) -> bool {
        // SAFETY: not null, and held until `release`.
        unsafe { (&raw const (*self.0).state).read_volatile() == LISTEN }
    }

    /// Whether the socket stands for a SYN that was answered and not yet acknowledged.
    #[inline(always)]
    pub(crate) fn is_handshake(&self) -> bool {
        // SAFETY: as in `listens`.
        unsafe { (&raw const (*self.0).state).read_volatile() == NEW_SYN_RECV }
    }

    /// The settings of this listener, if the daemon found out how to read them.
    #[inline(always)]
    pub(crate) fn listener(&self) -> Option<CookieListener> {
        // SAFETY: an item of this program. Volatile, or the compiler would use the value at compile time.
        let offset = |of: Offset| unsafe { (&raw const LISTENER[of as usize]).read_volatile() as usize };
        if offset(Offset::ReceiveLock) == 0 {
            return None;
        }
        // SAFETY: as `self.0`; the result is the same socket, or null.
        let tcp = unsafe { bpf_skc_to_tcp_sock(self.0.cast()) }.cast::<u8>().cast_const();
        if tcp.is_null() {
            return None;
        }
        // SAFETY: the offsets are those of fields of these sizes in the kernel's own type information, against which the verifier checks them
        // again. Volatile, because processes change them at any time.
        unsafe {
            let locked =
                tcp.add(offset(Offset::Locks)).read_volatile() as usize & offset(Offset::ReceiveLock) != 0;
            let buffer = tcp.add(offset(Offset::Buffer)).cast::<u32>().read_volatile();
            let clamp = tcp.add(offset(Offset::Clamp)).cast::<u32>().read_volatile();
            let segment = tcp.add(offset(Offset::Segment)).cast::<u16>().read_volatile();
            let space = if offset(Offset::Ratio) != 0 {
                let ratio = tcp.add(offset(Offset::Ratio)).read_volatile();
                ((u64::from(buffer) * u64::from(ratio)) >> 8) as u32
            } else {
                let namespace = tcp.add(offset(Offset::Namespace)).cast::<*const u8>().read_volatile();
                let shift = i32::from(namespace.add(offset(Offset::SpaceShift)).cast::<i8>().read_volatile());
                if shift <= 0 { buffer >> (-shift & 31) } else { buffer - (buffer >> (shift & 31)) }
            };
            Some(CookieListener::new(space, locked, clamp, segment))
        }
    }

    /// The listener's cookie, and the MSS in it. Errors and refusals are negative or have no MSS in the upper half.
    #[inline(always)]
    pub(crate) fn issue(&self, syn: &Segment, mss: u16) -> Option<(u32, u16)> {
        let mut tcp = syn.header_with_mss(mss);
        let (tcp_at, tcp_len) = ((&raw mut tcp).cast(), size_of_val(&tcp) as u32);
        let socket = self.0.cast::<c_void>();
        // SAFETY: both headers are on this stack frame and as long as said.
        let answer = unsafe {
            match syn.source.family {
                Family::V4 => {
                    let mut ip = syn.ip_header_v4();
                    bpf_tcp_gen_syncookie(
                        socket,
                        (&raw mut ip).cast(),
                        size_of_val(&ip) as u32,
                        tcp_at,
                        tcp_len,
                    )
                }
                Family::V6 => {
                    let mut ip = syn.ip_header_v6();
                    bpf_tcp_gen_syncookie(
                        socket,
                        (&raw mut ip).cast(),
                        size_of_val(&ip) as u32,
                        tcp_at,
                        tcp_len,
                    )
                }
            }
        };
        if answer < 0 || answer >> 32 == 0 { None } else { Some((answer as u32, (answer >> 32) as u16)) }
    }

    #[inline(always)]
    pub(crate) fn accepts(&self, ack: &Segment) -> bool {
        let mut tcp = ack.header;
        let (tcp_at, tcp_len) = ((&raw mut tcp).cast(), size_of_val(&tcp) as u32);
        let socket = self.0.cast::<c_void>();
        // SAFETY: as in `issue`.
        let answer = unsafe {
            match ack.source.family {
                Family::V4 => {
                    let mut ip = ack.ip_header_v4();
                    bpf_tcp_check_syncookie(
                        socket,
                        (&raw mut ip).cast(),
                        size_of_val(&ip) as u32,
                        tcp_at,
                        tcp_len,
                    )
                }
                Family::V6 => {
                    let mut ip = ack.ip_header_v6();
                    bpf_tcp_check_syncookie(
                        socket,
                        (&raw mut ip).cast(),
                        size_of_val(&ip) as u32,
                        tcp_at,
                        tcp_len,
                    )
                }
            }
        };
        answer == 0
    }

    #[inline(always)]
    pub(crate) fn release(self) {
        // SAFETY: from `bpf_skc_lookup_tcp`, and not used again.
        unsafe { bpf_sk_release(self.0.cast()) };
    }
}

/// What a segment can show about its sender; `None` if it is for no socket of this host.
#[inline(always)]
pub(crate) fn proof(ctx: &XdpContext, segment: &Segment) -> Option<Proof> {
    let socket = Socket::of(ctx, segment)?;
    let proof = if !socket.listens() {
        if socket.is_handshake() { Proof::Handshake } else { Proof::Connection }
    } else if socket.accepts(segment) {
        Proof::Cookie
    } else {
        Proof::Nothing
    };
    socket.release();
    Some(proof)
}

/// Whether the kernel forwards packets with these addresses, or refuses to. It looks up the routes that it would look up itself; where the interface does not
/// forward, it answers before that.
#[inline(always)]
pub(crate) fn forwards(ctx: &XdpContext, source: Address, destination: Address) -> bool {
    // SAFETY: integers only, for which every bit pattern is a value.
    let mut route = unsafe { core::mem::zeroed::<RouteQuestion>() };
    route.ifindex = Frame::interface(ctx);
    match destination.family {
        Family::V4 => {
            route.family = AF_INET;
            route.__bindgen_anon_3.ipv4_src = source.v4_word();
            route.__bindgen_anon_4.ipv4_dst = destination.v4_word();
        }
        Family::V6 => {
            let words = |Address { key, .. }: Address| {
                [key.hi as u32, (key.hi >> 32) as u32, key.lo as u32, (key.lo >> 32) as u32]
            };
            route.family = AF_INET6;
            route.__bindgen_anon_3.ipv6_src = words(source);
            route.__bindgen_anon_4.ipv6_dst = words(destination);
        }
    }
    // SAFETY: the question is on this stack frame and as long as said.
    let answer =
        unsafe { bpf_fib_lookup(ctx.ctx.cast(), &raw mut route, size_of::<RouteQuestion>() as i32, 0) };
    !matches!(answer as u32, BPF_FIB_LKUP_RET_NOT_FWDED | BPF_FIB_LKUP_RET_FWD_DISABLED)
}
