//! Changing the policy of a running host: diff, apply, confirm, rollback, SIGHUP, limit set --save, and what is refused.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use aya::maps::{Array, ArrayOfMaps, Map, MapData};
use ratelimit_common::abi::{self, names};
use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4, run},
};
use ratelimit_user::dataplane::pin::{Layout, PinDir};

/// A policy of one limit.
fn packets(per_second: u64) -> String {
    format!("[source]\nlimits = [\"{per_second} packets/s\"]\n")
}

/// Another policy file beside the daemon's own.
fn file(edge: &Edge, name: &str, text: &str) -> String {
    let path = edge.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Exit code, and words that must have been said.
fn assert_answer(output: &Output, code: i32, words: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

/// What the daemon says is in force.
fn in_force(edge: &Edge) -> u64 {
    edge.json(&["limit", "get", "source.packets"])["amount"].as_u64().unwrap()
}

/// What the kernel enforces, whether a daemon runs or not.
fn in_kernel(edge: &Edge) -> u64 {
    let pinned = PinDir::new(edge.pin()).maps(Layout::current(262_144)).join(names::POLICY);
    let map = Map::ArrayOfMaps(MapData::from_pin(pinned).unwrap());
    let policies: ArrayOfMaps<MapData, Array<MapData, abi::Policy>> = map.try_into().unwrap();
    let policy = policies.get(&0, 0).unwrap().get(&0, 0).unwrap();
    // The price of a packet is rounded up, so the rate comes out below what was asked for.
    256_000_000_000_u64.div_ceil(policy.source.set.limits[0].cost_fp)
}

fn is_waiting(edge: &Edge) -> bool {
    !edge.json(&["status"])["unconfirmed"].is_null()
}

/// Until nothing waits any more; panics after ten seconds.
fn wait_for_rollback(edge: &Edge, daemon: &Daemon) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_waiting(edge) {
        assert!(Instant::now() < deadline, "never rolled back: {}", daemon.log());
    }
}

#[test]
fn diff_shows_what_apply_would_change_and_exits_accordingly() {
    let edge = Edge::new();
    let same = file(&edge, "same.toml", "[source]\nlimits = [ \"1000/s\" ] # as it is\n");
    let other = file(&edge, "other.toml", &format!("interfaces = [\"{EDGE}\"]\n{}", packets(2000)));
    assert_answer(&edge.cli(&["diff", &same]), 3, &["no daemon reachable"]);
    let _daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["diff", &same]), 0, &["nothing would change"]);
    let output = edge.cli(&["diff", &other]);
    let rows = "limit source.packets: 1000 packets/s burst 1000 -> 2000 packets/s burst 2000\n\
                interfaces: none -> edge0; takes effect at the next start\n";
    assert_answer(&output, 1, &[]);
    assert_eq!(text(&output), rows);
    let output = edge.cli(&["diff", &other, "--output", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["changes"][0]["subject"], "limit source.packets");
    assert_eq!(json["changes"][0]["after"], "2000 packets/s burst 2000");
    assert_eq!(json["changes"][1]["needs_restart"], true);
    assert_eq!(edge.json(&["diff", &same]), serde_json::json!({ "changes": [] }));
    let bad = file(&edge, "bad.toml", "[source]\nlimits = [\"0/s\"]\n");
    assert_answer(&edge.cli(&["diff", &bad]), 2, &["bad.toml:2:11:", "rate 0"]);
    assert_answer(&edge.cli(&["diff", "/nowhere.toml"]), 2, &["/nowhere.toml"]);
    assert_eq!(edge.json(&["status"])["policy_generation"], 1, "looking changes nothing");
}

#[test]
fn an_applied_policy_is_enforced_and_outlives_a_restart_until_the_policy_file_changes() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let applied = edge.cli(&["apply", &other]);
    let stays = format!("a restart goes on with it as long as {} stays as it is", edge.policy().display());
    assert_answer(&applied, 0, &["other.toml is in force: 1 change", &stays]);
    daemon.wait_for_log("other.toml applied by uid 0");
    daemon.wait_for_log("  limit source.packets: 1000 packets/s burst 1000 -> 2000 packets/s burst 2000");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
    let status = edge.json(&["status"]);
    assert_eq!((&status["policy"], &status["policy_changed"]), (&other.as_str().into(), &false.into()));
    daemon.kill_9();
    // Also if the applied file is gone: the text was kept.
    fs::remove_file(&other).unwrap();
    let daemon = edge.start_again();
    daemon.wait_for_log("the applied policy stays in force");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 1000, "SIGHUP reads the policy file");
    daemon.kill_9();
    let daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "and so does the next start");
    let other = file(&edge, "other.toml", &packets(2000));
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    daemon.kill_9();
    let daemon = edge.start(&packets(3000));
    daemon.wait_for_log("has changed since another policy was applied, and counts again");
    assert_eq!(in_force(&edge), 3000);
}

