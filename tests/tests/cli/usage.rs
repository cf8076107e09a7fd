//! What holds for every verb: wrong usage, and no daemon.

use ratelimit_tests::{answer::assert_refused, daemon::Edge};

use crate::ratelimit;

#[test]
fn wrong_usage_exits_with_two() {
    for words in [
        &["frobnicate"][..],
        &[],
        &["run"],
        &["block", "add"],
        &["status", "--output", "xml"],
        &["limit", "set", "source.packets"],
        &["user", "set", "acme"],
        &["user", "set", "acme", "--inherit", "--network", "1/s"],
    ] {
        assert_eq!(ratelimit(words).status.code(), Some(2), "{words:?}");
    }
    assert_eq!(ratelimit(&["--help"]).status.code(), Some(0));
    assert_eq!(ratelimit(&["--version"]).status.code(), Some(0));
}

#[test]
fn without_a_daemon_every_verb_that_needs_one_exits_with_three() {
    let edge = Edge::new();
    for words in [
        &["status"][..],
        &["stats"],
        &["block", "list"],
        &["block", "add", "192.0.2.1"],
        &["block", "del", "192.0.2.1"],
        &["allow", "list"],
        &["allow", "add", "192.0.2.1"],
        &["allow", "del", "192.0.2.1"],
        &["limit", "list"],
        &["limit", "get", "source.packets"],
        &["limit", "set", "source.packets", "1/s"],
        &["user", "list"],
        &["user", "get", "acme"],
        &["user", "set", "acme", "--plan", "gold"],
        &["user", "reset", "acme"],
        &["confirm"],
        &["rollback"],
    ] {
        assert_refused(&edge.cli(words), 3, &["no daemon reachable at", "control.sock", "ratelimit run"]);
    }
}
