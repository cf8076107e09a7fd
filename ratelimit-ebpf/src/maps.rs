//! The maps of the kernel program, except those that belong to one module: `cpu`, `jumps` and `samples` declare their own.

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, LpmTrie, LruHashMap, PerCpuArray, RingBuf},
    macros::btf_map,
};
use ratelimit_common::{
    abi::{
        Bucket, Cell, Counter, EntryKey, Lease, LimitSet, LinkCell, ListEntry, PrefixKey, PrefixLevelCell,
        Share, Spent, SynState, TotalState, WindowState,
        counter::COUNTER_SLOTS,
        destination::{DestinationKey, MAX_DESTINATIONS},
        drop_event::RING_BYTES,
        event::EVENT_COUNT,
        lease::MAX_LEASES,
        link::{LINK_CELLS as LINK_PLACES, LINK_INTERFACES},
        list::{ListAddrV4, ListAddrV6, MAX_LISTED},
        prefix::{AGGREGATION_CELLS, MAX_PREFIXES},
        service::{MAX_SERVICES, TOTAL_SLOTS},
        user::MAX_USERS,
        window::SET_WINDOWS,
    },
    limit::{
        clients::{SETS, WAYS},
        prefilter,
    },
};
use ratelimit_ebpf::report::QUIET_SLOTS;

use crate::globals::PolicyWords;

/// Room for sources if the loader sets no other number, which it always does.
const DEFAULT_SOURCES: usize = 262_144;

/// Buckets of sources. The kernel evicts the least recently used source when the table is full.
#[btf_map]
pub(crate) static BUCKETS: LruHashMap<EntryKey, Bucket, DEFAULT_SOURCES> = LruHashMap::new();

/// The prefilter's cells: most packets end at one and never touch the table of sources.
#[btf_map]
pub(crate) static CELLS: Array<Cell, { prefilter::CELLS as usize }> = Array::new();

/// Debts of the sources of each cell beyond their fair shares, in crowded prefixes: see [`fair`].
#[btf_map]
pub(crate) static FAIR: Array<u64, { prefilter::CELLS as usize }> = Array::new();

/// Marks of the source of each cell that was last asked for a connection, and until when it counts as asked: a moment, so each program has its own.
#[btf_map]
pub(crate) static ASKED: Array<u64, { prefilter::CELLS as usize }> = Array::new();

/// Buckets of challenges to the networks of each cell: a moment, so each program has its own.
#[btf_map]
pub(crate) static CHALLENGED: Array<u64, { prefilter::CELLS as usize }> = Array::new();

/// Until when each cell is tracked. Marks are kept apart from the cells, so that they are small: see [`prefilter::mark`].
#[btf_map]
pub(crate) static MARKS: Array<u32, { prefilter::CELLS as usize }> = Array::new();

/// Marks of cells with a proven source, see [`fair::proven_mark`]. One value for all, because an array element takes eight bytes and a mark is one byte.
#[btf_map]
pub(crate) static PROVEN: Array<[u8; prefilter::CELLS as usize], 1> = Array::new();

/// Known clients: see `limit::clients` in the common crate.
#[btf_map]
pub(crate) static CLIENTS: Array<[u64; WAYS], { SETS as usize }> = Array::new();

/// What known clients have claimed of spent totals, at the same places.
#[btf_map]
pub(crate) static CLAIMED: Array<[u64; WAYS], { SETS as usize }> = Array::new();

/// Counters of frames and bytes, by service, fate and reason.
#[btf_map]
pub(crate) static COUNTERS: PerCpuArray<Counter, { COUNTER_SLOTS as usize }> = PerCpuArray::new();

/// The services of destinations at ports that several services share. The policy names the one of the two tables that is in force.
#[btf_map]
pub(crate) static DESTINATIONS: ArrayOfMaps<LpmTrie<DestinationKey, u32, { MAX_DESTINATIONS as usize }>, 2> =
    ArrayOfMaps::new();

/// Counters of events.
#[btf_map]
pub(crate) static EVENTS: PerCpuArray<u64, EVENT_COUNT> = PerCpuArray::new();

/// Drop events for the daemon. Declared without a type, because a ring buffer must not have a value size.
///
/// # Minimum kernel version
/// 5.8
#[btf_map]
pub(crate) static DROPS: RingBuf<(), RING_BYTES> = RingBuf::new();

/// Until when each CPU sends no more drop events about the sources of a slot.
#[btf_map]
pub(crate) static QUIET: PerCpuArray<u64, { QUIET_SLOTS as usize }> = PerCpuArray::new();

