//! Guarded interfaces: outsiders on them, generic mode, those that come and go.

use std::{
    fs,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::{assert_refused, stdout},
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, run},
};

use super::{POLICY, assert_run_refused, attached, pins};

#[test]
fn a_foreign_program_is_named_and_left_alone() {
    let edge = Edge::new();
    let foreign = Edge::new();
    // Any program that is not pinned under this pin directory is an outsider, even one of our own.
    foreign.write_policy(POLICY);
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(foreign.policy()).args(["--iface", EDGE]);
    command.arg("--state").arg(foreign.state()).arg("--pin").arg(foreign.pin());
    let _foreign = Daemon::start(command);
    edge.write_policy(POLICY);
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    assert_refused(&output, 5, &["already runs a program of ratelimit", "whose pins are not under"]);
    assert!(pins(&edge).is_empty());
    assert!(attached(&edge), "the outsider still runs");
}

#[test]
fn generic_mode_is_shouted_about_and_require_native_refuses_it() {
    let edge = Edge::new();
    // The loopback interface of the test's own namespace has no native XDP.
    edge.write_policy(POLICY);
    let output = edge.run_command().args(["--iface", "lo", "--require-native"]).output().unwrap();
    assert_refused(&output, 5, &["cannot run XDP in native mode", "--require-native"]);
    assert!(pins(&edge).is_empty());
    let mut command = edge.run_command();
    command.args(["--iface", "lo"]);
    let daemon = Daemon::start(command);
    daemon.wait_for_log("GENERIC MODE");
    assert_eq!(edge.json(&["status"])["interfaces"][0]["mode"], "generic");
    assert!(stdout(&edge.cli(&["status"])).contains("NOT NATIVE"));
    daemon.kill_9();
    let output = edge.run_command().args(["--iface", "lo", "--require-native"]).output().unwrap();
    assert_refused(&output, 5, &["an earlier daemon attached it so"]);
}

#[test]
fn an_interface_that_cannot_be_guarded_leaves_none_of_the_others_guarded() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    // The first one works, the second has no native mode.
    assert_run_refused(
        &edge,
        &["--iface", EDGE, "--iface", "lo", "--require-native"],
        5,
        &["\"lo\" cannot run XDP in native mode"],
    );
}

#[test]
fn an_interface_that_was_guarded_stays_so_until_it_is_detached() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let mut both = edge.run_command();
    both.args(["--iface", EDGE, "--iface", "lo"]);
    Daemon::start(both).kill_9();
    let mut one = edge.run_command();
    one.args(["--iface", "lo"]);
    let daemon = Daemon::start(one);
    daemon.wait_for_log("edge0 was guarded before and stays so");
    let interfaces = edge.json(&["status"])["interfaces"].clone();
    assert_eq!(interfaces.as_array().unwrap().len(), 2, "{interfaces}");
    assert!(edge.cli(&["detach", "--iface", EDGE]).status.success());
    assert!(!attached(&edge));
    assert_eq!(edge.json(&["status"])["interfaces"][0]["name"], "lo");
}

#[test]
fn an_interface_that_was_replaced_by_another_of_its_name_is_guarded_anew() {
    let edge = Edge::new();
    edge.start(POLICY).kill_9();
    edge.wire.replace();
    assert!(!attached(&edge));
    let daemon = edge.start(POLICY);
    daemon.wait_for_log("edge0: attached, native mode");
    assert!(attached(&edge));
}

#[test]
fn an_interface_named_twice_is_guarded_once() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let mut command = edge.run_command();
    command.args(["--iface", EDGE, "--iface", "lo", "--iface", EDGE]);
    let _daemon = Daemon::start(command);
    assert_eq!(edge.json(&["status"])["interfaces"].as_array().unwrap().len(), 2);
    assert!(edge.cli(&["detach"]).status.success());
}

#[test]
fn a_link_of_another_network_namespace_is_left_alone() {
    let (edge, other) = (Edge::new(), Edge::new());
    edge.start(POLICY).kill_9();
    // The pin directory of the first host, seen from a host whose edge0 is another interface.
    let run_in_other = |iface: &str| {
        let mut command = other.wire.on_edge(binary("ratelimit"));
        command.arg("run").arg("--policy").arg(edge.policy()).args(["--iface", iface]);
        command.arg("--state").arg(other.state()).arg("--pin").arg(edge.pin());
        command
    };
    assert_refused(
        &run_in_other(EDGE).output().unwrap(),
        5,
        &["is on an interface elsewhere", "another --pin"],
    );
    assert_refused(&run_in_other("nope0").output().unwrap(), 2, &["does not exist"]);
    assert!(attached(&edge));
    let daemon = Daemon::start(run_in_other("lo"));
    daemon.wait_for_log("the link of edge0 is on an interface that is not visible here");
    assert!(attached(&edge), "it got the new program");
}

#[test]
fn a_program_that_is_lost_is_put_back_and_status_never_lies() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    edge.wire.replace();
    daemon.wait_for_log("edge0");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !attached(&edge) {
        assert!(Instant::now() < deadline, "never attached again: {}", daemon.log());
    }
    assert_eq!(edge.json(&["status"])["interfaces"][0]["mode"], "native");
    // Somebody removes the pins under the daemon: the program goes, and comes back.
    fs::remove_dir_all(edge.pin().join("links")).unwrap();
    fs::create_dir(edge.pin().join("links")).unwrap();
    daemon.wait_for_log("our program is gone; attaching it again");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !attached(&edge) {
        assert!(Instant::now() < deadline, "never attached again: {}", daemon.log());
    }
    run(edge.wire.on_edge("ip").args(["link", "del", EDGE]));
    daemon.wait_for_log("edge0 is gone; it will be guarded again when it comes back");
    assert!(stdout(&edge.cli(&["status"])).contains("NOT PROTECTED"));
    let (_, log) = daemon.terminate();
    assert!(log.contains("edge0 is NOT PROTECTED (detached)"), "{log}");
}
