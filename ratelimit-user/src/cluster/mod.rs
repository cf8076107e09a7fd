//! Limits that hold on all hosts together.
//!
//! ```text
//! counters -> demand -> store -> leases -> map operations
//! ```
//! [`holding`] is the host's end of one conversation, and pure; the store's end is the script of [`crate::store::record`]. What is said is in
//! [`crate::store::lease_batch`].
//!
//! Blocks that hold on all hosts, and who the hosts are, go another way: [`gossip`].

pub mod blocks;
pub mod gossip;
pub mod holding;
pub mod leases;
pub mod members;
