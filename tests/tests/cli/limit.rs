//! `ratelimit limit`: limits of the running policy.

use ratelimit_tests::{answer::assert_refused, daemon::Edge};

use crate::POLICY;

#[test]
fn limits_are_listed_read_and_changed_at_run_time() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let limits = edge.json(&["limit", "list"])["limits"].clone();
    assert_eq!(limits[0]["name"], "source.packets");
    assert_eq!(limits[1]["rate"], "100 syns/s burst 100");
    assert!(edge.cli(&["limit", "set", "source.packets", "1000 packets/s burst 2000"]).status.success());
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 1_000);
    let status = edge.json(&["status"]);
    assert_eq!(status["policy_generation"], 2);
    assert_eq!(status["policy_changed"], true);
    for (words, sentence) in [
        (&["limit", "get", "nope"][..], &["\"nope\"", "source.packets", "source.syns"][..]),
        (&["limit", "set", "nope", "1/s"], &["nope", "source.packets"]),
        (&["limit", "set", "source.packets", "0/s"], &["rate 0"]),
        (&["limit", "set", "source.packets", "5 MB/s"], &["source.packets", "packets"]),
        (&["limit", "set", "source.packets", "fast"], &["fast"]),
    ] {
        assert_refused(&edge.cli(words), 2, sentence);
    }
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 1_000, "refusals change nothing");
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(edge.json(&["limit", "get", "source.packets"])["amount"], 5_000, "the file counts again");
    assert_eq!(edge.json(&["status"])["policy_changed"], false);
}
