//! The packet path's tables on the maps of the kernel, with every unsafe access to a map, and the licence section.
#![expect(unsafe_code, reason = "map values are shared memory, reached through pointers from helpers")]

use core::{
    intrinsics::{AtomicOrdering, atomic_and, atomic_cxchg, atomic_or, atomic_xadd},
    ptr::{self, addr_of_mut},
};

use aya_ebpf::{
    bindings::{BPF_NOEXIST, BPF_RB_NO_WAKEUP},
    btf_maps::lpm_trie::Key,
    helpers::{bpf_jiffies64, bpf_ktime_get_coarse_ns, bpf_ktime_get_ns},
};
use ratelimit_common::{
    abi::{
        Bucket, Cell, Clock, DropEvent, EntryKey, Event, Lease, LimitSet, ListEntry, Policy, PrefixKey,
        PrefixLevelCell, Share, WindowState,
        destination::{DestinationKey, KEY_BITS},
    },
    limit::{
        clients::WAYS,
        fair, gcra,
        prefilter::{self, REMEMBERED_BIT, TRACKED_BIT},
        window::sliding::SUB_WINDOWS,
    },
};
use ratelimit_ebpf::{
    forget::masked,
    packet::{Address, Family},
    tables::{CpuBudget, InsertError, Lane, LaneWord, Tables},
};

use crate::{
    cpu::{self, Cpu, Reading},
    globals,
    maps::{
        ALLOWANCES, ASKED, BUCKETS, CELLS, CHALLENGED, CLAIMED, CLIENTS, COUNTERS, DESTINATIONS, DROPS,
        EVENTS, FAIR, FRESH_WINDOW, KEPT_WINDOWS, LEASES, LINK_CELLS, LINKS, LISTS_V4, LISTS_V6, MARKS,
        POLICY, PREFIXES, PROVEN, QUIET, RUNGS, SHARES, SPENT, SYNS, TOTALS, USER_LIMITS, USER_WINDOWS,
        USERS, WINDOWS,
    },
};

const EEXIST: i32 = 17;

/// The licence of the program: the kernel allows `bpf_xdp_get_buff_len` and other helpers only to GPL-compatible programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[inline(always)]
fn insert_error(errno: i32) -> InsertError {
    if errno == -EEXIST { InsertError::Exists } else { InsertError::Full }
}

/// The time of the coarse clock in nanoseconds. The clock moves once per tick, and jiffies move with it. Reading jiffies is one load, and reading the
/// clock is a call, so each CPU reads the clock once per tick.
#[inline(always)]
fn coarse_ns(maps: &Maps) -> u64 {
    // SAFETY: both take nothing and return a number. The coarse clock exists since kernel 5.11. The reading belongs to this CPU, and a
    // program is not preempted by another one on it.
    unsafe {
        let Some(cpu) = maps.cpu() else { return bpf_ktime_get_coarse_ns() };
        let reading = &raw mut (*cpu).reading;
        // Jiffies are read before the clock, or a reading of the last tick could be taken for one of this tick.
        let jiffies = bpf_jiffies64();
        if (*reading).jiffies == jiffies {
            return (*reading).now_ns;
        }
        let now_ns = bpf_ktime_get_coarse_ns();
        // Jiffies move a moment before the clock does. In that moment the clock still has the old time, and the next packet reads it again.
        if (*reading).now_ns != now_ns {
            let next_step = prefilter::next_step(gcra::time_q8(now_ns));
            *reading = Reading { jiffies, now_ns, next_step };
        }
        now_ns
    }
}

/// The maps of the module `maps`, and the state of this CPU.
pub(crate) struct Maps {
    /// The state of this CPU. Null in functions that the verifier checks by themselves: they look it up when they need it.
    cpu: *mut Cpu,
}

impl Maps {
    /// The maps for a program.
    #[inline(always)]
    pub(crate) fn of_this_cpu() -> Option<Self> {
        Self::holding(cpu::this()?)
    }

