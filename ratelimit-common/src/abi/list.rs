//! The block and allow lists: one longest-prefix-match trie per address family.
//!
//! Both lists share a trie, so a packet costs one lookup. A longest match only sees one entry, and that
//! one must answer for every shorter prefix around it: a /32 whose block has run out must not hide the
//! /8 that is blocked for good. So each entry carries two answers, its own (what the operator typed) and
//! the effective one (the union of its own and every prefix that covers it). User space computes the
//! effective half whenever a list changes; the kernel reads nothing else.

use crate::abi_struct;

/// `blocked_until_ns` of a block without a lifetime.
pub const FOREVER_NS: u64 = u64::MAX;
/// `allowed` of an entry on the allow list.
pub const ALLOWED: u32 = 1;
/// Prefixes that each family's trie can hold. A trie allocates per entry, so a high ceiling costs nothing.
pub const MAX_LISTED: u32 = 1 << 20;
/// The bit of `reason_len` that marks a block of the whole cluster. It is in the entry itself, so that the block and its mark are written in one
/// step.
pub const OF_CLUSTER: u32 = 1 << 31;
/// Longest reason that a block can carry, in bytes.
pub const REASON_LEN: usize = 64;

/// Data part of a v4 trie key: four address bytes and four zero bytes.
///
/// The kernel stores the value right behind the key's data, so eight bytes keep the value's words aligned.
pub type ListAddrV4 = [u8; 8];
/// Data part of a v6 trie key.
pub type ListAddrV6 = [u8; 16];

abi_struct! {
    /// One listed prefix.
    pub struct ListEntry: 96 {
        /// Effective: drop until this monotonic time; 0 when no block covers the prefix.
        pub blocked_until_ns: u64,
        /// Effective: [`ALLOWED`] when the prefix or one around it is on the allow list.
        pub allowed: u32,
        /// The prefix's own place on the allow list.
        pub own_allowed: u32,
        /// The prefix's own block; 0 when it has none.
        pub own_blocked_until_ns: u64,
        /// Bytes used of `reason`, and [`OF_CLUSTER`].
        pub reason_len: u32,
        /// Effective: one more than the index of the user that has the prefix; `NO_USER` if none has it.
        pub user: u16,
        /// One more than the index of the user that the policy gives this very prefix to; `NO_USER` if there is none.
        pub own_user: u16,
        /// The reason that the operator gave for the block, UTF-8. The kernel program never reads it.
        pub reason: [u8; REASON_LEN],
    }
}

impl ListEntry {
    /// An entry without a block, a place on the allow list, or a user.
    pub const EMPTY: Self = Self {
        blocked_until_ns: 0,
        allowed: 0,
        own_allowed: 0,
        own_blocked_until_ns: 0,
        reason_len: 0,
        user: 0,
        own_user: 0,
        reason: [0; REASON_LEN],
    };
}
