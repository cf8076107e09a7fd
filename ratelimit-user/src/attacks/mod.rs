//! Attacks as things: when one begins and ends, and what is said of it afterwards. Pure: time and counts are arguments.
//!
//! ```text
//!   counters of one look -> Load per target -> Detector -> Begin, Update, End with an AttackReport
//!   drop events ---------------------------> Frequent sources, prefixes and ports of the report
//! ```
//!
//! A refused packet counts for one attack: that on its service if there is one, otherwise that on the host.

mod detector;
mod evidence;
mod frequent;
mod kind;
mod load;
mod report;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod timeline;

pub use detector::{AttackNews, Detector, Glance};
pub use kind::AttackKind;
pub use load::{Load, Tallied, Volume};
pub use report::{AttackReport, AttackSummary, Frequency, Meanwhile};
pub use target::AttackTarget;
pub use timeline::Timeline;
