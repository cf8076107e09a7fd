//! Limits that hold on all hosts together.
//!
//! ```text
//! counters -> demand -> store -> leases -> map operations
//! ```
//! [`holding`] and [`ledger`] are the two ends of one conversation, both pure: what a host has, and what the store knows of it. Only
//! [`redis`] reaches anything; what is said there is in [`letter`].
//!
//! Requests are counted by key, with any algorithm and any number of limits: [`account`] is the store's end of that, and [`inquiry`] what is said.
//!
//! Blocks that hold on all hosts, and who the hosts are, go another way: [`gossip`].

pub mod account;
pub mod address;
pub mod blocks;
pub mod breaker;
pub mod embedded;
pub mod exchange;
pub mod gossip;
pub mod holding;
pub mod inquiry;
pub mod leases;
pub mod ledger;
pub mod letter;
pub mod members;
pub mod redis;
pub mod round_trip;
pub mod terms;
