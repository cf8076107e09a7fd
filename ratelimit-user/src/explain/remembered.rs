//! The seam to what is remembered: the kernel's maps, or plain memory in tests.

use std::net::IpAddr;

use ratelimit_common::abi::{Lease, LimitSet, ListEntry, Share};
pub use ratelimit_ebpf::rows::{Row, RowWords, words};

/// What can be read of the state of sources, users, prefixes and services. Nothing is ever written.
pub trait Remembered {
    /// Why something could not be read.
    type Error;

    /// The longest listed prefix around an address.
    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Self::Error>;
    /// A row that all CPUs share; `None` if there is no entry. A window is one row, whichever of the two tables has it.
    fn row(&self, row: Row) -> Result<Option<RowWords>, Self::Error>;
    /// The limits of a user, in one of the tables.
    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Self::Error>;
    /// What may be spent of the limit whose lease is at a place.
    fn lease(&self, place: u32) -> Result<Lease, Self::Error>;
    /// What each CPU has taken from the total of a service or of the host.
    fn shares(&self, total: u32) -> Result<Vec<Share>, Self::Error>;
    /// Each CPU's bucket of entries for new sources.
    fn new_sources(&self) -> Result<Vec<u64>, Self::Error>;
}