    /// The maps for a function that gets the state of this CPU as an argument.
    #[inline(always)]
    pub(crate) fn holding(cpu: *mut Cpu) -> Option<Self> {
        if cpu.is_null() { None } else { Some(Self { cpu }) }
    }

    /// The state of this CPU, for a program's functions.
    #[inline(always)]
    pub(crate) fn held(&self) -> *mut Cpu {
        self.cpu
    }

    /// The counter of the current frame.
    #[inline(always)]
    pub(crate) fn counted(&self) -> u32 {
        match self.cpu() {
            // SAFETY: the value belongs to this CPU, and a program is not preempted by another one on it.
            Some(cpu) => unsafe { (*cpu).slot as u32 },
            None => 0,
        }
    }

    /// The maps for a function that does not get the state of this CPU.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { cpu: ptr::null_mut() }
    }

    /// The state of this CPU.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> Option<*mut Cpu> {
        if self.cpu.is_null() { cpu::this() } else { Some(self.cpu) }
    }
}

/// Sets one of the bits of a cell.
#[inline(always)]
fn set_bit(cell: u32, bit: u64) {
    let (word, below) = globals::cell_bits(cell);
    // SAFETY: as in `load` and `compare_exchange`.
    unsafe { atomic_or::<u64, u64, { AtomicOrdering::SeqCst }>(word, bit << below) };
}

/// Clears one of the bits of a cell.
#[inline(always)]
fn clear_bit(cell: u32, bit: u64) {
    let (word, below) = globals::cell_bits(cell);
    // SAFETY: as in `load` and `compare_exchange`.
    unsafe { atomic_and::<u64, u64, { AtomicOrdering::SeqCst }>(word, !(bit << below)) };
}

/// The mark of a cell that may have a proven source.
#[inline(always)]
fn proven(cell: u32) -> Option<*mut u8> {
    let marks = PROVEN.get_ptr_mut(0)?.cast::<u8>();
    // SAFETY: the mask keeps it inside, for the verifier too.
    Some(unsafe { marks.add(masked::<{ prefilter::CELLS as usize - 1 }>(cell as usize)) })
}

impl Tables for Maps {
    type Word = *mut u64;
    type Bucket = *mut Bucket;
    type Cell = *mut Cell;
    type PrefixLevelCell = *mut PrefixLevelCell;
    type Window = *mut WindowState;
    type Share = *mut Share;
    type Clients = *mut [u64; WAYS];

    #[inline(always)]
    fn now_ns(&self, clock: Clock) -> u64 {
        match clock {
            // SAFETY: takes nothing and returns a number.
            Clock::Precise => unsafe { bpf_ktime_get_ns() },
            Clock::Coarse => coarse_ns(self),
        }
    }

    #[inline(always)]
    fn next_step(&self, now_q8: u64) -> u64 {
        match self.cpu() {
            // SAFETY: the reading belongs to this CPU. It was worked out when the clock was read.
            Some(cpu) => unsafe { (*cpu).reading.next_step },
            None => prefilter::next_step(now_q8),
        }
    }

    #[inline(always)]
    fn policy(&self) -> Option<&Policy> {
        let words = POLICY.get_value(0, &0)?;
        // SAFETY: same size and alignment by the assertion at the map, and every bit pattern is a policy: it has
        // integers only. User space writes an inner map before it puts it here and never again.
        Some(unsafe { &*ptr::from_ref(words).cast::<Policy>() })
    }

