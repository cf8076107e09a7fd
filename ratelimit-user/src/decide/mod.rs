//! May this user call this API now? The engine that answers, without any protocol.
//!
//! ```text
//! request -> claims (which keys, which limits) -> judge (look at all, charge all or none) -> decision
//! ```
//! Pure but for the table of keys, which [`table`] and [`cells`] keep within its bounds; time is an argument. [`meter`] has the algorithms.

pub mod allowance;
pub mod calendar;
pub mod cells;
pub mod claims;
pub mod clock;
pub mod decision;
mod engine;
mod fleet;
mod judge;
pub mod key;
pub mod lease;
pub mod leases;
pub mod meter;
pub mod renewal;
pub mod request;
pub mod rules;
pub mod shared;
pub mod striped;
mod table;
pub mod tally;
pub mod throttle;

pub use decision::{Decision, Nearest, Outcome, Violated, seconds};
pub use engine::{Engine, Handle};
pub use judge::Mode;
pub use request::{BadRequest, Priority, Request};
pub use rules::Rules;
pub use table::Usage;

#[cfg(test)]
mod tests;
