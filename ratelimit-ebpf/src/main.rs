//! The XDP entry points: context to frame, verdict to action. Everything else is in the library.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "compare-and-exchange: the target does not declare AtomicU64"),
    expect(clippy::needless_pass_by_value, reason = "the entry macro hands the context over by value")
)]

#[cfg(target_arch = "bpf")]
mod jumps;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod samples;
#[cfg(target_arch = "bpf")]
mod sockets;
#[cfg(target_arch = "bpf")]
mod stages;
#[cfg(all(target_arch = "bpf", feature = "trace"))]
mod trace;
#[cfg(target_arch = "bpf")]
mod wire;

#[cfg(target_arch = "bpf")]
mod entry {
    use aya_ebpf::{bindings::xdp_action, macros::xdp, programs::XdpContext};
    use ratelimit_common::abi::Verdict;
    use ratelimit_ebpf::{
        cookie,
        frame::{Frame, Link},
        mark,
        pipeline::process,
        reject,
    };

    use crate::{
        jumps::{Jumps, Scratch},
        maps::Maps,
        samples,
        wire::Kernel,
    };

    /// For kernels without multi-buffer XDP.
    #[xdp]
    #[inline(always)]
    pub(crate) fn ratelimit(ctx: XdpContext) -> u32 {
        let jumps = Jumps { ctx: &ctx, link: Link::Ethernet };
        action(&jumps, process(&Frame::of_context(Link::Ethernet, &ctx), &Maps, &jumps))
    }

    /// Also takes frames of several buffers, such as jumbo frames.
    ///
    /// # Minimum kernel version
    /// 5.18
    #[xdp(frags)]
    #[inline(always)]
    pub(crate) fn ratelimit_frags(ctx: XdpContext) -> u32 {
        let jumps = Jumps { ctx: &ctx, link: Link::Ethernet };
        action(&jumps, process(&Frame::of_context_frags(Link::Ethernet, &ctx), &Maps, &jumps))
    }

    /// For interfaces whose frames are IP packets, on kernels without multi-buffer XDP.
    #[xdp]
    #[inline(always)]
    pub(crate) fn ratelimit_ip(ctx: XdpContext) -> u32 {
        let jumps = Jumps { ctx: &ctx, link: Link::Ip };
        action(&jumps, process(&Frame::of_context(Link::Ip, &ctx), &Maps, &jumps))
    }

    /// For interfaces whose frames are IP packets, of several buffers too.
    #[xdp(frags)]
    #[inline(always)]
    pub(crate) fn ratelimit_ip_frags(ctx: XdpContext) -> u32 {
        let jumps = Jumps { ctx: &ctx, link: Link::Ip };
        action(&jumps, process(&Frame::of_context_frags(Link::Ip, &ctx), &Maps, &jumps))
    }

    /// Reached from `ratelimit` only, with a SYN that is to be answered with a cookie.
    #[xdp]
    pub(crate) fn answer(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |jumps, kernel| {
            cookie::answer(&Frame::of_context(Link::Ethernet, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from `ratelimit_frags`: the kernel lets a program call another only if both, or neither, take several buffers.
    #[xdp(frags)]
    pub(crate) fn answer_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |jumps, kernel| {
            cookie::answer(&Frame::of_context_frags(Link::Ethernet, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from `ratelimit` only, with other TCP to a service whose SYNs are answered with cookies.
    #[xdp]
    pub(crate) fn prove(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |jumps, kernel| {
            cookie::prove(&Frame::of_context(Link::Ethernet, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from `ratelimit_frags`, with other TCP to a service whose SYNs are answered with cookies.
    #[xdp(frags)]
    pub(crate) fn prove_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |jumps, kernel| {
            cookie::prove(&Frame::of_context_frags(Link::Ethernet, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from `ratelimit_ip`, with other TCP to a service whose SYNs are answered with cookies.
    #[xdp]
    pub(crate) fn prove_ip(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ip, &ctx, |jumps, kernel| {
            cookie::prove(&Frame::of_context(Link::Ip, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from `ratelimit_ip_frags`, with other TCP to a service whose SYNs are answered with cookies.
    #[xdp(frags)]
    pub(crate) fn prove_ip_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ip, &ctx, |jumps, kernel| {
            cookie::prove(&Frame::of_context_frags(Link::Ip, &ctx), &Maps, jumps, kernel)
        })
    }

    /// Reached from the others, with a packet that a limit of a service refused that marks such packets.
    #[xdp]
    pub(crate) fn mark(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |_, kernel| {
            mark::mark(&Frame::of_context(Link::Ethernet, &ctx), &Maps, kernel)
        })
    }

    /// Reached from programs that take several buffers, with a packet to mark.
    #[xdp(frags)]
    pub(crate) fn mark_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |_, kernel| {
            mark::mark(&Frame::of_context_frags(Link::Ethernet, &ctx), &Maps, kernel)
        })
    }

    /// Reached from `ratelimit_ip` and `prove_ip`, with a packet to mark.
    #[xdp]
    pub(crate) fn mark_ip(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ip, &ctx, |_, kernel| mark::mark(&Frame::of_context(Link::Ip, &ctx), &Maps, kernel))
    }

    /// Reached from `ratelimit_ip_frags` and `prove_ip_frags`, with a packet to mark.
    #[xdp(frags)]
    pub(crate) fn mark_ip_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ip, &ctx, |_, kernel| {
            mark::mark(&Frame::of_context_frags(Link::Ip, &ctx), &Maps, kernel)
        })
    }

    /// Reached from the others, with a packet that a limit of a service refused that says so.
    #[xdp]
    pub(crate) fn reject(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |_, kernel| {
            reject::reject(&Frame::of_context(Link::Ethernet, &ctx), &Maps, kernel)
        })
    }

    /// Reached from programs that take several buffers, with a packet whose sender is told.
    #[xdp(frags)]
    pub(crate) fn reject_frags(ctx: XdpContext) -> u32 {
        with_kernel(Link::Ethernet, &ctx, |_, kernel| {
            reject::reject(&Frame::of_context_frags(Link::Ethernet, &ctx), &Maps, kernel)
        })
    }

    #[inline(always)]
    fn with_kernel(
        link: Link,
        ctx: &XdpContext,
        judge: impl FnOnce(&Jumps<'_>, &Kernel<'_>) -> Verdict,
    ) -> u32 {
        // An array always has its only value; the verifier wants to see it looked at.
        let Some(scratch) = Scratch::of_this_cpu() else { return xdp_action::XDP_DROP };
        let jumps = Jumps { ctx, link };
        action(&jumps, judge(&jumps, &Kernel { ctx, scratch }))
    }

    #[inline(always)]
    fn action(jumps: &Jumps<'_>, verdict: Verdict) -> u32 {
        let action = match verdict {
            Verdict::Pass => xdp_action::XDP_PASS,
            Verdict::Drop => xdp_action::XDP_DROP,
            Verdict::Reply => xdp_action::XDP_TX,
        };
        samples::consider(jumps, action);
        #[cfg(feature = "trace")]
        crate::trace::verdict(jumps.link, jumps.ctx, action);
        action
    }

    /// The verifier proves that nothing gets here.
    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}

/// The kernel object is built for the BPF target only; this lets the workspace build as a whole.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
