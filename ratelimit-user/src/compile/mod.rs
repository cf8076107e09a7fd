//! From what the operator wants to what the maps must hold. Pure: no kernel, no clock, no files.

mod aggregation;
mod debts;
mod desired;
mod destination;
mod facts;
mod link;
pub mod lists;
mod places;
mod set;
mod succession;
mod total;
pub mod window;

#[cfg(test)]
mod tests;

pub use desired::{Before, Desired, Names, desired};
pub use destination::Destination;
pub use facts::HostFacts;
pub use places::Places;
pub use set::places_of as places;
pub use total::of as totals_at;
