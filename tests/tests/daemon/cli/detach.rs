//! `ratelimit detach`: the end of protection, and nothing else is.

use std::{fs, path::Path};

use aya::programs::links::PinnedLink;
use ratelimit_tests::{
    answer::{assert_refused, stderr, stdout},
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, run},
    redis::wait_for,
};

use super::{POLICY, attached, pins};

#[test]
fn sigterm_leaves_protection_on_and_says_how_to_remove_it() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let (status, log) = daemon.terminate();
    assert!(status.success());
    assert!(log.contains("edge0 stays protected"), "{log}");
    assert!(log.contains("ratelimit detach --state"), "{log}");
    assert!(attached(&edge));
    assert!(!edge.state().join("control.sock").exists());
    let output = edge.cli(&["detach"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("detached from edge0"));
    assert!(!attached(&edge));
    assert!(pins(&edge).is_empty(), "{:?}", pins(&edge));
    assert_refused(&edge.cli(&["detach"]), 1, &["nothing to detach"]);
}

#[test]
fn detach_through_a_running_daemon_ends_protection_at_once() {
    let edge = Edge::new();
    // The second daemon has adopted the first one's link.
    edge.start(POLICY).kill_9();
    let daemon = edge.start(POLICY);
    assert_refused(&edge.cli(&["detach", "--iface", "nope0"]), 2, &["\"nope0\" is not guarded"]);
    assert!(edge.cli(&["detach", "--iface", EDGE]).status.success());
    assert!(!attached(&edge));
    assert!(stdout(&edge.cli(&["status"])).contains("NOT PROTECTING"));
    daemon.wait_for_log("not protected any more");
    assert_refused(&edge.cli(&["detach"]), 1, &["nothing to detach"]);
    // Nothing is left that its maps could serve; the daemon has them open.
    assert_eq!(pins(&edge), [""; 0]);
    assert!(edge.cli(&["block", "add", "203.0.113.7"]).status.success());
    let (status, log) = daemon.terminate();
    assert!(status.success() && !edge.pin().exists(), "{log}");
}

#[test]
fn what_was_in_force_before_a_detach_is_not_adopted_by_a_later_daemon_however_the_first_one_ended() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "add", "second0", "type", "veth", "peer", "name", "second1"]));
    edge.write_policy(POLICY);
    let mut command = edge.run_command();
    command.args(["--iface", EDGE, "--iface", "second0"]);
    let daemon = Daemon::start(command);
    assert!(edge.cli(&["block", "add", "203.0.113.7"]).status.success());
    assert!(edge.cli(&["allow", "add", "198.51.100.7"]).status.success());
    let maps = || pins(&edge).iter().filter(|pin| !pin.contains("/links/")).count();
    let all = maps();
    assert!(edge.cli(&["detach", "--iface", EDGE]).status.success());
    assert_eq!((maps(), all > 20), (all, true), "the other interface is still guarded");
    assert!(edge.cli(&["detach"]).status.success());
    assert_eq!(pins(&edge), [""; 0]);
    daemon.kill_9();
    fs::remove_dir_all(edge.state()).unwrap();
    let _daemon = edge.start(POLICY);
    assert_eq!(edge.json(&["block", "list"])["blocks"], serde_json::json!([]));
    assert_eq!(edge.json(&["allow", "list"])["allows"], serde_json::json!([]));
}

#[test]
fn an_interface_that_is_slow_to_let_go_keeps_no_other_one_and_is_named() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "add", "second0", "type", "veth", "peer", "name", "second1"]));
    let has_program = |name: &str| {
        let shown = edge.wire.on_edge("ip").args(["link", "show", "dev", name]).output().unwrap();
        stdout(&shown).contains("prog/xdp")
    };
    edge.write_policy(POLICY);
    let mut command = edge.run_command();
    command.args(["--iface", EDGE, "--iface", "second0"]);
    let daemon = Daemon::start(command);
    assert!(has_program(EDGE) && has_program("second0"));
    // As a process does that inspects links, or as a kernel that has other things to do.
    let held = PinnedLink::from_pin(edge.pin().join("links").join(EDGE)).unwrap();
    let sentence = "the program still runs on edge0 after 2 s: its pin is removed";
    assert_refused(&edge.cli(&["detach"]), 5, &[sentence]);
    assert!(has_program(EDGE) && !has_program("second0"));
    daemon.wait_for_log("detached from second0");
    assert_refused(&edge.cli(&["detach"]), 1, &["nothing to detach"]);
    drop(held);
    wait_for("the end of the program", || (!has_program(EDGE)).then_some(()));
}

#[test]
fn detach_removes_nothing_that_is_not_ours() {
    let edge = Edge::new();
    let detach = |pin: &Path| {
        let mut command = edge.wire.on_edge(binary("ratelimit"));
        command.arg("detach").arg("--state").arg(edge.state()).arg("--pin").arg(pin).output().unwrap()
    };
    let ordinary = edge.dir().join("ordinary");
    fs::create_dir_all(ordinary.join("sub")).unwrap();
    fs::write(ordinary.join("sub/file"), "precious").unwrap();
    assert_refused(&detach(&ordinary), 5, &["no BPF file system"]);
    assert!(ordinary.join("sub/file").exists());
    // On a BPF file system, somebody else's pins beside ours stay.
    edge.start(POLICY).kill_9();
    let outsiders = edge.pin().join("outsiders");
    fs::create_dir(&outsiders).unwrap();
    assert!(detach(&edge.pin()).status.success());
    assert!(outsiders.exists() && pins(&edge).is_empty());
    assert_refused(&detach(&edge.dir().join("nowhere")), 1, &["nothing to detach"]);
}

#[test]
fn detach_does_not_take_a_busy_daemon_for_an_absent_one() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    daemon.signal("STOP");
    let output = edge.cli(&["detach"]);
    let still_attached = attached(&edge);
    daemon.signal("CONT");
    assert_refused(&output, 3, &["has not answered in time", "control.sock"]);
    assert!(still_attached, "its pins were left alone");
}
