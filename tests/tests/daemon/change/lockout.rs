//! What would cut somebody off is refused.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

use ratelimit_tests::{
    answer::assert_answer,
    daemon::{Edge, binary},
    netns::{EDGE_V4, run},
};

use super::{file, in_force, is_waiting, packets};

/// Somebody who is logged in: a real connection to port 22.
fn logged_in(edge: &Edge, from: &str) -> (TcpListener, TcpStream, TcpStream) {
    edge.wire.add_source(from.parse().unwrap());
    let listener = edge.wire.as_edge(|| TcpListener::bind((EDGE_V4, 22)).unwrap());
    let client = edge.wire.as_net(|| TcpStream::connect((EDGE_V4, 22)).unwrap());
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), from);
    (listener, client, server)
}

#[test]
fn a_block_that_would_cut_off_a_live_ssh_session_is_refused_unless_it_is_allowed_or_forced() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    assert!(edge.cli(&["block", "add", "10.99.0.66"]).status.success(), "nobody is connected yet");
    assert!(edge.cli(&["block", "del", "10.99.0.66"]).status.success());
    let session = logged_in(&edge, "10.99.0.66");
    let why = &["refused", "10.99.0.66 has a live SSH session (to port 22)", "allow list", "--force"];
    assert_answer(&edge.cli(&["block", "add", "10.99.0.66"]), 2, why);
    assert_answer(&edge.cli(&["block", "add", "10.99.0.64/28", "--for", "1m"]), 2, why);
    assert_eq!(edge.json(&["block", "list"])["blocks"], serde_json::json!([]));
    assert!(edge.cli(&["block", "add", "10.99.0.67"]).status.success(), "a neighbour");
    assert!(edge.cli(&["allow", "add", "10.99.0.66"]).status.success());
    assert!(edge.cli(&["block", "add", "10.99.0.64/28"]).status.success(), "the allow list wins");
    assert_answer(&edge.cli(&["allow", "del", "10.99.0.66"]), 2, why);
    assert!(edge.cli(&["allow", "del", "10.99.0.66", "--force"]).status.success());
    assert!(edge.cli(&["block", "del", "10.99.0.64/28"]).status.success());
    assert!(edge.cli(&["block", "add", "10.99.0.66", "--force"]).status.success());
    drop(session);
}

#[test]
fn sessions_are_found_on_whatever_port_sshd_listens() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    edge.wire.add_source("10.99.0.66".parse().unwrap());
    // A process is known by its name. Copied by another process: a file that this one had open for writing could not be
    // executed while any thread here forks.
    let sshd = edge.dir().join("sshd");
    run(Command::new("cp").arg(binary("traffic")).arg(&sshd));
    let mut command = edge.wire.on_edge(&sshd);
    command.args(["sink", "--listen", "10.99.0.1:2222"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    server.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut listening = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut listening).unwrap();
    // The server hangs up on idle clients; a stopped one does not, and the kernel completes their connections.
    run(Command::new("kill").arg("-STOP").arg(server.id().to_string()));
    let session = edge.wire.as_net(|| TcpStream::connect("10.99.0.1:2222").unwrap());
    let output = edge.cli(&["block", "add", "10.99.0.66"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_answer(&output, 2, &["10.99.0.66 has a live SSH session (to port 2222)"]);
    drop(session);
}

#[test]
fn a_policy_too_small_for_a_live_ssh_session_is_refused_unless_forced() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let tiny = file(&edge, "tiny.toml", &packets(5));
    assert_answer(&edge.cli(&["apply", &tiny]), 0, &[]);
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    let session = logged_in(&edge, "10.99.0.66");
    let why =
        &["refused", "\"5 packets/s burst 5\" is below what one SSH session needs", "10.99.0.66", "--force"];
    assert_answer(&edge.cli(&["apply", &tiny, "--confirm", "1h"]), 2, why);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "5/s"]), 2, why);
    assert_eq!((in_force(&edge), is_waiting(&edge)), (1000, false));
    assert!(edge.cli(&["allow", "add", "10.99.0.66"]).status.success());
    assert_answer(&edge.cli(&["apply", &tiny]), 0, &[]);
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    assert!(edge.cli(&["allow", "del", "10.99.0.66"]).status.success());
    assert_answer(&edge.cli(&["apply", &tiny, "--force"]), 0, &[]);
    daemon.wait_for_log("with --force");
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    // Nobody can say --force to a signal: it obeys, and complains.
    edge.write_policy(&packets(5));
    daemon.signal("HUP");
    daemon.wait_for_log("not refused, because the policy file says so");
    assert_eq!(in_force(&edge), 5);
    drop(session);
}

/// Policies that leave too little for a session where they are in earnest.
const TINY: &str = "[source]\nlimits = [\"5 packets/s\"]\n";
const TRIAL: &str = "mode = \"monitor\"\n[source]\nlimits = [\"5 packets/s\"]\n";