#[test]
fn the_daemons_own_policy_file_can_be_applied_and_is_what_a_restart_reads() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    let own = own.to_str().unwrap();
    assert_answer(&edge.cli(&["apply", own]), 0, &[&format!("a restart reads {own}")]);
    assert_eq!(in_force(&edge), 2000);
}

#[test]
fn a_file_with_mistakes_is_not_applied() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    let bad = file(&edge, "bad.toml", "colour = 1\n[source]\nlimits = [\"0/s\"]\n");
    assert_answer(&edge.cli(&["apply", &bad]), 2, &["bad.toml:1:1:", "bad.toml:3:11:", "rate 0"]);
    let good = file(&edge, "good.toml", &packets(2000));
    for (time, sentence) in
        [("0s", "at least 1ms"), ("10", "no unit"), ("1ms", "use 1s to 24h"), ("2d", "use 1s to 24h")]
    {
        assert_answer(&edge.cli(&["apply", &good, "--confirm", time]), 2, &[sentence, "--confirm"]);
    }
    assert_eq!((in_force(&edge), edge.json(&["status"])["policy_generation"].as_u64()), (1000, Some(1)));
}

#[test]
fn what_nobody_confirms_is_rolled_back_also_if_the_caller_is_gone() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1500/s"]), 0, &[]);
    // Somebody whose connection breaks before the answer comes.
    let request = serde_json::json!({ "verb": "apply", "file": "/gone.toml", "text": packets(2000), "confirm_ns": 1_000_000_000_u64 });
    let mut stream = UnixStream::connect(edge.state().join("control.sock")).unwrap();
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    drop(stream);
    daemon.wait_for_log("/gone.toml applied by uid 0");
    daemon.wait_for_log("waiting 1 s for ratelimit confirm");
    wait_for_rollback(&edge, &daemon);
    assert!(daemon.log().contains("nobody confirmed within 1 s"), "{}", daemon.log());
    assert_eq!((in_force(&edge), in_kernel(&edge)), (1500, 1500), "limits that were set come back too");
    assert_answer(&edge.cli(&["confirm"]), 1, &["nothing waits for confirmation"]);
    assert_answer(&edge.cli(&["rollback"]), 0, &["is in force again"]);
    assert_eq!(in_force(&edge), 1000, "the change before the apply can still be taken back");
}

#[test]
fn status_counts_down_and_confirm_keeps() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let applied = edge.cli(&["apply", &other, "--confirm", "1h"]);
    assert_answer(&applied, 0, &["run `ratelimit confirm` within 3600 s", "policy.toml comes back"]);
    let status = edge.json(&["status"]);
    let left = status["unconfirmed"]["seconds_left"].as_u64().unwrap();
    assert!((3590..=3600).contains(&left), "{status}");
    assert_eq!(status["unconfirmed"]["back_to"], edge.policy().to_str().unwrap());
    assert_eq!(status["unconfirmed"]["changes"][0]["before"], "1000 packets/s burst 1000");
    assert_answer(
        &edge.cli(&["status"]),
        0,
        &["UNCONFIRMED  3", "then back to", "a restart goes back to the policy before"],
    );
    assert_answer(&edge.cli(&["confirm"]), 0, &["other.toml is confirmed; a restart goes on with it"]);
    daemon.wait_for_log("other.toml confirmed by uid 0");
    assert!(!is_waiting(&edge));
    assert_answer(&edge.cli(&["confirm"]), 1, &["nothing waits for confirmation"]);
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!((in_force(&edge), in_kernel(&edge)), (2000, 2000));
}

