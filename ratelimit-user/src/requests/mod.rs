//! May this user call this API now? The engine that answers, without any protocol.
//!
//! ```text
//! request -> counter keys (which keys, which limits) -> judge (look at all, charge all or none) -> decision
//! ```
//! Pure but for the table of keys, which `table` and [`cells`] keep within its bounds; time is an argument. [`crate::meter`] has the algorithms.
//!
//! [`decision_service`] is where all protocols ask: it has the clock, and asks the store about limits that hold on all hosts.

pub mod allowance;
pub mod api_rules;
pub mod asking;
pub mod cells;
mod complaints;
pub mod counter_keys;
pub mod decision;
pub mod decision_service;
mod engine;
pub mod escalation;
mod fleet;
mod judge;
pub mod key;
mod latency;
pub mod lease;
pub mod leases;
mod lineage;
pub mod quota;
pub mod renewal;
mod renewals;
pub mod request;
mod rings;
pub mod rules;
pub mod shared;
pub mod status;
pub mod striped;
mod table;
pub mod tally;
pub mod throttle;
mod together;
pub mod turns;

pub use decision::{Decision, Nearest, Outcome, Violated, seconds};
pub use engine::{Engine, Handle};
pub use judge::JudgeMode;
pub use request::{BadRequest, Priority, Request};
pub use rules::Rules;
pub use table::Usage;

#[cfg(test)]
mod tests;
