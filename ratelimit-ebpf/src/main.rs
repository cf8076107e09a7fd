//! The XDP entry points: context to frame, verdict to action. Everything else is in the library.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "compare-and-exchange: the target does not declare AtomicU64"),
    expect(clippy::needless_pass_by_value, reason = "the entry macro hands the context over by value")
)]

#[cfg(target_arch = "bpf")]
mod cpu;
#[cfg(target_arch = "bpf")]
mod globals;
#[cfg(target_arch = "bpf")]
mod jumps;
#[cfg(target_arch = "bpf")]
mod kernel_tables;
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
    use ratelimit_common::abi::{Clock, Verdict};
    use ratelimit_ebpf::{
        cookie,
        express::drop_at_first_look,
        frame::{Frame, Link},
        lane, mark,
        pipeline::process,
        reject,
        tables::Tables as _,
    };

    use crate::{
        jumps::{Jumps, Scratch},
        kernel_tables::Maps,
        samples, stages,
        wire::Kernel,
    };

    /// Judges Ethernet frames, including frames of several buffers, such as jumbo frames.
    #[xdp(frags)]
    #[inline(always)]
    pub(crate) fn ratelimit(ctx: XdpContext) -> u32 {
        decide(Link::Ethernet, &ctx)
    }

    /// Judges frames that are IP packets, on interfaces without an Ethernet header.
    #[xdp(frags)]
    #[inline(always)]
    pub(crate) fn ratelimit_ip(ctx: XdpContext) -> u32 {
        decide(Link::Ip, &ctx)
    }

    /// Tail-called from `ratelimit` with a SYN that is to be answered with a cookie.
    #[xdp(frags)]
    pub(crate) fn answer(ctx: XdpContext) -> u32 {
        follow_up(Link::Ethernet, &ctx, |frame, maps, jumps, kernel| {
            cookie::answer(frame, maps, jumps, kernel)
        })
    }

    /// Tail-called from `ratelimit` with other TCP to a service whose SYNs are answered with cookies.
    #[xdp(frags)]
    pub(crate) fn prove(ctx: XdpContext) -> u32 {
        follow_up(Link::Ethernet, &ctx, |frame, maps, jumps, kernel| {
            cookie::prove(frame, maps, jumps, kernel)
        })
    }

    /// Tail-called from `ratelimit_ip` with other TCP to a service whose SYNs are answered with cookies.
    #[xdp(frags)]
    pub(crate) fn prove_ip(ctx: XdpContext) -> u32 {
        follow_up(Link::Ip, &ctx, |frame, maps, jumps, kernel| cookie::prove(frame, maps, jumps, kernel))
    }

    /// Tail-called from the other Ethernet programs with a refused packet of a service that marks such packets.
    #[xdp(frags)]
    pub(crate) fn mark(ctx: XdpContext) -> u32 {
        follow_up(Link::Ethernet, &ctx, |frame, maps, _, kernel| mark::mark(frame, maps, kernel))
    }

    /// Tail-called from `ratelimit_ip` and `prove_ip` with a packet to mark.
    #[xdp(frags)]
    pub(crate) fn mark_ip(ctx: XdpContext) -> u32 {
        follow_up(Link::Ip, &ctx, |frame, maps, _, kernel| mark::mark(frame, maps, kernel))
    }

    /// Tail-called from the other Ethernet programs with a refused packet of a service that tells its senders.
    #[xdp(frags)]
    pub(crate) fn reject(ctx: XdpContext) -> u32 {
        follow_up(Link::Ethernet, &ctx, |frame, maps, _, kernel| reject::reject(frame, maps, kernel))
    }

    /// Judges a frame and returns the XDP action.
    #[inline(always)]
    fn decide(link: Link, ctx: &XdpContext) -> u32 {
        // An array always has its only value; the verifier requires the check.
        let Some(maps) = Maps::of_this_cpu() else { return xdp_action::XDP_DROP };
        let jumps = Jumps { ctx, link };
        let now_ns = maps.now_ns(Clock::Coarse);
        let verdict = if lane::is_open(&maps, now_ns)
            && (drop_at_first_look(&Frame::of_context(link, ctx), &maps, now_ns).is_some()
                || drop_again(link, ctx, &maps, now_ns))
        {
            Verdict::Drop
        } else {
            process(&Frame::of_context_frags(link, ctx), &maps, &jumps)
        };
        action(&maps, &jumps, verdict)
    }

    /// Whether the rest of the express lane has dropped a frame. The first one of each clock reading is noted down.
    #[inline(always)]
    fn drop_again(link: Link, ctx: &XdpContext, maps: &Maps, now_ns: u64) -> bool {
        let dropped = stages::drop_again(link, ctx, maps.held(), now_ns) != 0;
        if dropped {
            stages::note_refusal(link, ctx, maps.held(), now_ns);
        }
        dropped
    }

    /// Judges a frame in a program that was tail-called.
    #[inline(always)]
    fn follow_up(
        link: Link,
        ctx: &XdpContext,
        judge: impl FnOnce(&Frame<'_>, &Maps, &Jumps<'_>, &Kernel<'_>) -> Verdict,
    ) -> u32 {
        let (Some(maps), Some(scratch)) = (Maps::of_this_cpu(), Scratch::of_this_cpu()) else {
            return xdp_action::XDP_DROP;
        };
        let jumps = Jumps { ctx, link };
        let verdict = judge(&Frame::of_context_frags(link, ctx), &maps, &jumps, &Kernel { ctx, scratch });
        action(&maps, &jumps, verdict)
    }

    #[inline(always)]
    fn action(maps: &Maps, jumps: &Jumps<'_>, verdict: Verdict) -> u32 {
        let action = match verdict {
            Verdict::Pass => xdp_action::XDP_PASS,
            Verdict::Drop => xdp_action::XDP_DROP,
            Verdict::Reply => xdp_action::XDP_TX,
        };
        samples::consider(maps, jumps, action);
        #[cfg(feature = "trace")]
        crate::trace::verdict(maps, jumps.link, jumps.ctx, action);
        action
    }

    /// Never called: the verifier proves that no path leads here.
    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}

/// The kernel object is built for the BPF target only; this lets the workspace build as a whole.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
