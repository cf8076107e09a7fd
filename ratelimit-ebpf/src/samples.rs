//! Copies frames for the daemon while somebody looks at the traffic. While nobody does, a frame pays one load and one branch.
#![expect(
    unsafe_code,
    reason = "map values that belong to this CPU or to the daemon, and a helper that aya wraps without its answer"
)]

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, xdp_md},
    btf_maps::PerfEventByteArray,
    helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_perf_event_output},
    macros::btf_map,
    programs::XdpContext,
};
use ratelimit_common::abi::sample::{REPORTED, SAMPLE_BYTES, SampleHeader, UNDUE};
use ratelimit_ebpf::frame::{Frame, Link};

use crate::{cpu, globals, jumps::Jumps, kernel_tables::Maps};

/// The copied frames. The kernel empties this map when the daemon that loaded the program is gone.
#[btf_map]
static SAMPLES: PerfEventByteArray = PerfEventByteArray::new();

/// Copies a frame that has been counted, if somebody looks, and a sample is due or a drop event was sent about the frame.
#[inline(always)]
pub(crate) fn consider(maps: &Maps, jumps: &Jumps<'_>, action: u32) {
    let epoch = globals::sampling_epoch();
    if epoch == 0 {
        return;
    }
    let Some(cpu) = maps.cpu() else { return };
    // SAFETY: the value belongs to this CPU, on which no program is preempted by another.
    let cpu = unsafe { &mut *cpu };
    let is_due = !cpu.sampler.lets_pass(epoch);
    if is_due || cpu.reported == epoch as u64 {
        sample(jumps.ctx.ctx, action, (jumps.link == Link::Ip) as u32, is_due as u32);
    }
}

/// A function of its own: the verifier checks it once, not once for every path on which a frame can end.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sample(ctx: *mut xdp_md, action: u32, link: u32, is_due: u32) -> u32 {
    let Some(cpu) = cpu::this() else { return 0 };
    // SAFETY: what `cpu` points to belongs to this CPU, on which no program is preempted by another.
    let cpu = unsafe { &mut *cpu };
    let asked = globals::sampling();
    // An older mark is of a frame that ended while nobody looked.
    let reported = if cpu.reported == asked.epoch as u64 { REPORTED } else { 0 };
    cpu.reported = 0;
    let due = match is_due {
        0 => None,
        // SAFETY: takes nothing and returns a number.
        _ => cpu.sampler.due(asked, || unsafe { bpf_get_prandom_u32() }),
    };
    let shift = match due {
        Some(shift) => shift | reported,
        None if reported != 0 => UNDUE | reported,
        None => return 0,
    };
    let context = XdpContext::new(ctx);
    // A copy must not be longer than the frame, or the kernel makes none.
    let first = context.data_end().saturating_sub(context.data()) as u64;
    let copied = first.min(SAMPLE_BYTES as u64);
    cpu.header = SampleHeader {
        // SAFETY: takes nothing and returns a number.
        time_ns: unsafe { bpf_ktime_get_ns() },
        slot: cpu.slot as u32,
        len: first as u32,
        interface: Frame::interface(&context),
        shift,
        action,
        link,
    };
    let flags = copied << 32 | BPF_F_CURRENT_CPU;
    // SAFETY: the context is the kernel's, the map is the one declared above, and the header is this CPU's own.
    let failed = unsafe {
        bpf_perf_event_output(
            ctx.cast(),
            ptr::from_ref(&SAMPLES).cast_mut().cast(),
            flags,
            (&raw mut cpu.header).cast(),
            size_of::<SampleHeader>() as u64,
        )
    };
    const ENOENT: i64 = -2;
    if failed == ENOENT {
        // Nobody reads the samples: the daemon was killed while somebody looked. Sampling is switched off, so that no further frame pays for it.
        globals::stop_sampling();
    }
    0
}
