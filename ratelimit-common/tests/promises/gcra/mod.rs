//! What the bucket maths promises, as properties over random limits, schedules and clocks.
//!
//! Every number is checked against the ideal rational rate in exact integers; the code under test rounds, and
//! these tests say to which side and by how much. One file per promise:
//!
//! - `bound`: never more than burst + W x rate; never less than that by a stated amount
//! - `clock`: steps back, a year of silence, the wrap of the time word
//! - `change`: another limit on a bucket in use
//! - `level`: what is left, and for how long something is refused, is what the bucket then does
//! - `cpus`: compare-and-exchange interleaved at arbitrary points

mod bound;
mod change;
mod clock;
mod cpus;
mod level;
mod model;

use proptest::test_runner::{Config, FileFailurePersistence};

/// Failing cases are kept beside the test that found them.
fn config(cases: u32) -> Config {
    let persistence = FileFailurePersistence::WithSource("regressions");
    Config { failure_persistence: Some(Box::new(persistence)), ..Config::with_cases(cases) }
}
