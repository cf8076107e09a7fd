//! Limits that hold across hosts: the store that hosts share, and how it is reached.

pub mod address;
pub mod redis;
