//! Seeds of random suites: a fixed number of them, unless the environment asks for one or for more.

use std::ops::Range;

/// The one that `SEED` names, or as many as the variable `count` says.
pub fn seeds(count: &str, otherwise: u64) -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number(count).unwrap_or(otherwise),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
