//! What the program finds without a lookup: variables, whose addresses the kernel puts into its instructions when it is loaded. Each is a map with
//! one value for the daemon.
//!
//! Whoever loads the program writes them: see `dataplane::kept` of the daemon for how what is there stays.
#![expect(unsafe_code, reason = "variables that the daemon and other CPUs change")]

use core::ptr::{addr_of, addr_of_mut};

use ratelimit_common::{
    abi::{Policy, Switches},
    limit::prefilter::{CELL_BIT_WORDS, CELLS_IN_WORD, NEGATIVE_PLACES},
};
use ratelimit_ebpf::{packet::Family, tables::Lane};

/// Which lists have entries, and whether the express lane is open.
#[unsafe(link_section = ".data.SWITCHES")]
#[unsafe(no_mangle)]
static mut SWITCHES: Switches = Switches::CLOSED;

/// A copy of the policy in force while the express lane is open: a lookup in `POLICY` costs as much as all that the lane does.
#[unsafe(link_section = ".bss.EXPRESS")]
#[unsafe(no_mangle)]
static mut EXPRESS: PolicyWords = [0; size_of::<Policy>() / 8];

/// A policy as words.
pub(crate) type PolicyWords = [u64; size_of::<Policy>() / 8];
const _: () = assert!(size_of::<Policy>() == size_of::<PolicyWords>() && align_of::<Policy>() <= 8);

/// Two bits for each cell of the prefilter, that it may be tracked and that something of its sources may be remembered: all of them fit into a core's
/// first-level cache, and what they are about does not. A bit is set after what it is about was written and cleared before that is read again, so that
/// no cell is ever tracked without its bit; a negative entry may be without one for a moment. All bits are set when the program is loaded,
/// because it may be loaded onto maps with tracked cells, and with a policy that has entries behind cells that know nothing of them.
#[unsafe(link_section = ".data.TRACKED")]
#[unsafe(no_mangle)]
static mut TRACKED: [u64; CELL_BIT_WORDS] = [u64::MAX; CELL_BIT_WORDS];

/// The negative entries of all cells of the prefilter, by place. Each program has its own, and begins without any: who is over a limit is
/// looked up once more then.
#[unsafe(link_section = ".bss.NEGATIVE")]
#[unsafe(no_mangle)]
static mut NEGATIVE: [u64; NEGATIVE_PLACES] = [0; NEGATIVE_PLACES];

/// Whether the list of a family has entries.
#[inline(always)]
pub(crate) fn is_listed(family: Family) -> bool {
    // SAFETY: an aligned word inside. Volatile, because the daemon writes it.
    unsafe { addr_of!(SWITCHES.listed[family as usize]).read_volatile() != 0 }
}

/// What the express lane goes by for packets of a family; `None` while it is closed to them.
#[inline(always)]
pub(crate) fn lane<'p>(family: Family, now_ns: u64) -> Option<Lane<'p>> {
    // SAFETY: an aligned word. Volatile, because the daemon writes it.
    let opens_ns = unsafe { addr_of!(SWITCHES.opens_ns[family as usize]).read_volatile() };
    if now_ns < opens_ns {
        return None;
    }
    // SAFETY: same size and alignment by the assertion at the variable, and every bit pattern is a policy: it has integers only. The daemon
    // writes it only while the switch is off and no packet is under way that saw it on.
    let policy = unsafe { &*addr_of!(EXPRESS).cast::<Policy>() };
    Some(Lane { policy })
}

/// Whether packets weigh alike under the policy of the lane. Asked where that matters, and not with the switch: few packets get that far, and the
/// daemon changes the answer only while no packet is under way that saw the lane open.
#[inline(always)]
pub(crate) fn weighs_alike() -> bool {
    // SAFETY: an aligned word. Volatile, because the daemon writes it.
    unsafe { addr_of!(SWITCHES.totals).read_volatile() != 0 }
}

/// The word that a cell of the prefilter has its bits in, and how many bits of others are below them.
#[inline(always)]
pub(crate) fn cell_bits(cell: u32) -> (*mut u64, u32) {
    // SAFETY: the mask keeps the word inside, for the verifier too.
    let word = unsafe { addr_of_mut!(TRACKED[(cell / CELLS_IN_WORD) as usize & (CELL_BIT_WORDS - 1)]) };
    (word, cell % CELLS_IN_WORD * 2)
}

/// The negative entry at a place.
#[inline(always)]
pub(crate) fn negative_entry(place: u32) -> *mut u64 {
    // SAFETY: the mask keeps the word inside, for the verifier too.
    unsafe { addr_of_mut!(NEGATIVE[place as usize & (NEGATIVE_PLACES - 1)]) }
}
