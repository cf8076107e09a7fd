//! From what the operator wants to what the maps must hold. Pure: no kernel, no clock, no files.

mod desired;
mod facts;
pub mod lists;
mod prefix;

pub use desired::{Desired, desired};
pub use facts::HostFacts;
