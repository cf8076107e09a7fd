//! Variables that the program reads without a lookup: the kernel puts their addresses into the instructions when it loads the program. Each is a map with
//! one value for the daemon.
//!
//! The daemon that loads the program writes their first values; `dataplane::kept` of the daemon describes how earlier values are kept.
#![expect(unsafe_code, reason = "variables that the daemon and other CPUs change")]

use core::ptr::{addr_of, addr_of_mut};

use ratelimit_common::{
    abi::{Policy, Switches, sample::Sampling},
    limit::{
        clients::FILTER_WORDS,
        prefilter::{CELL_BIT_WORDS, CELLS_IN_WORD, NEGATIVE_PLACES},
    },
};
use ratelimit_ebpf::{packet::Family, tables::Lane};

/// Which lists have entries, and whether the express lane is open.
#[unsafe(link_section = ".data.SWITCHES")]
#[unsafe(no_mangle)]
static mut SWITCHES: Switches = Switches::CLOSED;

/// A copy of the policy in force while the express lane is open: a lookup in `POLICY` costs as much as everything that the lane does.
#[unsafe(link_section = ".bss.EXPRESS")]
#[unsafe(no_mangle)]
static mut EXPRESS: PolicyWords = [0; size_of::<Policy>() / 8];

/// A policy as words.
pub(crate) type PolicyWords = [u64; size_of::<Policy>() / 8];
const _: () = assert!(size_of::<Policy>() == size_of::<PolicyWords>() && align_of::<Policy>() <= 8);

/// Two bits for each cell of the prefilter: whether it may be tracked, and whether it may remember something of its sources. All of them fit into a core's
/// first-level cache, which the cells do not. A bit is set after the state that it stands for was written, and cleared before that state is read again, so a
/// cell that is tracked, or remembers something, is without its bit for a moment at most: its packets are then judged as those of a source that nothing is known of. All bits are set when the program is loaded,
/// because it may be loaded onto maps with tracked cells, and with a policy that has entries behind cells without marks.
#[unsafe(link_section = ".data.TRACKED")]
#[unsafe(no_mangle)]
static mut TRACKED: [u64; CELL_BIT_WORDS] = [u64::MAX; CELL_BIT_WORDS];

/// The negative entries of all cells of the prefilter, by place. Each program has its own, which begin empty: a source that is over a limit is
/// then looked up once more.
#[unsafe(link_section = ".bss.NEGATIVE")]
#[unsafe(no_mangle)]
static mut NEGATIVE: [u64; NEGATIVE_PLACES] = [0; NEGATIVE_PLACES];

/// The filter in front of known clients. Each program has its own, which the daemon fills.
#[unsafe(link_section = ".bss.CLIENT_FILTER")]
#[unsafe(no_mangle)]
static mut CLIENT_FILTER: [u64; FILTER_WORDS] = [0; FILTER_WORDS];

/// Whether frames are sampled. A variable and not a map of its own, because reading it is one load without a lookup.
#[unsafe(link_section = ".data.sampling")]
static mut SAMPLING: Sampling = Sampling { epoch: 0, budget: 0 };

/// The epoch of the sampler; 0 while nobody looks.
#[inline(always)]
pub(crate) fn sampling_epoch() -> u32 {
    // SAFETY: an aligned word. Volatile, because the daemon writes it.
    unsafe { addr_of!(SAMPLING.epoch).read_volatile() }
}

/// What the daemon asks of the sampler.
#[inline(always)]
pub(crate) fn sampling() -> Sampling {
    // SAFETY: aligned. The two fields may be from different moments: either budget will do.
    unsafe { addr_of!(SAMPLING).read_volatile() }
}

/// Switches sampling off, because nobody reads the samples.
#[inline(always)]
pub(crate) fn stop_sampling() {
    // SAFETY: aligned, so the daemon and other CPUs see the old value or the new one.
    unsafe { addr_of_mut!(SAMPLING.epoch).write_volatile(0) };
}

/// Whether the list of a family has entries.
#[inline(always)]
pub(crate) fn is_listed(family: Family) -> bool {
    // SAFETY: an aligned word inside. Volatile, because the daemon writes it.
    unsafe { addr_of!(SWITCHES.listed[family as usize]).read_volatile() != 0 }
}

/// The lane's view of the policy for packets of a family; `None` while the lane is closed to them.
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

/// Whether packets weigh alike under the policy of the lane. Read separately from the switch, because few packets need it; the
/// daemon changes the answer only while no packet is in progress that saw the lane open.
#[inline(always)]
pub(crate) fn weighs_alike() -> bool {
    // SAFETY: an aligned word. Volatile, because the daemon writes it.
    unsafe { addr_of!(SWITCHES.totals).read_volatile() != 0 }
}

/// The word that has the bits of a cell, and the number of bits below the cell's own.
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

/// A word of the filter in front of known clients.
#[inline(always)]
pub(crate) fn client_filter(index: u32) -> *mut u64 {
    // SAFETY: the mask keeps the word inside, for the verifier too.
    unsafe { addr_of_mut!(CLIENT_FILTER[index as usize & (FILTER_WORDS - 1)]) }
}
