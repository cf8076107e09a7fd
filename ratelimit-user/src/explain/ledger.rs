//! The seam to what is remembered: the kernel's maps, or plain memory in tests.

use std::net::IpAddr;

use ratelimit_common::abi::{
    Bucket, Cell, EntryKey, FairCell, Lease, LimitSet, ListEntry, PrefixKey, PrefixLevelCell, Share, Spent,
    SynState, TotalState, WindowState,
};

/// What can be read of the state of sources, users, prefixes and services. Nothing is ever written.
pub trait Ledger {
    /// Why something could not be read.
    type Error;

    /// The longest listed prefix around an address.
    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Self::Error>;
    /// The buckets of a source, if it has an entry.
    fn entry(&self, key: &EntryKey) -> Result<Option<Bucket>, Self::Error>;
    /// Until when a cell of the prefilter is tracked, as a time word.
    fn tracked_until_q8(&self, cell: u32) -> Result<u64, Self::Error>;
    /// A cell of the prefilter.
    fn cell(&self, index: u32) -> Result<Cell, Self::Error>;
    /// The bucket of a prefix, if it has an entry.
    fn prefix(&self, key: &PrefixKey) -> Result<Option<u64>, Self::Error>;
    /// A cell of prefix aggregation.
    fn prefix_level_cell(&self, index: u32) -> Result<PrefixLevelCell, Self::Error>;
    /// The fair shares of the sources of a cell of the prefilter.
    fn fair(&self, cell: u32) -> Result<FairCell, Self::Error>;
    /// The limits of a user, in one of the tables.
    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Self::Error>;
    /// What a source has used of a window, if anything.
    fn window(&self, key: &EntryKey) -> Result<Option<WindowState>, Self::Error>;
    /// What may be spent of the limit whose lease is at a place, and what has been.
    fn lease(&self, place: u32) -> Result<(Lease, Spent), Self::Error>;
    /// What a user has used of a window.
    fn user_window(&self, index: u32) -> Result<WindowState, Self::Error>;
    /// The buckets of a user.
    fn user(&self, index: u32) -> Result<Bucket, Self::Error>;
    /// The shared buckets of a service.
    fn total(&self, service: u32) -> Result<TotalState, Self::Error>;
    /// What each CPU has taken from them.
    fn shares(&self, service: u32) -> Result<Vec<Share>, Self::Error>;
    /// The SYNs of a service.
    fn syns(&self, service: u32) -> Result<SynState, Self::Error>;
    /// Each CPU's bucket of sources that it may enter into the table.
    fn newcomers(&self) -> Result<Vec<u64>, Self::Error>;
}
