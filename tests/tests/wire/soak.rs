//! The soak of `cargo xtask test`: every kind of event once. `cargo xtask soak` has the one of minutes and hours.

use ratelimit_tests::{
    daemon::{Edge, binary},
    soak::{Build, Event, Plan, Until, soak},
};

/// Where `cargo xtask test` has put the build of an earlier commit.
const EARLIER: &str = "RATELIMIT_EARLIER";

/// One soak and not several: at its end a soak opens every map of the kernel to find those that are left, and the kernel leaks the prog array of
/// another soak whose last reference goes at that moment.
#[test]
fn every_packet_is_judged_and_every_bound_holds_while_all_around_the_daemon_fails() {
    let build = |name: &str, path| Build { name: name.to_owned(), path, words: Vec::new() };
    let mut builds = vec![build("this build", binary("ratelimit"))];
    let mut events = Event::ALL.to_vec();
    match std::env::var_os(EARLIER) {
        Some(path) => builds.push(build("an earlier commit", path.into())),
        None => {
            println!(
                "no {EARLIER}: cargo xtask test builds an earlier commit, which takes over and gives back"
            );
            events.retain(|event| *event != Event::OtherBuild);
        }
    }
    let edge = Edge::new();
    let outcome = soak(Plan {
        seed: 1,
        until: Until::Events(events.len() as u64),
        calm_ms: Plan::SHORT_CALM_MS,
        builds,
        only: events,
        logs: edge.dir().to_owned(),
    });
    println!("{}", outcome.summary);
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
}
