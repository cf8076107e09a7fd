//! What replies need of the kernel: the frame for writing, and for cookies sockets and the interface's MTU.

use aya_ebpf::programs::XdpContext;
use ratelimit_common::abi::Reason;
use ratelimit_ebpf::{
    cookie::{Issued, Proof, Sockets},
    frame::{Canvas, Frame},
    mark::paint,
    notes::Notes,
    packet::{Family, Packet},
    reply::{ReplyFrame, Wire, draw, keep_head},
    segment::Segment,
};

use crate::{
    jumps::{Scratch, answers},
    sockets::Socket,
    stages,
};

/// The MTU in bytes if the kernel does not name one.
const USUAL_MTU: u32 = 1500;

/// The kernel's operations for one packet.
pub(crate) struct Kernel<'c> {
    pub(crate) ctx: &'c XdpContext,
    pub(crate) scratch: Scratch,
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
    fn issue(&self, syn: &Segment, mss: u16) -> Option<Issued> {
        let socket = Socket::of(self.ctx, syn)?;
        // A socket of a connection, or of one that was closed, issues no cookie: the kernel decides about such a SYN.
        let issued = if socket.listens() { socket.issue(syn, mss) } else { None };
        let listener = if issued.is_some() { socket.listener() } else { None };
        socket.release();
        let (cookie, mss) = issued?;
        Some(Issued { cookie, mss, listener })
    }

    #[inline(always)]
    fn prove(&self, packet: &Packet, otherwise: Reason) -> Proof {
        stages::proof_of(self.ctx, packet, otherwise)
    }

    #[inline(always)]
    fn forwards(&self, packet: &Packet) -> bool {
        stages::forwards(self.ctx, packet)
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
    fn send(&self, len: u64, reply: &ReplyFrame) -> bool {
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
