//! The seam to the state of sources: the kernel's maps, or plain memory in tests.

use std::net::IpAddr;

use ratelimit_common::abi::{Lease, LimitSet, ListEntry, Share};
pub use ratelimit_ebpf::rows::{Row, RowWords, words};

/// Read access to the state of sources, users, prefixes and services.
pub trait Remembered {
    /// The error of a read.
    type Error;

    /// The longest listed prefix around an address.
    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Self::Error>;
    /// A row that all CPUs share; `None` if it does not exist. A window is one row, in whichever of the two tables it is.
    fn row(&self, row: Row) -> Result<Option<RowWords>, Self::Error>;
    /// The limits of a user in one of the two tables.
    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Self::Error>;
    /// The lease at a place.
    fn lease(&self, place: u32) -> Result<Lease, Self::Error>;
    /// What each CPU holds of the total of a service or of the host.
    fn shares(&self, total: u32) -> Result<Vec<Share>, Self::Error>;
    /// Each CPU's bucket of its budget for entries of new sources.
    fn new_sources(&self) -> Result<Vec<u64>, Self::Error>;
}
