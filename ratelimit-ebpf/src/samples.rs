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
use ratelimit_common::abi::sample::{SAMPLE_BYTES, SampleHeader, Sampling};
use ratelimit_ebpf::frame::{Frame, Link};

use crate::{cpu, jumps::Jumps, kernel_tables::Maps};

/// Whether frames are sampled. A variable and not a map of its own, because reading it is one load without a lookup.
#[unsafe(link_section = ".data.sampling")]
static mut SAMPLING: Sampling = Sampling { epoch: 0, budget: 0 };

/// The copied frames. The kernel empties this map when the daemon that loaded the program is gone.
#[btf_map]
static SAMPLES: PerfEventByteArray = PerfEventByteArray::new();

/// Copies a frame that has been counted, if somebody looks and a sample is due.
#[inline(always)]
pub(crate) fn consider(maps: &Maps, jumps: &Jumps<'_>, action: u32) {
    // SAFETY: aligned. Volatile, because the daemon writes it.
    let epoch = unsafe { (&raw const SAMPLING.epoch).read_volatile() };
    if epoch == 0 {
        return;
    }
    let Some(cpu) = maps.cpu() else { return };
    // SAFETY: the value belongs to this CPU, on which no program is preempted by another.
    if !unsafe { &mut (*cpu).sampler }.lets_pass(epoch) {
        sample(jumps.ctx.ctx, action, (jumps.link == Link::Ip) as u32);
    }
}

/// A function of its own: the verifier checks it once, not once for every path on which a frame can end.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sample(ctx: *mut xdp_md, action: u32, link: u32) -> u32 {
    let Some(cpu) = cpu::this() else { return 0 };
    // SAFETY: what `cpu` points to belongs to this CPU, on which no program is preempted by another. The two fields of `SAMPLING` may be
    // from different moments: either budget will do.
    let (asked, cpu) = unsafe { ((&raw const SAMPLING).read_volatile(), &mut *cpu) };
    // SAFETY: takes nothing and returns a number.
    let Some(shift) = cpu.sampler.due(asked, || unsafe { bpf_get_prandom_u32() }) else { return 0 };
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
        // SAFETY: as in `consider`; aligned, so the daemon and other CPUs see the old value or the new one.
        unsafe { (&raw mut SAMPLING.epoch).write_volatile(0) };
    }
    0
}