#[test]
fn a_daemon_that_is_killed_during_the_wait_comes_back_with_the_old_policy() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1500/s"]), 0, &[]);
    // The worst case: what was applied is the very file that a start reads.
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    assert_answer(&edge.cli(&["apply", own.to_str().unwrap(), "--confirm", "1h"]), 0, &[]);
    assert_eq!(in_kernel(&edge), 2000);
    daemon.kill_9();
    let daemon = edge.start_again();
    daemon.wait_for_log("was applied and not confirmed before the daemon ended");
    assert_eq!((in_force(&edge), in_kernel(&edge)), (1500, 1500));
    assert!(!is_waiting(&edge));
    // Nothing waits, and still the file that nobody confirmed does not come into force by itself.
    daemon.kill_9();
    let daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "a limit that was set ends with the daemon, as always");
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 2000, "but when somebody says so");
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_of_an_unconfirmed_apply_comes_back_with_the_old_policy() {
    let edge = Edge::new();
    let mut daemon = edge.start(&packets(1000));
    // The policy file says the new one already, and has been refused once: only what is kept says the old one.
    edge.write_policy(&packets(2000));
    let own = edge.policy();
    let own = own.to_str().unwrap();
    assert_answer(&edge.cli(&["apply", own, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["rollback"]), 0, &[]);
    let mut applied = 0;
    // From before the order arrives until after it is answered.
    for moment_ms in [1, 5, 10, 20, 30, 40, 60, 80] {
        let mut order = edge.cli_command(&["apply", own, "--confirm", "1h"]);
        let mut order = order.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moment = Instant::now() + Duration::from_millis(moment_ms);
        while Instant::now() < moment {}
        daemon.kill_9();
        order.wait().unwrap();
        applied += u32::from(in_kernel(&edge) == 2000);
        daemon = edge.start_again();
        assert_eq!((in_force(&edge), in_kernel(&edge)), (1000, 1000), "killed after {moment_ms} ms");
        assert!(!is_waiting(&edge));
    }
    println!("the new policy was in the kernel {applied} times of 8");
}

#[test]
fn a_daemon_that_is_stopped_during_the_wait_rolls_back_first() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    let (_, log) = daemon.terminate();
    assert!(log.contains("policy.toml: the daemon stops"), "{log}");
    assert_eq!(in_kernel(&edge), 1000, "with no daemon alive");
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000);
}

#[test]
fn while_one_apply_waits_every_other_change_of_policy_is_refused() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", &packets(2000));
    let third = file(&edge, "third.toml", &packets(3000));
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    let sentence = &["other.toml waits for confirmation", "ratelimit confirm", "ratelimit rollback"];
    assert_answer(&edge.cli(&["apply", &third]), 2, sentence);
    assert_answer(&edge.cli(&["apply", &third, "--confirm", "1s", "--force"]), 2, sentence);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "1/s"]), 2, sentence);
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded, the old one stays in force: SIGHUP refused");
    assert!(edge.cli(&["block", "add", "192.0.2.1"]).status.success(), "lists are no part of the policy");
    assert_eq!((in_force(&edge), is_waiting(&edge)), (2000, true), "the wait goes on");
    assert_answer(&edge.cli(&["rollback"]), 0, &["policy.toml is in force again"]);
    daemon.wait_for_log("policy.toml: asked for by uid 0");
    assert_eq!((in_force(&edge), in_kernel(&edge), is_waiting(&edge)), (1000, 1000, false));
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 1);
}

#[test]
fn rollback_takes_back_one_apply_limit_set_or_sighup() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    assert_answer(&edge.cli(&["rollback"]), 1, &["no policy was in force before this one"]);
    let other = file(&edge, "other.toml", &packets(2000));
    let back = || {
        assert_answer(&edge.cli(&["rollback"]), 0, &["is in force again"]);
        assert_eq!((in_force(&edge), in_kernel(&edge)), (1000, 1000));
        assert_answer(&edge.cli(&["rollback"]), 1, &["nothing was changed"]);
    };
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    back();
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["confirm"]), 0, &[]);
    back();
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "2000/s"]), 0, &[]);
    back();
    edge.write_policy(&packets(2000));
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    assert_eq!(in_force(&edge), 2000);
    back();
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 1000, "a restart does not undo a rollback");
}

#[test]
fn a_policy_that_cannot_be_written_down_is_not_applied() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    // A directory cannot be replaced by a file, not even by root.
    fs::create_dir_all(edge.state().join("policy-in-force.json/in-the-way")).unwrap();
    let other = file(&edge, "other.toml", &packets(2000));
    for words in [&["apply", &other][..], &["apply", &other, "--confirm", "1h"]] {
        assert_answer(&edge.cli(words), 5, &["cannot write", "policy-in-force.json"]);
        assert_eq!((in_force(&edge), is_waiting(&edge)), (1000, false));
    }
}

#[test]
fn a_record_that_makes_no_sense_stops_the_start_and_says_what_to_do() {
    let edge = Edge::new();
    edge.start(&packets(1000)).kill_9();
    fs::write(edge.state().join("policy-in-force.json"), "{").unwrap();
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    assert_answer(
        &output,
        2,
        &["cannot read", "policy-in-force.json", "without that file the policy file counts"],
    );
    assert_eq!(in_kernel(&edge), 1000);
}

