//! The XDP entry points: context to frame, verdict to action. Everything else is in the library.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "compare-and-exchange: the target does not declare AtomicU64"),
    expect(clippy::needless_pass_by_value, reason = "the entry macro hands the context over by value")
)]

#[cfg(target_arch = "bpf")]
mod maps;

#[cfg(target_arch = "bpf")]
mod entry {
    use aya_ebpf::{bindings::xdp_action, macros::xdp, programs::XdpContext};
    use ratelimit_common::abi::Verdict;
    use ratelimit_ebpf::{frame::Frame, pipeline::process};

    use crate::maps::Maps;

    /// For kernels without multi-buffer XDP.
    #[xdp]
    pub(crate) fn ratelimit(ctx: XdpContext) -> u32 {
        action(process(&Frame::of_context(&ctx), &Maps))
    }

    /// Also takes frames of several buffers, such as jumbo frames.
    ///
    /// # Minimum kernel version
    /// 5.18
    #[xdp(frags)]
    pub(crate) fn ratelimit_frags(ctx: XdpContext) -> u32 {
        action(process(&Frame::of_context_frags(&ctx), &Maps))
    }

    #[inline(always)]
    fn action(verdict: Verdict) -> u32 {
        match verdict {
            Verdict::Pass => xdp_action::XDP_PASS,
            Verdict::Drop => xdp_action::XDP_DROP,
        }
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
