//! Limits that hold on all hosts together.
//!
//! ```text
//! counters -> demand -> store -> leases -> map operations
//! ```
//! [`holding`] and [`ledger`] are the two ends of one conversation, both pure: what a host has, and what the store knows of it. Only
//! [`redis`] reaches anything; what is said there is in [`letter`].
//!
//! Blocks that hold on all hosts, and who the hosts are, go another way: [`gossip`].

pub mod address;
pub mod blocks;
pub mod breaker;
pub mod embedded;
pub mod exchange;
pub mod gossip;
pub mod holding;
pub mod leases;
pub mod ledger;
pub mod letter;
pub mod members;
pub mod redis;
pub mod terms;
