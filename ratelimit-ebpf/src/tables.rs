//! The seam between the packet path and its maps: BPF maps in the kernel, hash maps in tests.

use ratelimit_common::abi::{Bucket, ListEntry, Policy, Reason, SourceKey};

use crate::packet::Address;

/// Why a source could not be given a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// Another CPU was first. Its bucket is there to be used.
    Exists,
    /// No room.
    Full,
}

/// What the packet path asks of the world.
pub trait Tables {
    /// A handle to one source's words.
    type Bucket: Copy;

    /// The kernel's monotonic clock. Asked once per packet.
    fn now_ns(&self) -> u64;
    /// The policy in force.
    fn policy(&self) -> Option<&Policy>;
    /// The longest listed prefix around an address.
    fn listed(&self, address: Address) -> Option<&ListEntry>;
    /// The bucket of a source, if it has one.
    fn bucket(&self, key: &SourceKey) -> Option<Self::Bucket>;
    /// Gives a source its first bucket; never overwrites one.
    fn insert(&self, key: &SourceKey, bucket: &Bucket) -> Result<(), InsertError>;
    /// One word of a bucket.
    fn load(&self, bucket: Self::Bucket, index: usize) -> u64;
    /// Stores `new` if the word is still `seen`, and says whether it did.
    fn compare_exchange(&self, bucket: Self::Bucket, index: usize, seen: u64, new: u64) -> bool;
    /// Counts one frame.
    fn count(&self, reason: Reason, len: u64);
}
