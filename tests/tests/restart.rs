//! A policy file that changes while no daemon is alive: whoever is still in it keeps what was spent.

use std::{
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Daemon, Edge},
    netns::EDGE_V4,
    traffic::{PORT, Sink, edge_with_sources, flood, sent},
};

const ONE: &str = "10.99.0.11";
const OTHER: &str = "10.99.0.12";
const THIRD: &str = "10.99.0.13";

/// What one source, and all of them, may have of the service behind the sink in a day.
const PER_SOURCE: u64 = 20;
const TOTAL: u64 = 30;

/// Nearly all of it: cells of the gate keep a little back.
fn nearly(all: u64, admitted: u64) {
    assert!((all - all / 5..=all).contains(&admitted), "{admitted} of {all}");
}

/// A service that shares the sink's port with the others, at one destination.
fn service(name: &str, to: &str) -> String {
    format!(
        "[[service]]\nname = {name:?}\n\
         match = {{ protocol = \"udp\", ports = [{PORT}], destinations = [{to:?}] }}\n\
         per_source = [\"{PER_SOURCE} packets/day\"]\ntotal = [\"{TOTAL} packets/day\"]\n"
    )
}

/// The file with these services, and as many packets per second for every source.
fn policy(pps: u32, services: &[String]) -> String {
    format!("[source]\nladder = false\nlimits = [\"{pps} packets/s\"]\n{}", services.concat())
}

/// Sends more than anybody may have, and waits until all of it has been judged: refused, or counted by the sink.
fn offer(edge: &Edge, sink: &mut Sink, from: &str) -> u64 {
    let refused =
        || ["limit_packets", "service_total"].map(|reason| edge.dropped(reason)).iter().sum::<u64>();
    let (dropped, arrived) = (refused(), sink.datagrams(from));
    let offered = sent(flood(edge, from, EDGE_V4, 1_000, 0.1));
    assert!(offered >= 2 * TOTAL, "only {offered} were sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let admitted = sink.datagrams(from) - arrived;
        if admitted + refused() - dropped == offered {
            return admitted;
        }
        assert!(
            Instant::now() < deadline,
            "{admitted} arrived of {offered}, {} refused",
            refused() - dropped
        );
        thread::yield_now();
    }
}

/// The two ways for a daemon to go.
fn ways() -> [fn(Daemon); 2] {
    [Daemon::kill_9, |daemon| assert!(daemon.terminate().0.success())]
}

#[test]
fn services_that_share_a_port_keep_what_was_spent_when_the_file_changes_without_a_daemon() {
    for end in ways() {
        let edge = edge_with_sources(&[ONE, OTHER, THIRD]);
        let [here, there, elsewhere] = [EDGE_V4, "10.99.7.1", "10.99.7.0/24"];
        let mut daemon = edge.start(&policy(50_000, &[service("m", here), service("z", there)]));
        let mut sink = Sink::start(&edge, EDGE_V4);
        nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
        // Three quarters of the total are for strangers.
        assert!(offer(&edge, &mut sink, OTHER) > 0);
        for (what, next) in [
            ("one comes", vec![service("a", elsewhere), service("m", here), service("z", there)]),
            ("the order changes", vec![service("z", there), service("m", here), service("a", elsewhere)]),
            ("one goes, others come", vec![service("b", elsewhere), service("c", there), service("m", here)]),
            ("others are renamed", vec![service("bb", elsewhere), service("m", here), service("cc", there)]),
            ("its destinations change", vec![service("m", "10.99.0.0/24"), service("cc", there)]),
            ("it has the port to itself", vec![service("m", "0.0.0.0/0")]),
        ] {
            end(daemon);
            // Limits of sources differ too, or nothing might have to be put in force.
            daemon = edge.start(&policy(60_000, &next));
            daemon.wait_for_log("program replaced in place, buckets kept");
            assert_eq!(offer(&edge, &mut sink, ONE), 0, "what one source had, when {what}");
            assert_eq!(offer(&edge, &mut sink, THIRD), 0, "what all had together, when {what}");
        }
    }
}

#[test]
fn a_service_in_the_place_of_one_that_went_without_a_daemon_starts_afresh() {
    let edge = edge_with_sources(&[ONE]);
    let [here, there] = [EDGE_V4, "10.99.7.1"];
    let daemon = edge.start(&policy(50_000, &[service("m", here), service("z", there)]));
    let mut sink = Sink::start(&edge, EDGE_V4);
    nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
    daemon.kill_9();
    // As at run time: a name that nobody had is somebody else.
    let daemon = edge.start(&policy(50_000, &[service("n", here), service("z", there)]));
    nearly(PER_SOURCE, offer(&edge, &mut sink, ONE));
    drop(daemon);
}
