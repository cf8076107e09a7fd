//! Every map of the kernel program, every unsafe access to one, and the licence section beside them.
#![expect(unsafe_code, reason = "map values are shared memory, reached through pointers from helpers")]

use core::{
    intrinsics::{AtomicOrdering, atomic_cxchg},
    ptr::addr_of_mut,
};

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{Array, ArrayOfMaps, LpmTrie, LruHashMap, PerCpuArray, lpm_trie::Key},
    helpers::bpf_ktime_get_ns,
    macros::btf_map,
};
use ratelimit_common::abi::{
    Bucket, Counter, ListEntry, Policy, Reason, SourceKey,
    list::{ListAddrV4, ListAddrV6, MAX_LISTED},
    reason::REASON_COUNT,
};
use ratelimit_ebpf::{
    packet::Address,
    tables::{InsertError, Tables},
};

/// Sources when the loader does not say otherwise; it always does.
const DEFAULT_SOURCES: usize = 262_144;
const EEXIST: i32 = 17;

/// Per-source state. The kernel evicts the least recently used source when it is full.
#[btf_map]
static BUCKETS: LruHashMap<SourceKey, Bucket, DEFAULT_SOURCES> = LruHashMap::new();

/// Frames and bytes by reason.
#[btf_map]
static COUNTERS: PerCpuArray<Counter, REASON_COUNT> = PerCpuArray::new();

/// IPv4 block and allow list.
#[btf_map]
static LISTS_V4: LpmTrie<ListAddrV4, ListEntry, { MAX_LISTED as usize }> = LpmTrie::new();

/// IPv6 block and allow list.
#[btf_map]
static LISTS_V6: LpmTrie<ListAddrV6, ListEntry, { MAX_LISTED as usize }> = LpmTrie::new();

/// The policy in force. Replacing the inner map is one pointer store, and the kernel waits for running programs
/// before it lets go of the old one: no packet sees half of each.
///
/// Declared as words, not as a struct: kernels before 6.2 accept an inner map only if it has the same "offset of a
/// timer" as the declared one, and that is -ENOENT for a struct with type information and -EINVAL for anything else,
/// maps that the daemon makes without type information included.
#[btf_map]
static POLICY: ArrayOfMaps<Array<PolicyWords, 1>, 1> = ArrayOfMaps::new();

type PolicyWords = [u64; size_of::<Policy>() / 8];
const _: () = assert!(size_of::<Policy>() == size_of::<PolicyWords>() && align_of::<Policy>() <= 8);

/// What the kernel is told: `bpf_xdp_get_buff_len` and others are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// The maps above.
#[derive(Clone, Copy)]
pub(crate) struct Maps;

impl Tables for Maps {
    type Bucket = *mut Bucket;

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        // SAFETY: takes nothing, returns a number.
        unsafe { bpf_ktime_get_ns() }
    }

    #[inline(always)]
    fn policy(&self) -> Option<&Policy> {
        let words = POLICY.get_value(0, &0)?;
        // SAFETY: same size and alignment by the assertion at the map, and every bit pattern is a policy: it has
        // integers only. User space writes an inner map before it puts it here and never again.
        Some(unsafe { &*core::ptr::from_ref(words).cast::<Policy>() })
    }

    #[inline(always)]
    fn listed(&self, address: Address) -> Option<&ListEntry> {
        match address {
            Address::V4(addr) => {
                let a = addr.to_ne_bytes();
                LISTS_V4.get(&Key::new(32, [a[0], a[1], a[2], a[3], 0, 0, 0, 0]))
            }
            Address::V6(hi, lo) => LISTS_V6.get(&Key::new(128, SourceKey { hi, lo }.octets())),
        }
    }

    #[inline(always)]
    fn bucket(&self, key: &SourceKey) -> Option<*mut Bucket> {
        BUCKETS.get_ptr_mut(key)
    }

    #[inline(always)]
    fn insert(&self, key: &SourceKey, bucket: &Bucket) -> Result<(), InsertError> {
        BUCKETS.insert(key, bucket, BPF_NOEXIST as u64).map_err(|errno| match errno {
            e if e == -EEXIST => InsertError::Exists,
            _ => InsertError::Full,
        })
    }

    #[inline(always)]
    fn load(&self, bucket: *mut Bucket, index: usize) -> u64 {
        // SAFETY: the pointer comes from a lookup in this run, so RCU keeps the memory; an evicted bucket may by now
        // belong to another source, which then pays one packet for it. `index` is below MAX_LIMITS. Volatile, because
        // other CPUs write the word.
        unsafe { addr_of_mut!((*bucket).tat_q8[index]).read_volatile() }
    }

    #[inline(always)]
    fn compare_exchange(&self, bucket: *mut Bucket, index: usize, seen: u64, new: u64) -> bool {
        // SAFETY: as in `load`; the word is aligned to eight because the value is. The intrinsic is what AtomicU64
        // would compile to: this target does not declare it, although the instruction set (v3) has it.
        unsafe {
            let word = addr_of_mut!((*bucket).tat_q8[index]);
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, seen, new).1
        }
    }

    #[inline(always)]
    fn count(&self, reason: Reason, len: u64) {
        if let Some(counter) = COUNTERS.get_ptr_mut(reason as u32) {
            // SAFETY: the slot belongs to this CPU, and a program is not preempted by another one on it.
            unsafe {
                (*counter).packets += 1;
                (*counter).bytes += len;
            }
        }
    }
}
