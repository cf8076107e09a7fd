//! Compiles a policy into the desired state of the kernel maps. Pure: no kernel, no clock, no files.

mod aggregation;
mod assembly;
mod debts;
mod desired;
mod destination;
mod facts;
mod link;
pub mod lists;
mod names;
mod places;
mod service;
mod set;
mod succession;
mod total;
mod user;
pub mod window;

#[cfg(test)]
mod tests;

pub use assembly::desired;
pub use debts::settled_total;
pub use desired::{Before, Desired};
pub use destination::Destination;
pub use facts::HostFacts;
pub use names::Names;
pub use places::Places;
pub use set::places_of as places;
