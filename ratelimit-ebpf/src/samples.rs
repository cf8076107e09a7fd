//! Copies of frames for the daemon while somebody looks at the traffic. While nobody does, a frame pays one load and one branch.
#![expect(
    unsafe_code,
    reason = "map values that belong to this CPU or to the daemon, and a helper that aya wraps without its answer"
)]

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_CPU, xdp_md},
    btf_maps::{Array, PerCpuArray, PerfEventByteArray},
    helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_perf_event_output},
    macros::btf_map,
    programs::XdpContext,
};
use ratelimit_common::abi::sample::{SAMPLE_BYTES, SampleHeader, Sampler, Sampling};
use ratelimit_ebpf::frame::{Frame, Link};

use crate::jumps::Jumps;

/// Whether frames are sampled.
#[btf_map]
static SAMPLING: Array<Sampling, 1> = Array::new();

/// The sampler of each CPU, and the header that it writes: too large for what programs have left of the stack.
#[btf_map]
static SAMPLERS: PerCpuArray<CpuSampler, 1> = PerCpuArray::new();

/// The copies. The kernel empties it when the daemon that loaded the program is gone.
#[btf_map]
static SAMPLES: PerfEventByteArray = PerfEventByteArray::new();

/// What one CPU samples with.
#[derive(Clone, Copy)]
#[repr(C)]
struct CpuSampler {
    sampler: Sampler,
    header: SampleHeader,
    /// Where the frame at hand was counted.
    slot: u64,
}

/// Whether somebody looks.
#[inline(always)]
fn is_looked_at() -> bool {
    // SAFETY: array values live as long as the map. Volatile, because the daemon writes it.
    SAMPLING.get_ptr(0).is_some_and(|asked| unsafe { (&raw const (*asked).epoch).read_volatile() } != 0)
}

/// Remembers where the frame at hand was counted. Noted down rather than handed on: the verifier would keep every way apart in which a frame can
/// end, and check a third more instructions.
#[inline(always)]
pub(crate) fn counted(slot: u32) {
    if (cfg!(feature = "trace") || is_looked_at())
        && let Some(own) = SAMPLERS.get_ptr_mut(0)
    {
        // SAFETY: the value belongs to this CPU, on which no program is preempted by another.
        unsafe { (*own).slot = slot as u64 };
    }
}

/// Where the frame at hand was counted.
#[cfg(feature = "trace")]
#[inline(always)]
pub(crate) fn slot() -> u32 {
    // SAFETY: as in `counted`.
    SAMPLERS.get_ptr(0).map_or(0, |own| unsafe { (*own).slot as u32 })
}

/// Copies a frame that has been counted, if somebody looks and it is its turn.
#[inline(always)]
pub(crate) fn consider(jumps: &Jumps<'_>, action: u32) {
    if is_looked_at() {
        sample(jumps.ctx.ctx, action, (jumps.link == Link::Ip) as u32);
    }
}

/// A function of its own: the verifier checks it once, not once for every way in which a frame can end.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sample(ctx: *mut xdp_md, action: u32, link: u32) -> u32 {
    let (Some(asked), Some(own)) = (SAMPLING.get_ptr_mut(0), SAMPLERS.get_ptr_mut(0)) else { return 0 };
    // SAFETY: array values live as long as their maps; what `own` points to belongs to this CPU, on which no program is preempted by another.
    // The two halves of `asked` may be of different moments: either budget will do.
    let (asked_now, own) = unsafe { (asked.read_volatile(), &mut *own) };
    // SAFETY: takes nothing and returns a number.
    let Some(shift) = own.sampler.due(asked_now, || unsafe { bpf_get_prandom_u32() }) else { return 0 };
    let context = XdpContext::new(ctx);
    // A copy must not be longer than the frame, or the kernel makes none.
    let first = context.data_end().saturating_sub(context.data()) as u64;
    let copied = first.min(SAMPLE_BYTES as u64);
    own.header = SampleHeader {
        // SAFETY: takes nothing and returns a number.
        time_ns: unsafe { bpf_ktime_get_ns() },
        slot: own.slot as u32,
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
            (&raw mut own.header).cast(),
            size_of::<SampleHeader>() as u64,
        )
    };
    const ENOENT: i64 = -2;
    if failed == ENOENT {
        // Nobody takes samples in: the daemon was killed while somebody looked. No frame pays for it from now on.
        // SAFETY: as above; aligned, so the daemon and other CPUs see the old value or the new one.
        unsafe { (&raw mut (*asked).epoch).write_volatile(0) };
    }
    0
}
