//! What the windows promise, as properties over random limits, schedules, clocks and interleavings of CPUs.
//!
//! Every answer is held against the log of what was admitted, in exact integers. One file per promise:
//!
//! - `bound`: never more than stated in any real window; refused only when that is stated; both ends reached
//! - `clock`: steps back, years of silence, the wrap of window numbers
//! - `cpus`: loads and exchanges of several CPUs interleaved one by one, with stale loads; real threads
//! - `parameters`: from rates to numbers, and what is refused on the way

mod bound;
mod clock;
mod cpus;
mod model;
mod parameters;

use proptest::test_runner::{Config, FileFailurePersistence};

/// Failing cases are kept beside the test that found them.
fn config(cases: u32) -> Config {
    let persistence = FileFailurePersistence::WithSource("regressions");
    Config { failure_persistence: Some(Box::new(persistence)), ..Config::with_cases(cases) }
}
