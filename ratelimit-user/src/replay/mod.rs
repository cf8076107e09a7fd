//! Replays policies on captured packets.
//!
//! ```text
//!   capture -> arrival -> packet path on tables in memory, at the capture's own time -> cause -> series, sources, report
//! ```
//!
//! The packet path is the library that the kernel program is compiled from. The facts about a host that a capture does not have are set here, in
//! one place: [`FACTS`]. Everything has a bound: tables have the policy's, series are binned, and the lightest sources are dropped.

mod cause;
mod comparison;
mod engine;
pub mod plot;
mod report;
mod series;
mod source_tally;
mod timeline;

use crate::compile::HostFacts;

pub use cause::{Cause, limit_of};
pub use comparison::{Differences, OneSided, PolicyComparison};
pub use engine::Replay;
pub use report::{Amounts, RefusalRow, ReplayReport, SourceRow};
pub use series::{Bin, Series};
pub use source_tally::{SourceCount, SourceId, SourceTally};
pub use timeline::{ReplayTimeline, TooFar};

/// The host that captures are replayed on, equal on every machine: one CPU, a clock that ticks 250 times a second, enough
/// headroom, no cluster. There are no sockets, so SYNs are not answered with cookies.
pub const FACTS: HostFacts = HostFacts {
    cpus: 1,
    tick_ns: 4_000_000,
    secret: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
    cookies: false,
    translated: Vec::new(),
    window_scale: None,
    headroom: true,
    reserve: None,
};
