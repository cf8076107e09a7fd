//! What replies need of the kernel: the frame as something to write to, and for cookies sockets and the interface's MTU.

use aya_ebpf::programs::XdpContext;
use ratelimit_ebpf::{
    cookie::{Proof, Sockets},
    frame::{Canvas, Frame},
    mark::paint,
    notes::Notes,
    packet::Family,
    reply::{Reply, Wire, draw, keep_head},
    segment::Segment,
};

use crate::maps::{Scratch, Socket, answers};

/// What Ethernet carries where the kernel does not say.
const USUAL_MTU: u32 = 1500;

/// The kernel, for one packet.
pub(crate) struct Kernel<'c> {
    pub(crate) ctx: &'c XdpContext,
    pub(crate) scratch: Scratch,
}

impl Kernel<'_> {
    /// The socket that the kernel would give this segment to.
    #[inline(always)]
    fn socket(&self, segment: &Segment) -> Option<Socket> {
        let ports = segment.ports();
        match segment.source.family {
            Family::V4 => {
                Socket::find(self.ctx, [segment.source.v4_word(), segment.destination.v4_word(), ports])
            }
            Family::V6 => {
                let halves = |word: u64| [word as u32, (word >> 32) as u32];
                let ([a, b], [c, d]) = (halves(segment.source.key.hi), halves(segment.source.key.lo));
                let ([e, f], [g, h]) =
                    (halves(segment.destination.key.hi), halves(segment.destination.key.lo));
                Socket::find(self.ctx, [a, b, c, d, e, f, g, h, ports])
            }
        }
    }
}

impl Notes for Kernel<'_> {
    #[inline(always)]
    fn note(&self, index: usize) -> u64 {
        self.scratch.note(index)
    }

    #[inline(always)]
    fn set_note(&self, index: usize, value: u64) {
        self.scratch.set_note(index, value);
    }
}

impl Sockets for Kernel<'_> {
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
    fn mtu(&self) -> u32 {
        Frame::interface_mtu(self.ctx).unwrap_or(USUAL_MTU)
    }
}

impl Wire for Kernel<'_> {
    #[inline(always)]
    fn answers(&self) -> bool {
        answers(self.ctx)
    }

    #[inline(always)]
    fn reread<'f>(&self, frame: &Frame<'f>) -> Frame<'f> {
        frame.again(self.ctx)
    }

    #[inline(always)]
    fn send(&self, len: u64, reply: &Reply) -> bool {
        if keep_head(self, &Canvas::of_context(self.ctx)).is_none() {
            return false;
        }
        match Canvas::resized(self.ctx, reply.len() as i32 - len as i32) {
            Some(mut canvas) => draw(self, &mut canvas, reply).is_some(),
            None => false,
        }
    }

    #[inline(always)]
    fn mark(&self, network_at: usize, family: Family, dscp: u32) -> bool {
        paint(&mut Canvas::of_context(self.ctx), network_at, family, dscp).is_some()
    }
}
