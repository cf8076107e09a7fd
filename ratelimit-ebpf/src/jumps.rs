//! Tail calls from one program to the next, and the notes that the next program reads.
#![expect(unsafe_code, reason = "tail calls, and notes that are reached through a pointer from a helper")]

use core::ptr::addr_of_mut;

use aya_ebpf::{
    btf_maps::{HashMap, PerCpuArray, ProgramArray},
    macros::btf_map,
    programs::XdpContext,
};
use ratelimit_common::abi::{Policy, Reason};
use ratelimit_ebpf::{
    frame::{Frame, Link},
    notes::{NOTES, Notes, leave},
    tables::{Relay, Successor, TailCallContext},
};

use crate::stages;

/// The programs that `ratelimit` tail-calls; those for cookies only if the kernel accepted them.
#[btf_map]
static JUMPS: ProgramArray<4> = ProgramArray::new();

/// The programs that `ratelimit_ip` tail-calls. Programs that send replies are not in it.
#[btf_map]
static JUMPS_IP: ProgramArray<4> = ProgramArray::new();

/// Interfaces on which no replies are sent: their drivers keep VLAN tags outside the frame, and a reply would lack its tag. Only programs that reply read this map.
#[btf_map]
static SILENT: HashMap<u32, u32, 256> = HashMap::new();

/// Notes that programs leave for themselves and each other while they handle one packet.
#[btf_map]
static SCRATCH: PerCpuArray<[u64; NOTES], 1> = PerCpuArray::new();

/// Tail calls for one packet.
#[derive(Clone, Copy)]
pub(crate) struct Jumps<'c> {
    pub(crate) ctx: &'c XdpContext,
    pub(crate) link: Link,
}

impl Relay for Jumps<'_> {
    #[inline(always)]
    fn answers(&self) -> bool {
        self.link == Link::Ethernet
    }

    #[inline(always)]
    fn hand_over(&self, to: Successor, context: TailCallContext) {
        let Some(scratch) = Scratch::of_this_cpu() else { return };
        leave(&scratch, context);
        // SAFETY: nothing is waiting to be dropped.
        unsafe {
            match self.link {
                Link::Ethernet => JUMPS.tail_call(self.ctx, to as u32),
                Link::Ip => JUMPS_IP.tail_call(self.ctx, to as u32),
            }
        };
    }

    #[inline(always)]
    fn service_at(&self, _: &Frame<'_>, table: u32, class: u32) -> u32 {
        stages::service_at(self.link, self.ctx, table, class)
    }

    #[inline(always)]
    fn judge_link(&self, _: &Frame<'_>, policy: &Policy, passes: Reason) -> Reason {
        Reason::from_code(stages::judge_link(self.link, self.ctx, policy, passes as u32))
    }
}

/// Whether replies may be sent on the interface that the packet came in by.
#[inline(always)]
pub(crate) fn answers(ctx: &XdpContext) -> bool {
    // SAFETY: the value is not read, only whether there is one.
    unsafe { SILENT.get(Frame::interface(ctx)).is_none() }
}

/// This CPU's notes.
#[derive(Clone, Copy)]
pub(crate) struct Scratch(*mut [u64; NOTES]);

impl Scratch {
    #[inline(always)]
    pub(crate) fn of_this_cpu() -> Option<Self> {
        SCRATCH.get_ptr_mut(0).map(Self)
    }
}

impl Notes for Scratch {
    #[inline(always)]
    fn note(&self, index: usize) -> u64 {
        // SAFETY: from a lookup of this CPU's own slot; the mask keeps the index inside. Volatile: see the trait.
        unsafe { addr_of_mut!((*self.0)[index & (NOTES - 1)]).read_volatile() }
    }

    #[inline(always)]
    fn set_note(&self, index: usize, value: u64) {
        // SAFETY: as in `note`.
        unsafe { addr_of_mut!((*self.0)[index & (NOTES - 1)]).write_volatile(value) };
    }
}
