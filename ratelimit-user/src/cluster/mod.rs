//! Limits that hold on all hosts together.
//!
//! ```text
//! counters -> demand -> store -> leases -> map operations
//! ```
//! [`holding`] and [`ledger`] are the two ends of one conversation, both pure: what a host has, and what the store knows of it. What is said is in
//! [`crate::store::letter`].
//!
//! Blocks that hold on all hosts, and who the hosts are, go another way: [`gossip`].

pub mod blocks;
pub mod embedded;
pub mod gossip;
pub mod holding;
pub mod leases;
pub mod ledger;
pub mod members;