    #[inline(always)]
    fn express(&self, family: Family, now_ns: u64) -> Option<Lane<'_>> {
        globals::lane(family, now_ns)
    }

    #[inline(always)]
    fn is_listed(&self, family: Family) -> bool {
        globals::is_listed(family)
    }

    #[inline(always)]
    fn weighs_alike(&self) -> bool {
        globals::weighs_alike()
    }

    #[inline(always)]
    fn lane_word(&self, word: LaneWord) -> Option<*mut u64> {
        // SAFETY: the value belongs to this CPU.
        self.cpu().map(|cpu| unsafe { &raw mut (*cpu).lane[word as usize] })
    }

    #[inline(always)]
    fn destined(&self, table: u32, key: &DestinationKey) -> Option<u32> {
        let number = DESTINATIONS.get_value_ptr_mut(table, &Key::new(KEY_BITS, *key))?;
        // SAFETY: from a lookup in this run. User space writes a table before the policy refers to it and never again.
        Some(unsafe { number.read() })
    }

    #[inline(always)]
    fn listed(&self, address: Address) -> Option<&ListEntry> {
        let octets = address.key.octets();
        match address.family {
            Family::V4 if globals::is_listed(Family::V4) => {
                let addr = [octets[12], octets[13], octets[14], octets[15], 0, 0, 0, 0];
                LISTS_V4.get(&Key::new(32, addr))
            }
            Family::V6 if globals::is_listed(Family::V6) => LISTS_V6.get(&Key::new(128, octets)),
            Family::V4 | Family::V6 => None,
        }
    }

    #[inline(always)]
    fn bucket(&self, key: &EntryKey) -> Option<*mut Bucket> {
        BUCKETS.get_ptr_mut(key)
    }

    #[inline(always)]
    fn bucket_word(&self, bucket: *mut Bucket, index: usize) -> *mut u64 {
        // SAFETY: `index` is below MAX_LIMITS. The pointer comes from a lookup in this run, so RCU keeps the memory; an
        // evicted bucket may by now belong to another source, which then pays one packet for it.
        unsafe { addr_of_mut!((*bucket).tat_q8[index]) }
    }

    #[inline(always)]
    fn proven_until(&self, bucket: *mut Bucket) -> *mut u64 {
        // SAFETY: as in `bucket_word`.
        unsafe { addr_of_mut!((*bucket).proven_until_q8) }
    }

    #[inline(always)]
    fn insert(&self, key: &EntryKey, bucket: &Bucket) -> Result<(), InsertError> {
        BUCKETS.insert(key, bucket, BPF_NOEXIST as u64).map_err(insert_error)
    }

    #[inline(always)]
    fn user(&self, index: u32) -> Option<*mut Bucket> {
        USERS.get_ptr_mut(index)
    }

    #[inline(always)]
    fn user_limits(&self, table: u32, index: u32) -> Option<&LimitSet> {
        let words = USER_LIMITS.get_value(table, &index)?;
        // SAFETY: as in `policy`.
        Some(unsafe { &*ptr::from_ref(words).cast::<LimitSet>() })
    }

    #[inline(always)]
    fn lease(&self, place: u32) -> Option<Lease> {
        let lease = LEASES.get_ptr(place)?;
        // SAFETY: array values live as long as the map. Volatile, because user space writes them; what it does when is such that a
        // new field beside an old one is harmless.
        unsafe {
            Some(Lease {
                ceiling: (&raw const (*lease).ceiling).read_volatile(),
                expires_q8: (&raw const (*lease).expires_q8).read_volatile(),
                enough: (&raw const (*lease).enough).read_volatile(),
            })
        }
    }

    #[inline(always)]
    fn lease_used(&self, place: u32) -> Option<*mut u64> {
        // SAFETY: as in `lease`.
        SPENT.get_ptr_mut(place).map(|spent| unsafe { addr_of_mut!((*spent).used) })
    }

    #[inline(always)]
    fn lease_unmet(&self, place: u32) -> Option<*mut u64> {
        // SAFETY: as in `lease`.
        SPENT.get_ptr_mut(place).map(|spent| unsafe { addr_of_mut!((*spent).unmet) })
    }

    #[inline(always)]
    fn window(&self, key: &EntryKey) -> Option<*mut WindowState> {
        WINDOWS.get_ptr_mut(key)
    }

    #[inline(always)]
    fn insert_window(&self, key: &EntryKey) -> Result<(), InsertError> {
        let Some(fresh) = FRESH_WINDOW.get(0) else { return Err(InsertError::Full) };
        WINDOWS.insert(key, fresh, BPF_NOEXIST as u64).map_err(insert_error)
    }

    #[inline(always)]
    fn kept_window(&self, key: &EntryKey) -> Option<*mut WindowState> {
        KEPT_WINDOWS.get_ptr_mut(key)
    }

    #[inline(always)]
    fn keep_window(&self, key: &EntryKey, state: *mut WindowState) {
        // SAFETY: from a lookup in this run. The kernel copies it from where it lies; a CPU that charges it meanwhile is not undone, and what
        // it charges may be missing in the copy.
        let state: &WindowState = unsafe { &*state };
        let kept = KEPT_WINDOWS.insert(key, state, BPF_NOEXIST as u64);
        if kept.is_ok() || kept == Err(-EEXIST) {
            // Another CPU may have removed the window first.
            let _gone = WINDOWS.remove(key);
        }
    }

    #[inline(always)]
    fn user_window(&self, index: u32) -> Option<*mut WindowState> {
        USER_WINDOWS.get_ptr_mut(index)
    }

    #[inline(always)]
    fn window_word(&self, state: *mut WindowState, slot: usize) -> *mut u64 {
        // SAFETY: the mask keeps the slot inside. As in `bucket_word` for how long the memory is the source's.
        unsafe { addr_of_mut!((*state).words[slot & (SUB_WINDOWS - 1)]) }
    }

    #[inline(always)]
    fn budget(&self, budget: CpuBudget) -> Option<*mut u64> {
        ALLOWANCES.get_ptr_mut(budget as u32)
    }

    #[inline(always)]
    fn tracked_until(&self, cell: u32) -> u64 {
        // SAFETY: array values live as long as the map. Volatile, because other CPUs write it.
        MARKS.get_ptr(cell).map_or(0, |mark| prefilter::marked_until_q8(unsafe { mark.read_volatile() }))
    }

    #[inline(always)]
    fn track_until(&self, cell: u32, until_q8: u64) {
        if let Some(mark) = MARKS.get_ptr_mut(cell) {
            // SAFETY: as in `tracked_until`.
            unsafe { mark.write_volatile(prefilter::mark(until_q8)) };
        }
        // The bit is set even if it is set already: another CPU may be about to clear it.
        set_bit(cell, TRACKED_BIT);
    }

    #[inline(always)]
    fn cell_bits(&self, cell: u32) -> u64 {
        let (word, below) = globals::cell_bits(cell);
        self.load(word) >> below & (TRACKED_BIT | REMEMBERED_BIT)
    }

    #[inline(always)]
    fn no_longer_tracked(&self, cell: u32, now_q8: u64) {
        clear_bit(cell, TRACKED_BIT);
        // Another CPU may have marked the cell since its mark was read.
        if prefilter::is_tracked(self.tracked_until(cell), now_q8) {
            set_bit(cell, TRACKED_BIT);
        }
    }

    #[inline(always)]
    fn something_remembered(&self, cell: u32) {
        set_bit(cell, REMEMBERED_BIT);
    }

    #[inline(always)]
    fn nothing_remembered(&self, cell: u32) {
        clear_bit(cell, REMEMBERED_BIT);
    }

    #[inline(always)]
    fn proven_mark(&self, cell: u32) -> u8 {
        // SAFETY: as in `tracked_until`.
        proven(cell).map_or(u8::MAX, |mark| unsafe { mark.read_volatile() })
    }

    #[inline(always)]
    fn mark_proven(&self, cell: u32, now_q8: u64) {
        if let Some(mark) = proven(cell) {
            // SAFETY: as in `tracked_until`.
            unsafe { mark.write_volatile(fair::proven_mark(now_q8)) };
        }
    }

    #[inline(always)]
    fn cell(&self, index: u32) -> Option<*mut Cell> {
        CELLS.get_ptr_mut(index)
    }

    #[inline(always)]
    fn cell_tat(&self, cell: *mut Cell) -> *mut u64 {
        // SAFETY: array values live as long as the map.
        unsafe { addr_of_mut!((*cell).tat_q8) }
    }

    #[inline(always)]
    fn negative_entry(&self, place: u32) -> Option<*mut u64> {
        Some(globals::negative_entry(place))
    }

    #[inline(always)]
    fn prefix_level_cell(&self, index: u32) -> Option<*mut PrefixLevelCell> {
        RUNGS.get_ptr_mut(index)
    }

    #[inline(always)]
    fn prefix_level_tat(&self, cell: *mut PrefixLevelCell) -> *mut u64 {
        // SAFETY: array values live as long as the map.
        unsafe { addr_of_mut!((*cell).tat_q8) }
    }

    #[inline(always)]
    fn prefix_level_tracked_until(&self, cell: *mut PrefixLevelCell) -> *mut u64 {
        // SAFETY: as in `prefix_level_tat`.
        unsafe { addr_of_mut!((*cell).tracked_until_q8) }
    }

    #[inline(always)]
    fn prefix_level_negative_entry(&self, cell: *mut PrefixLevelCell) -> *mut u64 {
        // SAFETY: as in `prefix_level_tat`.
        unsafe { addr_of_mut!((*cell).negative_entry) }
    }

    #[inline(always)]
    fn prefix_level_squeezed(&self, cell: *mut PrefixLevelCell) -> *mut u64 {
        // SAFETY: as in `prefix_level_tat`.
        unsafe { addr_of_mut!((*cell).squeezed) }
    }

    #[inline(always)]
    fn prefix(&self, key: &PrefixKey) -> Option<*mut u64> {
        PREFIXES.get_ptr_mut(key)
    }

    #[inline(always)]
    fn insert_prefix(&self, key: &PrefixKey, tat_q8: u64) -> Result<(), InsertError> {
        PREFIXES.insert(key, tat_q8, BPF_NOEXIST as u64).map_err(insert_error)
    }

    #[inline(always)]
    fn fair_share(&self, cell: u32) -> Option<*mut u64> {
        FAIR.get_ptr_mut(cell)
    }

    #[inline(always)]
    fn asked(&self, cell: u32) -> Option<*mut u64> {
        ASKED.get_ptr_mut(cell)
    }

    #[inline(always)]
    fn challenged(&self, cell: u32) -> Option<*mut u64> {
        CHALLENGED.get_ptr_mut(cell)
    }

    #[inline(always)]
    fn clients(&self, set: u32) -> Option<*mut [u64; WAYS]> {
        CLIENTS.get_ptr_mut(set)
    }

    #[inline(always)]
    fn client(&self, set: *mut [u64; WAYS], way: usize) -> *mut u64 {
        // SAFETY: array values live as long as the map; the mask keeps the way inside, for the verifier too.
        unsafe { addr_of_mut!((*set)[masked::<{ WAYS - 1 }>(way)]) }
    }

    #[inline(always)]
    fn claimed(&self, set: u32) -> Option<*mut [u64; WAYS]> {
        CLAIMED.get_ptr_mut(set)
    }

    #[inline(always)]
    fn client_filter(&self, index: u32) -> Option<*mut u64> {
        Some(globals::client_filter(index))
    }

    #[inline(always)]
    fn wanted_until(&self, service: u32) -> Option<*mut u64> {
        // SAFETY: array values live as long as the map.
        TOTALS.get_ptr_mut(service).map(|state| unsafe { addr_of_mut!((*state).wanted_until_q8) })
    }

    #[inline(always)]
    fn reserve(&self, service: u32, index: usize) -> Option<*mut u64> {
        // SAFETY: array values live as long as the map; `index` is below MAX_TOTALS.
        TOTALS.get_ptr_mut(service).map(|state| unsafe { addr_of_mut!((*state).reserve_tat_q8[index]) })
    }

    #[inline(always)]
    fn total(&self, service: u32, index: usize) -> Option<*mut u64> {
        // SAFETY: array values live as long as the map; `index` is below MAX_TOTALS.
        TOTALS.get_ptr_mut(service).map(|state| unsafe { addr_of_mut!((*state).tat_q8[index]) })
    }

    #[inline(always)]
    fn share(&self, service: u32) -> Option<*mut Share> {
        SHARES.get_ptr_mut(service)
    }

    #[inline(always)]
    fn share_pool(&self, share: *mut Share, place: usize) -> *mut u64 {
        // SAFETY: the slot belongs to this CPU; `place` is below SHARE_WORDS.
        unsafe { addr_of_mut!((*share).pool_q8[place]) }
    }

    #[inline(always)]
    fn share_refused_until(&self, share: *mut Share, place: usize) -> *mut u64 {
        // SAFETY: as in `share_pool`.
        unsafe { addr_of_mut!((*share).refused_until_q8[place]) }
    }

    #[inline(always)]
    fn link(&self, interface: u32) -> Option<*mut u64> {
        LINKS.get_ptr_mut(interface)
    }

    #[inline(always)]
    fn link_cell(&self, index: u32) -> Option<(*mut u64, *mut u64)> {
        // SAFETY: array values live as long as the map.
        LINK_CELLS
            .get_ptr_mut(index)
            .map(|cell| unsafe { (addr_of_mut!((*cell).owner), addr_of_mut!((*cell).tat_q8)) })
    }

    #[inline(always)]
    fn syn_meter(&self, service: u32) -> Option<*mut u64> {
        // SAFETY: array values live as long as the map.
        SYNS.get_ptr_mut(service).map(|state| unsafe { addr_of_mut!((*state).tat_q8) })
    }

    #[inline(always)]
    fn cookies_until(&self, service: u32) -> Option<*mut u64> {
        // SAFETY: as in `syn_meter`.
        SYNS.get_ptr_mut(service).map(|state| unsafe { addr_of_mut!((*state).cookies_until_q8) })
    }

    #[inline(always)]
    fn load(&self, word: *mut u64) -> u64 {
        // SAFETY: words come from the methods above. Volatile, because other CPUs write them.
        unsafe { word.read_volatile() }
    }

    #[inline(always)]
    fn store(&self, word: *mut u64, new: u64) {
        // SAFETY: as in `load`; aligned, so other CPUs see the old value or the new one.
        unsafe { word.write_volatile(new) };
    }

    #[inline(always)]
    fn add(&self, word: *mut u64, amount: u64) {
        // SAFETY: as in `load` and `compare_exchange`.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, amount) };
    }

    #[inline(always)]
    fn compare_exchange(&self, word: *mut u64, seen: u64, new: u64) -> bool {
        // SAFETY: as in `load`. The intrinsic is what AtomicU64 would compile to: this target does not declare it,
        // although the instruction set (v3) has it.
        unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, seen, new).1
        }
    }

    #[inline(always)]
    fn quiet_until(&self, slot: u32) -> Option<*mut u64> {
        QUIET.get_ptr_mut(slot)
    }

    #[inline(always)]
    fn tell(&self, event: DropEvent) -> bool {
        match DROPS.reserve_untyped::<DropEvent>(0) {
            Some(mut record) => {
                record.write(event);
                // The daemon is not woken: that would take an interrupt, and the daemon reads often enough.
                record.submit(BPF_RB_NO_WAKEUP as u64);
                if let Some(cpu) = self.cpu() {
                    // SAFETY: the value belongs to this CPU, and a program is not preempted by another one on it.
                    unsafe { (*cpu).reported = globals::sampling_epoch() as u64 };
                }
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn note(&self, event: Event) {
        if let Some(count) = EVENTS.get_ptr_mut(event as u32) {
            // SAFETY: as in `count`.
            unsafe { *count += 1 };
        }
    }

    #[inline(always)]
    fn count(&self, slot: u32, len: u64) {
        // The counter is stored rather than returned: the verifier would otherwise keep all paths apart on which a frame can end.
        if let Some(cpu) = self.cpu() {
            // SAFETY: the value belongs to this CPU, and a program is not preempted by another one on it.
            unsafe { (*cpu).slot = slot as u64 };
        }
        if let Some(counter) = COUNTERS.get_ptr_mut(slot) {
            // SAFETY: the slot belongs to this CPU, and a program is not preempted by another one on it.
            unsafe {
                (*counter).packets += 1;
                (*counter).bytes += len;
            }
        }
    }
}
