//! What cookies need of the kernel: sockets, the interface's MTU, and the frame as something to write to.
#![expect(unsafe_code, reason = "helpers take and return raw pointers")]

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{bpf_sock, bpf_sock_tuple},
    helpers::{
        bpf_check_mtu, bpf_sk_release, bpf_skc_lookup_tcp, bpf_tcp_check_syncookie, bpf_tcp_gen_syncookie,
        bpf_xdp_adjust_tail,
    },
    programs::XdpContext,
};
use ratelimit_ebpf::{
    cookie::{NOTES, Notes, Proof, Reply, Segment, Wire, draw},
    frame::{Canvas, Frame},
    packet::Family,
};

/// The network namespace of the interface (BPF_F_CURRENT_NETNS).
const SAME_NAMESPACE: u64 = u64::MAX;
/// State of a socket that waits for connections.
const LISTEN: u32 = 10;
/// What Ethernet carries where the kernel does not say.
const USUAL_MTU: u32 = 1500;

/// The kernel, for one packet.
pub(crate) struct Kernel<'c> {
    pub(crate) ctx: &'c XdpContext,
    pub(crate) notes: *mut [u64; NOTES],
}

/// A socket on loan. The verifier refuses a program that does not give it back on every way out.
struct Socket(*mut bpf_sock);

impl Kernel<'_> {
    /// The socket that the kernel would give this segment to.
    #[inline(always)]
    fn socket(&self, segment: &Segment) -> Option<Socket> {
        let ports = segment.ports();
        let found = match segment.source.family {
            Family::V4 => {
                let mut tuple = [segment.source.v4_word(), segment.destination.v4_word(), ports];
                self.lookup(&raw mut tuple)
            }
            Family::V6 => {
                let [_, a, b, c, d] = segment.ip_header_v6();
                let halves = |word: u64| [word as u32, (word >> 32) as u32];
                let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
                let ([c0, c1], [d0, d1]) = (halves(c), halves(d));
                let mut tuple = [a0, a1, b0, b1, c0, c1, d0, d1, ports];
                self.lookup(&raw mut tuple)
            }
        };
        if found.is_null() { None } else { Some(Socket(found)) }
    }

    #[inline(always)]
    fn lookup<const N: usize>(&self, tuple: *mut [u32; N]) -> *mut bpf_sock {
        let len = size_of::<[u32; N]>() as u32;
        // SAFETY: the tuple is on this stack frame and as long as said; its length tells the family.
        unsafe {
            bpf_skc_lookup_tcp(self.ctx.ctx.cast(), tuple.cast::<bpf_sock_tuple>(), len, SAME_NAMESPACE, 0)
        }
    }
}

impl Socket {
    #[inline(always)]
    fn listens(&self) -> bool {
        // SAFETY: not null, and held until `release`.
        unsafe { (&raw const (*self.0).state).read_volatile() == LISTEN }
    }

    /// The listener's cookie. Errors, and that it wants none, are negative or have no MSS in the upper half.
    #[inline(always)]
    fn issue(&self, syn: &Segment, mss: u16) -> Option<u32> {
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
        if answer < 0 || answer >> 32 == 0 { None } else { Some(answer as u32) }
    }

    #[inline(always)]
    fn accepts(&self, ack: &Segment) -> bool {
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
    fn release(self) {
        // SAFETY: from `bpf_skc_lookup_tcp`, and not used again.
        unsafe { bpf_sk_release(self.0.cast()) };
    }
}

impl Notes for Kernel<'_> {
    #[inline(always)]
    fn note(&self, index: usize) -> u64 {
        // SAFETY: from a lookup in this CPU's own slot; the mask keeps the index inside. Volatile: see the trait.
        unsafe { ptr::addr_of!((*self.notes)[index & (NOTES - 1)]).read_volatile() }
    }

    #[inline(always)]
    fn set_note(&self, index: usize, value: u64) {
        // SAFETY: as above.
        unsafe { ptr::addr_of_mut!((*self.notes)[index & (NOTES - 1)]).write_volatile(value) };
    }
}

impl Wire for Kernel<'_> {
    #[inline(always)]
    fn issue(&self, syn: &Segment, mss: u16) -> Option<u32> {
        let socket = self.socket(syn)?;
        // Of a connection or its remains: what a SYN means there is for the kernel to say.
        let cookie = if socket.listens() { socket.issue(syn, mss) } else { None };
        socket.release();
        cookie
    }

    #[inline(always)]
    fn prove(&self, segment: &Segment) -> Proof {
        let Some(socket) = self.socket(segment) else { return Proof::Nothing };
        let proof = if !socket.listens() {
            Proof::Connection
        } else if socket.accepts(segment) {
            Proof::Cookie
        } else {
            Proof::Nothing
        };
        socket.release();
        proof
    }

    #[inline(always)]
    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f> {
        frame.again(self.ctx)
    }

    #[inline(always)]
    fn mtu(&self) -> u32 {
        let mut mtu = 0;
        // SAFETY: the context is the kernel's; interface 0 is the one the packet came in by.
        let answer = unsafe { bpf_check_mtu(self.ctx.ctx.cast(), 0, &raw mut mtu, 0, 0) };
        // Whether this frame would fit is not the question; the number is there either way.
        if answer < 0 || mtu == 0 { USUAL_MTU } else { mtu }
    }

    #[inline(always)]
    fn send(&self, len: u64, reply: &Reply) -> bool {
        let change = reply.len() as i32 - len as i32;
        // SAFETY: the context is the kernel's. No pointer into the frame is used after this.
        if unsafe { bpf_xdp_adjust_tail(self.ctx.ctx, change) } != 0 {
            return false;
        }
        draw(self, &mut Canvas::of_context(self.ctx), reply).is_some()
    }
}
