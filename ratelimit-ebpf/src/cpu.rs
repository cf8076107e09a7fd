//! State of one CPU while it handles a frame: the last reading of the clock, its sampler, and what does not fit on the stack.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use ratelimit_common::abi::sample::{SampleHeader, Sampler};
use ratelimit_ebpf::{limit::PacketCharge, tables::LaneWord};

/// One value for all of it, so that a program looks it up once.
#[btf_map]
static CPU: PerCpuArray<Cpu, 1> = PerCpuArray::new();

/// The state of one CPU. No program is preempted by another one on its CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Cpu {
    /// The CPU's last reading of the coarse clock.
    pub(crate) reading: Reading,
    /// The words that the CPU keeps for the express lane.
    pub(crate) lane: [u64; LaneWord::COUNT],
    /// The sampler of the CPU.
    pub(crate) sampler: Sampler,
    /// The epoch in which a drop event was sent about the current frame; 0 if none was, or nobody looks.
    pub(crate) reported: u64,
    /// The counter of the current frame, by service, reason and fate.
    pub(crate) slot: u64,
    /// The current packet's charge. It is here because a stack of 512 bytes is for a whole chain of calls.
    pub(crate) request: PacketCharge,
    /// The header of the current sample.
    pub(crate) header: SampleHeader,
}

/// The coarse clock's time, and the jiffies that it was read at.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Reading {
    pub(crate) jiffies: u64,
    pub(crate) now_ns: u64,
    /// The time step that negative entries are compared with at that time.
    pub(crate) next_step: u64,
}

/// The state of this CPU.
#[inline(always)]
pub(crate) fn this() -> Option<*mut Cpu> {
    CPU.get_ptr_mut(0)
}
