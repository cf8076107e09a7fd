//! `run --trace`, where there is a build that has it.

use std::path::Path;

use ratelimit_tests::tracing;

/// A build with the feature `trace`. `cargo xtask soak` makes one and asks it the same; building it for every run of the suites would take minutes.
const TRACED: &str = "RATELIMIT_TRACED";

#[test]
fn verdicts_are_printed_with_the_rights_that_a_daemon_keeps_and_with_those_of_the_unit() {
    match std::env::var_os(TRACED) {
        Some(build) => tracing::lines_come(Path::new(&build)).unwrap_or_else(|why| panic!("{why}")),
        None => println!("no {TRACED}: cargo xtask soak builds it and looks at what it prints"),
    }
}
