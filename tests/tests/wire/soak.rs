//! A soak of seconds; `cargo xtask soak` has the one of minutes and hours.

use std::sync::{Mutex, PoisonError};

use ratelimit_tests::{
    daemon::{Edge, binary},
    soak::{Build, Event, Plan, Until, soak},
};

/// Held by the soak that runs. At its end a soak opens every map of the kernel to find those that are left, and the kernel leaks the prog array of
/// another soak whose last reference goes at that moment.
static ALONE: Mutex<()> = Mutex::new(());

/// Where `cargo xtask test` has put the build of an earlier commit.
const EARLIER: &str = "RATELIMIT_EARLIER";

fn this_build() -> Build {
    Build { name: "this build".to_owned(), path: binary("ratelimit"), words: Vec::new() }
}

/// Each of these once, in an order that the seed fixes.
fn each_once(events: &[Event], builds: Vec<Build>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let edge = Edge::new();
    let outcome = soak(Plan {
        seed: 1,
        until: Until::Events(events.len() as u64),
        calm_ms: 300,
        builds,
        only: events.to_vec(),
        logs: edge.dir().to_owned(),
    });
    println!("{}", outcome.summary);
    assert!(outcome.faults.is_empty(), "{:#?}", outcome.faults);
}

#[test]
fn every_packet_is_judged_and_every_bound_holds_while_all_around_the_daemon_fails() {
    let events = [
        Event::Kill,
        Event::KillStart,
        Event::Reload,
        Event::OtherLayout,
        Event::LinkDown,
        Event::LinkReplaced,
        Event::Remount,
        Event::StoreCrash,
        Event::Flush,
        Event::DiskFull,
        Event::FewFiles,
        Event::ClockBack,
    ];
    each_once(&events, vec![this_build()]);
}

#[test]
fn an_earlier_commit_takes_over_and_gives_back_and_every_bound_holds() {
    let Some(path) = std::env::var_os(EARLIER) else {
        println!("no {EARLIER}: cargo xtask test builds an earlier commit and names it");
        return;
    };
    let earlier = Build { name: "an earlier commit".to_owned(), path: path.into(), words: Vec::new() };
    each_once(&[Event::OtherBuild], vec![this_build(), earlier]);
}
