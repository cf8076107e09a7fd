//! The size of the table of sources: more than the kernel has memory for, and as small as it can be.

use ratelimit_tests::{
    answer::assert_refused,
    cgroup::MemoryCap,
    daemon::{Daemon, Edge},
    netns::{EDGE, EDGE_V4},
    traffic::{Sink, edge_with_sources, flood, sent},
};

use super::{assert_command_refused, assert_run_refused, attached};

/// Enough for the daemon and a table of usual size, far from enough for the largest.
const CAP_BYTES: u64 = 300 << 20;

fn policy(entries: u32) -> String {
    format!("[source]\nlimits = [\"100 packets/day\"]\ntable_entries = {entries}\n")
}

#[test]
fn a_table_that_there_is_no_memory_for_is_refused_with_what_it_takes_and_nothing_stays() {
    let edge = Edge::new();
    let cap = match MemoryCap::new(edge.dir(), CAP_BYTES) {
        Ok(cap) => cap,
        Err(error) => return eprintln!("skipped: no memory cgroup can be made here: {error}"),
    };
    let run = || cap.hold(edge.run_command().args(["--iface", EDGE]));
    edge.write_policy(&policy(16_777_216));
    let sentence = ["source.table_entries = 16777216 takes about 2960 MiB", "use a smaller table"];
    assert_command_refused(&edge, run(), 5, &sentence);
    edge.write_policy(&policy(262_144));
    drop(Daemon::start(run()));
    assert!(attached(&edge), "with as much memory a smaller one is put in force");
    edge.write_policy(&policy(16_777_216));
    assert_refused(&run().output().unwrap(), 5, &sentence);
    assert!(attached(&edge), "and stays so");
    edge.write_policy(&policy(262_144));
    let _daemon = Daemon::start(run());
    assert_eq!(edge.json(&["status"])["table_capacity"], 262_144);
}

#[test]
fn a_table_of_one_entry_holds_one_source_to_its_limit_and_does_not_refuse_the_next() {
    let (one, next) = ("10.99.0.66", "10.99.0.2");
    let edge = edge_with_sources(&[one, next]);
    edge.write_policy("[source]\nlimits = [\"100 packets/day\"]\ntable_entries = 0\n");
    assert_run_refused(
        &edge,
        &["--iface", EDGE],
        2,
        &["table_entries = 0 is out of range; use 1 to 16777216"],
    );
    let _daemon = edge.start(&policy(1));
    assert_eq!(edge.json(&["status"])["table_capacity"], 1);
    let mut sink = Sink::start(&edge, EDGE_V4);
    for source in [one, next] {
        let offered = sent(flood(&edge, source, EDGE_V4, 5_000, 0.5));
        let admitted = sink.datagrams(source);
        // ARP takes none; the prefilter keeps nothing back.
        assert!(
            (90..=100).contains(&admitted),
            "{admitted} of {offered} from {source} passed, the limit is 100"
        );
    }
    assert_eq!(edge.json(&["status"])["table_entries"], 1);
}
