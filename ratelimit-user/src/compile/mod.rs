//! From what the operator wants to what the maps must hold. Pure: no kernel, no clock, no files.

mod desired;
pub mod lists;
mod prefix;

pub use desired::desired;
