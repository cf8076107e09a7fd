//! What one CPU has to itself while it looks at a frame: the last reading of the clock, its sampler, and what does not fit on the stack.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use ratelimit_common::abi::sample::{SampleHeader, Sampler};
use ratelimit_ebpf::{limit::PacketCharge, tables::LaneWord};

/// One value for everything, so that a program looks it up once.
#[btf_map]
static CPU: PerCpuArray<Cpu, 1> = PerCpuArray::new();

/// What one CPU has to itself. No program is preempted by another one on its CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Cpu {
    /// What the CPU last read from the coarse clock.
    pub(crate) reading: Reading,
    /// What the CPU keeps for the express lane.
    pub(crate) lane: [u64; LaneWord::COUNT],
    /// Which frames it samples.
    pub(crate) sampler: Sampler,
    /// Where the frame at hand was counted: its service, reason and fate.
    pub(crate) slot: u64,
    /// What the frame at hand asks of the limits. Here, because a stack of 512 bytes is for the whole chain of calls.
    pub(crate) request: PacketCharge,
    /// What stands before a sample.
    pub(crate) header: SampleHeader,
}

/// The coarse clock's time, and the jiffies that it was read at.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Reading {
    pub(crate) jiffies: u64,
    pub(crate) now_ns: u64,
    /// What negative entries are held against at that time.
    pub(crate) next_step: u64,
}

/// This CPU's value.
#[inline(always)]
pub(crate) fn this() -> Option<*mut Cpu> {
    CPU.get_ptr_mut(0)
}