/// IPv4 block and allow list.
#[btf_map]
pub(crate) static LISTS_V4: LpmTrie<ListAddrV4, ListEntry, { MAX_LISTED as usize }> = LpmTrie::new();

/// IPv6 block and allow list.
#[btf_map]
pub(crate) static LISTS_V6: LpmTrie<ListAddrV6, ListEntry, { MAX_LISTED as usize }> = LpmTrie::new();

/// The buckets of per-CPU budgets, by [`CpuBudget`].
#[btf_map]
pub(crate) static ALLOWANCES: PerCpuArray<u64, 6> = PerCpuArray::new();

/// Buckets of tracked prefixes.
#[btf_map]
pub(crate) static PREFIXES: LruHashMap<PrefixKey, u64, MAX_PREFIXES> = LruHashMap::new();

/// The cells of prefix aggregation.
#[btf_map]
pub(crate) static RUNGS: Array<PrefixLevelCell, AGGREGATION_CELLS> = Array::new();

/// The policy in force. Replacing the inner map is one pointer store, and the kernel waits for running programs
/// before it frees the old one: no packet sees half of each.
///
/// Declared as words, not as a struct: kernels before 6.2 accept an inner map only if its "offset of a
/// timer" equals the declared one, and that is -ENOENT for a struct with type information and -EINVAL for anything else,
/// including maps that the daemon makes without type information.
#[btf_map]
pub(crate) static POLICY: ArrayOfMaps<Array<PolicyWords, 1>, 1> = ArrayOfMaps::new();

/// The SYN bucket of each service, and until when its SYNs are answered with cookies.
#[btf_map]
pub(crate) static SYNS: Array<SynState, MAX_SERVICES> = Array::new();

/// What each CPU holds of the totals of each service, and after those of the host's.
#[btf_map]
pub(crate) static SHARES: PerCpuArray<Share, TOTAL_SLOTS> = PerCpuArray::new();

/// The shared buckets of each service's totals, and after those of the host's.
#[btf_map]
pub(crate) static TOTALS: Array<TotalState, TOTAL_SLOTS> = Array::new();

/// The shared bucket of each interface's cap on frames without a source.
#[btf_map]
pub(crate) static LINKS: Array<u64, { LINK_INTERFACES as usize }> = Array::new();

/// Cells of neighbours, each with a bucket for its part of the interface's cap.
#[btf_map]
pub(crate) static LINK_CELLS: Array<LinkCell, { LINK_PLACES as usize }> = Array::new();

/// The buckets of users.
#[btf_map]
pub(crate) static USERS: Array<Bucket, MAX_USERS> = Array::new();

/// The limits of users, as words for the reason given at `POLICY`. The policy names the one of the two tables that is in force.
#[btf_map]
pub(crate) static USER_LIMITS: ArrayOfMaps<Array<SetWords, MAX_USERS>, 2> = ArrayOfMaps::new();

/// Leases: what this host may spend of users' limits that hold on all hosts together. The daemon writes them.
#[btf_map]
pub(crate) static LEASES: Array<Lease, MAX_LEASES> = Array::new();

/// What this host has spent of the leases in `LEASES`. The packet path writes it.
#[btf_map]
pub(crate) static SPENT: Array<Spent, MAX_LEASES> = Array::new();

/// The state of windows of sources. The kernel evicts the least recently used one.
#[btf_map]
pub(crate) static WINDOWS: LruHashMap<EntryKey, WindowState, DEFAULT_SOURCES> = LruHashMap::new();

/// The state of windows that have refused their source. A map of its own, so that new sources cannot evict it.
#[btf_map]
pub(crate) static KEPT_WINDOWS: LruHashMap<EntryKey, WindowState, DEFAULT_SOURCES> = LruHashMap::new();

/// An unused window, to be copied: on the stack it would take a large part of the room.
#[btf_map]
pub(crate) static FRESH_WINDOW: Array<WindowState, 1> = Array::new();

/// The state of windows of users, by user and place.
#[btf_map]
pub(crate) static USER_WINDOWS: Array<WindowState, { MAX_USERS * SET_WINDOWS }> = Array::new();

/// The limits of a user as words.
pub(crate) type SetWords = [u64; size_of::<LimitSet>() / 8];
const _: () = assert!(size_of::<LimitSet>() == size_of::<SetWords>() && align_of::<LimitSet>() <= 8);
