//! What the rig's own limiters remember: what is left of a tick, and packets of sources.
//!
//! The table of sources is what most XDP firewalls have: an LRU hash with a count for each source, which begins anew when a window is over. Each
//! packet looks its source up and adds to the count.
#![expect(unsafe_code, reason = "map values are reached through pointers the verifier checks")]

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::{
    Global,
    btf_maps::{Array, HashMap, LruHashMap, PerCpuArray},
    helpers::{bpf_jiffies64, bpf_ktime_get_ns},
    macros::btf_map,
};

/// Packets that may pass in one tick of the kernel's clock, on each CPU.
#[unsafe(no_mangle)]
static PER_TICK: Global<u32> = Global::new(0);
/// Whether all sources together have a limit too.
#[unsafe(no_mangle)]
static HAS_TOTAL: Global<u32> = Global::new(0);
/// Whether the prefixes around sources have limits too.
#[unsafe(no_mangle)]
static HAS_PREFIXES: Global<u32> = Global::new(0);
/// Whether anybody is blocked.
#[unsafe(no_mangle)]
static HAS_BLOCKS: Global<u32> = Global::new(0);
/// Packets of one source that may pass in one window.
#[unsafe(no_mangle)]
static PER_WINDOW: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
static WINDOW_NS: Global<u64> = Global::new(1_000_000_000);

/// What a CPU has let through in a tick.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tick {
    number: u64,
    left: u64,
}

/// What a source has sent in a window.
#[derive(Clone, Copy)]
#[repr(C)]
struct Window {
    ends_ns: u64,
    packets: u64,
}

#[btf_map]
static TICK: PerCpuArray<Tick, 1> = PerCpuArray::new();

// Whoever loads a program that uses one of these says how many entries it has: everybody else would pay for the memory.
#[btf_map]
static COUNTED: LruHashMap<u64, Window, 1> = LruHashMap::new();
#[btf_map]
static BLOCKED: HashMap<u64, u64, 1> = HashMap::new();

/// One word for the sources of a hash: until which tick they are refused, and 0 is for good.
#[btf_map]
static REFUSED_UNTIL: Array<u64, 1> = Array::new();

/// One cell for the prefixes of a hash, as large as the limiter's.
#[derive(Clone, Copy)]
#[repr(C)]
struct PrefixCell {
    /// Until which tick the prefixes squeeze their sources, and 0 is for good.
    squeezes_until: u64,
    rest: [u64; 3],
}
#[btf_map]
static PREFIX_CELLS: Array<PrefixCell, 1> = Array::new();

/// Packets that `know_and_drop` has refused.
#[btf_map]
static REFUSED: PerCpuArray<u64, 1> = PerCpuArray::new();

/// Spreads sources over their words: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The upper 16 bits of a product choose among 65 536 words, as many as the limiter has cells.
const WORD_SHIFT: u32 = 48;
/// The upper 13 bits choose among 8192 cells, as many as the limiter has for the prefixes of one length.
const PREFIX_CELL_SHIFT: u32 = 51;
/// Bits of an IPv4 source behind its prefix of 20 bits.
const HOST_BITS: u32 = 12;

/// Whether this CPU may let one more through in this tick; if so, it has.
#[inline(always)]
pub(crate) fn is_within_tick() -> bool {
    let Some(slot) = TICK.get_ptr_mut(0) else { return false };
    // SAFETY: the helper only reads a number. The slot belongs to this CPU, and a program is not preempted by another one on it.
    unsafe {
        let number = bpf_jiffies64();
        if (*slot).number != number {
            *slot = Tick { number, left: u64::from(PER_TICK.load()) };
        }
        if (*slot).left == 0 {
            return false;
        }
        (*slot).left -= 1;
    }
    true
}

/// Whether the word of a source refuses it now.
#[inline(always)]
pub(crate) fn is_refused_by_its_word(source: u64) -> bool {
    let Some(word) = REFUSED_UNTIL.get_ptr((source.wrapping_mul(SPREAD) >> WORD_SHIFT) as u32) else {
        return false;
    };
    // SAFETY: the verifier sees that the pointer comes from the table; the helper only reads a number.
    let (until, now) = unsafe { (*word, bpf_jiffies64()) };
    until == 0 || until > now
}

/// Whether the prefix around a source asks what the source has sent: always, where prefixes have no limits.
#[inline(always)]
pub(crate) fn is_squeezed_by_its_prefix(source: u64) -> bool {
    if HAS_PREFIXES.load() == 0 {
        return true;
    }
    let number = ((source >> HOST_BITS).wrapping_mul(SPREAD) >> PREFIX_CELL_SHIFT) as u32;
    let Some(cell) = PREFIX_CELLS.get_ptr(number) else { return false };
    // SAFETY: as in `is_refused_by_its_word`.
    let (until, now) = unsafe { ((*cell).squeezes_until, bpf_jiffies64()) };
    until == 0 || until > now
}

#[inline(always)]
pub(crate) fn count_refused() {
    if let Some(count) = REFUSED.get_ptr_mut(0) {
        // SAFETY: as in `is_within_tick`.
        unsafe { *count = (*count).wrapping_add(1) };
    }
}

#[inline(always)]
pub(crate) fn has_total() -> bool {
    HAS_TOTAL.load() != 0
}

#[inline(always)]
pub(crate) fn is_blocked(source: u64) -> bool {
    HAS_BLOCKS.load() != 0 && BLOCKED.get_ptr(source).is_some()
}

/// Counts a packet, and says whether its source may still send it.
#[inline(always)]
pub(crate) fn is_within_window(source: u64) -> bool {
    // SAFETY: the helper only reads a number.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let fresh = Window { ends_ns: now_ns.wrapping_add(WINDOW_NS.load()), packets: 1 };
    let Some(window) = COUNTED.get_ptr_mut(source) else {
        // A table that cannot take it lets it pass.
        let _full = COUNTED.insert(source, fresh, 0);
        return PER_WINDOW.load() > 0;
    };
    // SAFETY: the verifier sees that the pointer comes from the table. Two CPUs that begin a window at once may lose a packet's count.
    unsafe {
        if now_ns > (*window).ends_ns {
            *window = fresh;
        } else {
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*window).packets, 1);
        }
        (*window).packets <= PER_WINDOW.load()
    }
}
