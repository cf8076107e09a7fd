//! Writes every verdict as a line of aya-log, in builds with the feature `trace` only.
//!
//! A line has numbers: the source, the index of the frame's counter (which stands for its service, reason and fate), the XDP action, and the
//! length. The daemon, which knows the names, turns them into words. A function of its own writes the line, because its fields need more of
//! the stack than programs have left.
#![expect(unsafe_code, reason = "an exported function, and what belongs to this CPU")]

use aya_ebpf::{
    bindings::{xdp_action, xdp_md},
    programs::XdpContext,
};
use aya_log_ebpf::{log, macro_support::Level};
use ratelimit_ebpf::{
    frame::{Frame, Link},
    parse,
};

use crate::kernel_tables::Maps;

/// Writes the line of a frame that has been counted and judged.
#[inline(always)]
pub(crate) fn verdict(maps: &Maps, link: Link, ctx: &XdpContext, action: u32) {
    // SAFETY: the value belongs to this CPU, on which no program is preempted by another.
    let slot = maps.cpu().map_or(0, |cpu| unsafe { (*cpu).slot as u32 });
    trace_verdict(ctx.ctx, (link == Link::Ip) as u32, action, slot);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn trace_verdict(ctx: *mut xdp_md, is_ip: u32, action: u32, slot: u32) -> u32 {
    let ctx = XdpContext::new(ctx);
    let link = if is_ip == 0 { Link::Ethernet } else { Link::Ip };
    let frame = Frame::of_context(link, &ctx);
    // The frame of a reply has been written over, so its destination is the source of the packet.
    let source =
        if action == xdp_action::XDP_TX { parse::destination(&frame) } else { parse::source(&frame) };
    let source = source.map_or([0; 16], |source| source.key.octets());
    let level = match action {
        xdp_action::XDP_DROP => Level::Warn,
        xdp_action::XDP_TX => Level::Info,
        _ => Level::Debug,
    };
    log!(&ctx, target: "", level, "{:i} {} {} {}", source, slot, action, frame.len());
    0
}
