//! The seam to what is remembered: the kernel's maps, or plain memory in tests.

use std::net::IpAddr;

use ratelimit_common::abi::{Lease, LimitSet, ListEntry, Share};

/// One value of one of the packet path's tables, as the words that it consists of.
pub type Words = [u64; 8];

/// Which value. A key of three words is an [`EntryKey`](ratelimit_common::abi::EntryKey) or
/// [`PrefixKey`](ratelimit_common::abi::PrefixKey), a number the place in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// A source's buckets, then until when it is proven.
    Source([u64; 3]),
    /// What a source has used of a window.
    Window([u64; 3]),
    /// The bucket of a prefix.
    Prefix([u64; 3]),
    /// Until when a cell of the prefilter is hot, as a time word.
    Hot(u32),
    /// A cell of the prefilter: its bucket, then its negative cache.
    Cell(u32),
    /// A cell of prefix aggregation: its bucket, then until when it is hot.
    PrefixCell(u32),
    /// The fair shares of the sources of a cell of the prefilter: what they had, then which was asked for a connection.
    Fair(u32),
    /// A user's buckets.
    User(u32),
    /// What a user has used of a window.
    UserWindow(u32),
    /// What was spent of a user's lease, and what was asked for beyond the lease.
    Spent(u32),
    /// The buckets of the total of a service or of the host.
    Total(u32),
    /// What one CPU has taken from a total, then until when there is no more.
    Share(u32),
    /// A service's bucket of SYNs, then until when SYNs are answered with cookies.
    Syns(u32),
    /// One CPU's bucket of entries for new sources.
    NewSources,
}

/// What can be read of the state of sources, users, prefixes and services. Nothing is ever written.
pub trait Remembered {
    /// Why something could not be read.
    type Error;

    /// The longest listed prefix around an address.
    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Self::Error>;
    /// A value that all CPUs share; `None` if there is no entry.
    fn row(&self, row: Row) -> Result<Option<Words>, Self::Error>;
    /// The limits of a user, in one of the tables.
    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Self::Error>;
    /// What may be spent of the limit whose lease is at a place.
    fn lease(&self, place: u32) -> Result<Lease, Self::Error>;
    /// What each CPU has taken from the total of a service or of the host.
    fn shares(&self, total: u32) -> Result<Vec<Share>, Self::Error>;
    /// Each CPU's bucket of entries for new sources.
    fn new_sources(&self) -> Result<Vec<u64>, Self::Error>;
}

/// Parts of a value, one behind the other.
pub fn words(parts: &[&[u64]]) -> Words {
    let mut words = Words::default();
    for (word, part) in words.iter_mut().zip(parts.iter().copied().flatten()) {
        *word = *part;
    }
    words
}
