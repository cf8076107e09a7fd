//! Limits and blocks that hold on all hosts together.
//!
//! ```text
//! counters -> demand -> store -> leases -> map operations
//! ```
//! [`holding`] is the host's side of a lease, and pure; the store's side is the script of [`crate::store::record`]. The messages are in
//! [`crate::store::lease_batch`].
//!
//! Blocks for all hosts, and the list of hosts, go another way: [`gossip`].

pub mod blocks;
pub mod gossip;
pub mod holding;
pub mod leases;
pub mod members;
