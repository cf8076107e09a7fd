//! The kernel programs of the benchmark: what makes the packets, and the bare programs that others are compared with.
//!
//! ```text
//! generate, _v6, _syn   rewrite the source -> redirect into the wire          (live frames)
//! vary, vary_v6         rewrite the source -> tail call the program measured  (test runs)
//! drop, read_and_drop   the floor: what no limiter can be faster than
//! pass                  the other floor: what handing a packet to the stack costs
//! pass_some             the floor of a limiter that lets some packets in: so many per tick, and no more
//! know_and_drop         the floor of a limiter that knows its sources: headers, one word of the source and one of its
//!                       prefix where that has a limit, the clock, a count
//! count_in_lru          a peer: a limiter as it is usually written, one LRU hash of sources
//! ```
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "adding at once for all CPUs: the target does not declare AtomicU64")
)]
#![cfg_attr(
    target_arch = "bpf",
    expect(clippy::needless_pass_by_value, reason = "the entry macro hands the context over by value")
)]

#[cfg(target_arch = "bpf")]
mod packet;
#[cfg(target_arch = "bpf")]
mod tables;

#[cfg(target_arch = "bpf")]
mod entry {
    use aya_ebpf::{
        bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS},
        macros::xdp,
        programs::XdpContext,
    };

    use crate::{packet, tables};

    #[xdp]
    pub(crate) fn generate(ctx: XdpContext) -> u32 {
        packet::set_source_v4(&ctx).map_or(XDP_ABORTED, |()| packet::redirect())
    }

    #[xdp]
    pub(crate) fn generate_v6(ctx: XdpContext) -> u32 {
        packet::set_source_v6(&ctx).map_or(XDP_ABORTED, |()| packet::redirect())
    }

    #[xdp]
    pub(crate) fn generate_syn(ctx: XdpContext) -> u32 {
        packet::write_syn(&ctx).map_or(XDP_ABORTED, |()| packet::redirect())
    }

    // The kernel lets a program call another only if both, or neither, take frames of several buffers; the limiter does.
    #[xdp(frags)]
    pub(crate) fn vary(ctx: XdpContext) -> u32 {
        packet::set_source_v4(&ctx).map_or(XDP_ABORTED, |()| packet::go_on(&ctx))
    }

    #[xdp(frags)]
    pub(crate) fn vary_v6(ctx: XdpContext) -> u32 {
        packet::set_source_v6(&ctx).map_or(XDP_ABORTED, |()| packet::go_on(&ctx))
    }

    #[xdp(frags)]
    pub(crate) fn drop(_ctx: XdpContext) -> u32 {
        XDP_DROP
    }

    /// The answer depends on what was read, or the compiler would not read it.
    #[xdp(frags)]
    pub(crate) fn read_and_drop(ctx: XdpContext) -> u32 {
        if packet::is_udp_with_ports(&ctx) { XDP_DROP } else { XDP_PASS }
    }

    #[xdp(frags)]
    pub(crate) fn pass(_ctx: XdpContext) -> u32 {
        XDP_PASS
    }

    #[xdp(frags)]
    pub(crate) fn pass_some(_ctx: XdpContext) -> u32 {
        if tables::is_within_tick() { XDP_PASS } else { XDP_DROP }
    }

    #[xdp(frags)]
    pub(crate) fn know_and_drop(ctx: XdpContext) -> u32 {
        let Some(source) = packet::source_of_attack(&ctx) else { return XDP_PASS };
        let is_refused = !(tables::has_total() && tables::is_within_tick())
            && tables::is_squeezed_by_its_prefix(source)
            && tables::is_refused_by_its_word(source);
        if !is_refused {
            return XDP_PASS;
        }
        tables::count_refused();
        XDP_DROP
    }

    #[xdp(frags)]
    pub(crate) fn count_in_lru(ctx: XdpContext) -> u32 {
        let Some(source) = packet::source_of_attack(&ctx) else { return XDP_PASS };
        let is_refused = tables::is_blocked(source)
            || !tables::is_within_window(source)
            || (tables::has_total() && !tables::is_within_tick());
        if is_refused { XDP_DROP } else { XDP_PASS }
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