/// A policy in which port 22 has a small limit, and what becomes of packets above it.
fn ssh(on_limit: &str) -> String {
    let limit = "match = { protocol = \"tcp\", ports = [22] }\nper_source = [\"5 packets/s\"]\n";
    format!("{}[[service]]\nname = \"ssh\"\n{limit}on_limit = \"{on_limit}\"\n", packets(1000))
}

#[test]
fn a_trial_is_taken_without_force_and_refused_when_it_would_cut_off_a_session_in_earnest() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    let session = logged_in(&edge, "10.99.0.66");
    let apply = |name: &str, text: &str| edge.cli(&["apply", &file(&edge, name, text)]);
    let why =
        &["refused", "\"5 packets/s burst 5\" is below what one SSH session needs", "10.99.0.66", "--force"];
    for lenient in ["monitor", "mark"] {
        assert_answer(&apply("lenient.toml", &ssh(lenient)), 0, &[]);
        for strict in ["drop", "reject"] {
            assert_answer(&apply("strict.toml", &ssh(strict)), 2, why);
        }
    }
    assert_answer(&apply("trial.toml", TRIAL), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "4/s"]), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "5/s"]), 0, &[]);
    assert_answer(&apply("tiny.toml", TINY), 2, why);
    // A block drops nothing on trial either; what it would do is looked at when it begins to.
    assert_answer(&edge.cli(&["block", "add", "10.99.0.64/28"]), 0, &[]);
    let blocked =
        &["refused", "10.99.0.66 would be blocked", "10.99.0.66 has a live SSH session (to port 22)"];
    assert_answer(&apply("large.toml", &packets(1000)), 2, blocked);
    assert_answer(&edge.cli(&["block", "del", "10.99.0.64/28"]), 0, &[]);
    assert_answer(&apply("large.toml", &packets(1000)), 0, &[]);
    drop(session);
}

#[test]
fn a_rollback_and_an_allow_entry_taken_back_are_refused_where_a_session_would_be_cut_off() {
    let edge = Edge::new();
    let daemon = edge.start(TINY);
    let why =
        &["refused", "\"5 packets/s burst 5\" is below what one SSH session needs", "10.99.0.66", "--force"];
    assert_answer(&edge.cli(&["allow", "add", "10.99.0.66"]), 0, &[]);
    let session = logged_in(&edge, "10.99.0.66");
    assert_answer(&edge.cli(&["allow", "del", "10.99.0.66"]), 2, why);
    for lenient in [TRIAL.to_owned(), packets(1000)] {
        assert_answer(&edge.cli(&["apply", &file(&edge, "lenient.toml", &lenient)]), 0, &[]);
        assert_answer(&edge.cli(&["allow", "del", "10.99.0.66"]), 0, &[]);
        assert_answer(&edge.cli(&["rollback"]), 2, why);
        assert_answer(&edge.cli(&["allow", "add", "10.99.0.66"]), 0, &[]);
        assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    }
    // Nobody is there to say --force when the time is over: the policy before comes back, with a complaint.
    let large = file(&edge, "large.toml", &packets(1000));
    assert_answer(&edge.cli(&["apply", &large, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["allow", "del", "10.99.0.66"]), 0, &[]);
    assert_answer(&edge.cli(&["rollback"]), 2, why);
    assert_eq!((in_force(&edge), is_waiting(&edge)), (1000, true));
    assert_answer(&edge.cli(&["rollback", "--force"]), 0, &[]);
    assert_eq!((in_force(&edge), is_waiting(&edge)), (5, false));
    assert_answer(&edge.cli(&["apply", &large, "--confirm", "1s"]), 0, &[]);
    daemon.wait_for_log("not refused, because nobody confirmed what is in force");
    drop(session);
}

#[test]
fn the_operator_the_host_itself_and_its_gateway_are_not_blocked_by_mistake() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    run(edge.wire.on_edge("ip").args(["route", "add", "default", "via", "10.99.0.254"]));
    assert_answer(&edge.cli(&["block", "add", "10.99.0.254"]), 2, &["10.99.0.254 is the default gateway"]);
    assert_answer(
        &edge.cli(&["block", "add", EDGE_V4]),
        2,
        &["10.99.0.1 is this host's own address (on edge0)"],
    );
    let both = edge.cli(&["block", "add", "10.99.0.0/16"]);
    assert_answer(&both, 2, &["10.99.0.254 is the default gateway", "10.99.0.1 is this host's own address"]);
    let over_ssh = |words: &[&str]| {
        let mut command = edge.cli_command(words);
        command.env("SSH_CONNECTION", "192.0.2.77 51234 10.99.0.1 22").output().unwrap()
    };
    assert_answer(&over_ssh(&["block", "add", "192.0.2.0/24"]), 2, &["you are connected from 192.0.2.77"]);
    let tiny = file(&edge, "tiny.toml", &packets(5));
    assert_answer(&over_ssh(&["apply", &tiny]), 2, &["you are connected from 192.0.2.77"]);
    assert_answer(&over_ssh(&["block", "add", "198.51.100.0/24"]), 0, &[]);
    assert_answer(&edge.cli(&["block", "add", "127.0.0.0/8"]), 0, &[]);
}