#[test]
fn a_large_policy_is_applied_and_a_larger_one_is_refused_before_it_is_sent() {
    let edge = Edge::new();
    let _daemon = edge.start(&packets(1000));
    // Quotes and line ends, which take twice the room on the way.
    let line = format!("# {}\n", "\"".repeat(61));
    let most = 16 << 20;
    let comments = line.repeat((most - packets(2000).len()) / line.len());
    let large = file(&edge, "large.toml", &format!("{comments}{}", packets(2000)));
    assert_answer(&edge.cli(&["diff", &large]), 1, &["1000 packets/s burst 1000 -> 2000"]);
    assert_answer(&edge.cli(&["apply", &large, "--confirm", "1h"]), 0, &[]);
    assert_answer(&edge.cli(&["confirm"]), 0, &[]);
    assert_eq!(in_force(&edge), 2000);
    let larger = file(&edge, "larger.toml", &format!("{comments}{line}{line}{}", packets(2000)));
    assert_answer(&edge.cli(&["apply", &larger]), 2, &["larger.toml", "at most 16777216 bytes"]);
}

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
    // It hangs up on idle clients; one that is stopped does not, and the kernel connects them all the same.
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

const COMMENTED: &str = "# Ours. Ask before you change it.\n[source]\nlimits = [\n  \"1000 packets/s\", # ticket 4711\n  \
                         \"100 syns/s\",\n]\n";

#[test]
fn a_limit_is_saved_into_the_file_with_every_comment_in_place() {
    let edge = Edge::new();
    let daemon = edge.start(COMMENTED);
    fs::set_permissions(edge.policy(), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(edge.policy(), Some(65534), Some(65534)).unwrap();
    let saved = edge.cli(&["limit", "set", "source.packets", "2000 packets/s burst 4000", "--save"]);
    assert_answer(
        &saved,
        0,
        &["source.packets is 2000 packets/s burst 4000 from now on; written into", "policy.toml"],
    );
    let expected = COMMENTED.replace("\"1000 packets/s\"", "\"2000 packets/s burst 4000\"");
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), expected);
    let metadata = fs::metadata(edge.policy()).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid(), metadata.gid()), (0o640, 65534, 65534));
    assert_eq!((in_force(&edge), edge.json(&["status"])["policy_changed"].as_bool()), (2000, Some(false)));
    // One that is not there yet.
    assert_answer(&edge.cli(&["limit", "set", "source.bytes", "40 Mbit/s", "--save"]), 0, &[]);
    let expected = expected.replace("\"100 syns/s\"", "\"100 syns/s\", \"40 Mbit/s\"");
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), expected);
    // Tried first, then kept.
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "3000/s"]), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "3000/s", "--save"]), 0, &[]);
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 3000, "a restart reads what was saved");
}

#[test]
fn a_limit_is_not_saved_over_one_that_somebody_else_has_changed() {
    let edge = Edge::new();
    let _daemon = edge.start(COMMENTED);
    let set = |rate: &str| edge.cli(&["limit", "set", "source.packets", rate, "--save"]);
    let theirs = COMMENTED.replace("1000 packets/s", "1234 packets/s");
    edge.write_policy(&theirs);
    let why = &[
        "policy.toml has \"1234 packets/s burst 1234\"",
        "what would be replaced is \"1000 packets/s burst 1000\"",
        "SIGHUP",
    ];
    assert_answer(&set("2000/s"), 2, why);
    edge.write_policy("broken");
    assert_answer(&set("2000/s"), 2, &["policy.toml:1:"]);
    fs::remove_file(edge.policy()).unwrap();
    assert_answer(&set("2000/s"), 2, &["cannot read the policy"]);
    assert!(!edge.policy().exists() && in_force(&edge) == 1000, "nothing was half done");
    // A limit that would make the file a bad one can be set, and cannot be saved.
    edge.write_policy("[source]\nlimits = [\"1000 packets/s\", \"20000 packets/min burst 2000\"]\n");
    assert_answer(&set("100/s burst 200"), 2, &["not written", "never decides"]);
    // What else has changed in the file stays there, and is not put in force by this.
    edge.write_policy(&COMMENTED.replace("100 syns/s", "7 syns/s"));
    assert_answer(&set("2000/s"), 0, &[]);
    assert!(fs::read_to_string(edge.policy()).unwrap().contains("7 syns/s"));
    assert_eq!(edge.json(&["limit", "get", "source.syns"])["amount"], 100);
}

#[test]
fn a_limit_of_an_applied_policy_is_saved_into_the_applied_file() {
    let edge = Edge::new();
    let daemon = edge.start(&packets(1000));
    let other = file(&edge, "other.toml", COMMENTED);
    assert_answer(&edge.cli(&["apply", &other]), 0, &[]);
    assert_answer(&edge.cli(&["limit", "set", "source.packets", "2000/s", "--save"]), 0, &["other.toml"]);
    assert!(fs::read_to_string(&other).unwrap().contains("\"2000/s\", # ticket 4711"));
    assert_eq!(fs::read_to_string(edge.policy()).unwrap(), packets(1000), "the other file is untouched");
    daemon.kill_9();
    let _daemon = edge.start_again();
    assert_eq!(in_force(&edge), 2000);
}
