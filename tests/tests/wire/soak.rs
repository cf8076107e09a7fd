//! The soak of `cargo xtask test`: every kind of event but one, once. `cargo xtask soak` has the one of minutes and hours.

use ratelimit_tests::{
    daemon::{Edge, binary},
    soak::{Build, Plan, Until, soak},
};

/// Where `cargo xtask test` has put the build of an earlier commit.
const EARLIER: &str = "RATELIMIT_EARLIER";

/// One soak and not several: at its end a soak opens every map of the kernel to find those that are left, and the kernel leaks the prog array of
/// another soak whose last reference goes at that moment.
#[test]
fn every_packet_is_judged_and_every_bound_holds_while_all_around_the_daemon_fails() {
    let build =
        |name: &str, path, same_layout| Build { name: name.to_owned(), path, words: Vec::new(), same_layout };
    let mut builds = vec![build("this build", binary("ratelimit"), true)];
    match std::env::var_os(EARLIER) {
        Some(path) => builds.push(build("an earlier commit", path.into(), false)),
        None => {
            println!(
                "no {EARLIER}: cargo xtask test builds an earlier commit, which takes over and gives back"
            );
        }
    }
    let edge = Edge::new();
    let mut plan = Plan {
        seed: 1,
        until: Until::Events(0),
        calm_ms: Plan::SHORT_CALM_MS,
        builds,
        only: Vec::new(),
        logs: edge.dir().to_owned(),
    };
    // All but `same-layout`: building another commit with this layout would take a minute. `cargo xtask soak` has it.
    plan.until = Until::Events(plan.events().len() as u64);
    let outcome = soak(plan);
    println!("{}", outcome.summary);
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
}
