//! Attacks: when one begins and ends, and the report about it. Everything here is pure: time and counts are arguments.
//!
//! ```text
//!   counters of one look -> Load per target -> Detector -> Begin, Update, End with an AttackReport
//!                                              Usual: what passes usually
//!   sampled packets, or drop events -------> Frequent sources, prefixes and ports of the report
//! ```
//!
//! A refused packet counts for one attack: that on its service if there is one, otherwise that on the host.

mod detector;
mod evidence;
mod frequent;
mod kind;
mod load;
mod ongoing;
mod report;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod timeline;
mod usual;
mod witness;

pub use detector::{AttackNews, Detector};
pub use kind::AttackKind;
pub use load::{Glance, Load, REFUSED, Tallied, Volume};
pub use report::{AttackNow, AttackReport, AttackSummary, CountedBy, Frequency, Meanwhile};
pub use target::AttackTarget;
pub use timeline::Timeline;
pub use usual::{Unusual, UsualLoads, UsualMeasure};
pub use witness::{OriginPort, SampledPart, Witness};
