//! `ratelimit run`: what it refuses, and what a failed start leaves behind.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use aya::maps::{Array, IterableMap as _, MapData};
use ratelimit_tests::{
    answer::{assert_answer, assert_refused, stderr},
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, run},
    redis::wait_for,
};
use ratelimit_user::dataplane::{kernel, pin::PinDir};

use super::{NOBODY, POLICY, assert_run_refused, attached, copy_of_binary, pins};

#[test]
fn run_refuses_what_cannot_work_and_leaves_nothing_behind() {
    let edge = Edge::new();
    edge.write_policy("[source]\nlimits = [\"0 packets/s\"]\n");
    assert_run_refused(&edge, &["--iface", EDGE], 2, &["policy.toml:2:11:", "rate 0"]);
    edge.write_policy(POLICY);
    assert_run_refused(&edge, &[], 2, &["no interface to guard", "--iface"]);
    assert_run_refused(&edge, &["--iface", "nope0"], 2, &["\"nope0\" does not exist", EDGE]);
    assert_run_refused(&edge, &["--iface", EDGE, "--iface", "nope0"], 2, &["\"nope0\" does not exist"]);
    assert_run_refused(&edge, &["--iface", EDGE, "--trace=all"], 2, &["'all'", "use warn (frames that are"]);
    let trace = ["--iface", EDGE, "--trace"];
    assert_run_refused(&edge, &trace, 2, &["--trace needs a kernel program", "--features trace"]);
    let words = ["--iface", EDGE, "--proc", "/nowhere"];
    assert_run_refused(&edge, &words, 2, &["--proc /nowhere is not a directory", "usually in /proc"]);
}

#[test]
fn run_without_a_bpf_file_system_says_how_to_get_one() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(edge.policy()).arg("--state").arg(edge.state());
    let output = command.arg("--pin").arg(edge.dir().join("plain")).args(["--iface", EDGE]).output().unwrap();
    assert_refused(&output, 5, &["no BPF file system", "mount -t bpf"]);
    assert!(!edge.dir().join("plain").exists());
}

#[test]
fn run_without_root_exits_with_four() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let copy = copy_of_binary(edge.dir());
    let mut command = edge.wire.on_edge("setpriv");
    command
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(&copy)
        .arg("run")
        .arg("--policy")
        .arg(edge.policy());
    let output = command.args(["--iface", EDGE, "--state"]).arg(edge.state()).output().unwrap();
    assert_refused(&output, 4, &["needs root", NOBODY]);
    assert!(!edge.state().exists(), "nothing was made");
}

#[test]
fn two_daemons_do_not_share_a_state_directory() {
    let edge = Edge::new();
    let _first = edge.start(POLICY);
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    assert_refused(&output, 2, &["another daemon runs with the state directory"]);
    assert!(edge.cli(&["status"]).status.success(), "the first one still answers");
}

#[test]
fn two_daemons_do_not_share_a_pin_directory() {
    let edge = Edge::new();
    let _first = edge.start(POLICY);
    let mut second = edge.wire.on_edge(binary("ratelimit"));
    second.arg("run").arg("--policy").arg(edge.policy()).args(["--iface", "lo"]);
    second.arg("--state").arg(edge.dir().join("state-2")).arg("--pin").arg(edge.pin());
    assert_refused(&second.output().unwrap(), 2, &["another daemon uses the pin directory"]);
    let mut detach = edge.wire.on_edge(binary("ratelimit"));
    detach.arg("detach").arg("--state").arg(edge.dir().join("state-2")).arg("--pin").arg(edge.pin());
    assert_refused(&detach.output().unwrap(), 2, &["another daemon uses the pin directory"]);
    assert!(attached(&edge));
}

#[test]
fn an_address_in_use_for_metrics_leaves_no_program_behind() {
    let edge = Edge::new();
    let _daemon = edge.start(&format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"));
    let other = Edge::new();
    // The second daemon runs in the first one's namespace, on another interface.
    other.write_policy(&format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"));
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(other.policy()).args(["--iface", "lo"]);
    command.arg("--state").arg(other.state()).arg("--pin").arg(other.pin());
    assert_refused(&command.output().unwrap(), 2, &["cannot listen for metrics on 127.0.0.1:9464"]);
    assert!(pins(&other).is_empty());
}

#[test]
fn a_start_that_fails_leaves_the_policy_in_force_as_it_was() {
    let edge = Edge::new();
    edge.start("[source]\nlimits = [\"7 packets/s\"]\n").kill_9();
    edge.write_policy("[source]\nlimits = [\"1000000 packets/s\"]\n");
    let output =
        edge.run_command().args(["--iface", EDGE, "--iface", "lo", "--require-native"]).output().unwrap();
    assert_refused(&output, 5, &["\"lo\" cannot run XDP in native mode"]);
    let (_, maps) = kernel::load(Some(&PinDir::new(edge.pin())), 262_144).unwrap();
    let policy = maps.policy().unwrap();
    assert_eq!(policy.generation, 1);
    assert_eq!(policy.source.set.limits[0].cost_fp, 256_000_000_000_u64.div_ceil(7));
    assert!(attached(&edge), "edge0 is guarded as before");
}

#[test]
fn a_start_that_fails_after_it_has_attached_takes_its_program_off_again() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "add", "second0", "type", "veth", "peer", "name", "second1"]));
    edge.start(POLICY).kill_9();
    let guarded =
        || edge.json(&["status"])["interfaces"].as_array().map_or_else(Vec::new, |all| names_of(all));
    assert_eq!(guarded(), [EDGE]);
    // Links of earlier daemons are switched after new interfaces have the program. This pin is in their place, and is none.
    let in_the_way = PinDir::new(edge.pin()).link("third0");
    let map: Array<MapData, u32> = Array::create(1, 0).unwrap();
    map.map().pin(&in_the_way).unwrap();
    // The link of edge0 is switched before the failure, so in the second round it uses the new maps, which stay beside those of before.
    for (layouts, what) in [(1, "maps are kept"), (2, "maps of another layout are there")] {
        let output = edge.run_command().args(["--iface", EDGE, "--iface", "second0"]).output().unwrap();
        assert_refused(&output, 5, &["\"third0\"", "its link"]);
        let log = stderr(&output);
        // `status` names every pin of a link, also the one that is none.
        assert_eq!(guarded(), [EDGE, "third0"], "{what}: {log}");
        assert_eq!(PinDir::new(edge.pin()).layouts().unwrap().len(), layouts, "{what}");
        if layouts == 1 {
            edge.rename_layouts(1).unwrap();
        }
    }
    fs::remove_file(in_the_way).unwrap();
    let daemon = edge.start(POLICY);
    assert_eq!(guarded(), [EDGE]);
    assert_eq!(
        PinDir::new(edge.pin()).layouts().unwrap().len(),
        1,
        "the next start goes on with the new maps"
    );
    assert!(daemon.terminate().0.success());
}

fn names_of(interfaces: &[serde_json::Value]) -> Vec<String> {
    interfaces.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_signal_during_the_start_does_not_leave_it_half_done() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    let mut command = edge.run_command();
    let child =
        command.args(["--iface", EDGE]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let socket = edge.state().join("control.sock");
    // The socket is made before the program is loaded.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !socket.exists() {
        assert!(Instant::now() < deadline);
    }
    for signal in ["HUP", "TERM"] {
        run(Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("edge0 stays protected"), "{}", stderr(&output));
    assert!(attached(&edge) && !socket.exists());
}

#[test]
fn a_broken_policy_changes_nothing_on_sighup() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    edge.write_policy("[source]\nlimits = [\"nonsense\"]\n");
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded, the old one stays in force");
    daemon.wait_for_log("policy.toml:2:11:");
    assert_eq!(edge.json(&["status"])["policy_generation"], 1);
    edge.write_policy("[source]\nlimits = [\"7 packets/s\"]\n");
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again: 1 limits in force");
    assert_eq!(edge.json(&["limit", "list"])["limits"][0]["amount"], 7);
}

#[test]
fn a_start_that_takes_longer_than_a_second_says_what_it_is_at() {
    let edge = Edge::new();
    // Nobody writes into it, so that it is read for ever.
    run(Command::new("mkfifo").arg(edge.policy()));
    let mut child = edge.run_command().args(["--iface", EDGE]).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let (time, said) = line.split_once(' ').unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
    assert_eq!(said, "ratelimit: starting for 1 s: reading the policy\n");
}

#[test]
fn a_program_of_ours_under_other_pins_is_named_with_a_cure_that_works() {
    let edge = Edge::new();
    edge.start(POLICY).kill_9();
    let other = edge.pin().with_file_name("other");
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(edge.policy()).args(["--iface", EDGE]);
    let output =
        command.arg("--state").arg(edge.dir().join("other")).arg("--pin").arg(&other).output().unwrap();
    let pin = edge.pin().display().to_string();
    let cure = format!("ratelimit detach --iface {EDGE} --pin {pin}");
    assert_refused(&output, 5, &["runs a program of ratelimit", &format!("pinned under {pin}"), &cure]);
    let words: Vec<&str> = cure.split(' ').skip(1).collect();
    let mut detach = edge.wire.on_edge(binary("ratelimit"));
    run(detach.args(words).arg("--state").arg(edge.state()));
    let daemon = Daemon::start(command);
    daemon.kill_9();
    let mut detach = edge.wire.on_edge(binary("ratelimit"));
    run(detach.arg("detach").arg("--pin").arg(&other).arg("--state").arg(edge.state()));
}

#[test]
fn after_a_sighup_that_found_a_mistake_status_does_not_promise_a_restart() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    edge.write_policy("[source]\nlimits = [\"1/fortnight\"]\n");
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded");
    let status = edge.json(&["status"]);
    let after = status["policy_after_restart"].as_str().unwrap();
    assert!(after.starts_with("a restart fails until ") && after.ends_with("could not read"), "{after}");
    let warning = status["warnings"][0].as_str().unwrap();
    assert!(warning.contains("SIGHUP did not read") && warning.contains("fortnight"), "{warning}");
    edge.write_policy(POLICY);
    daemon.signal("HUP");
    daemon.wait_for_log("policy read again");
    let status = edge.json(&["status"]);
    assert!(status["policy_after_restart"].as_str().unwrap().starts_with("a restart reads "), "{status}");
    assert!(status["warnings"].as_array().unwrap().is_empty(), "{status}");
}

#[test]
fn an_apply_makes_up_for_a_policy_file_with_a_mistake_and_the_restart_says_what_is_wrong_with_it() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    edge.write_policy("[source]\nlimits = [\"1/fortnight\"]\n");
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded");
    let other = edge.dir().join("other.toml");
    fs::write(&other, "[source]\nlimits = [\"444 packets/s\"]\n").unwrap();
    let other = other.display().to_string();
    let goes_on = "a restart goes on with it as long as ";
    // While it waits, a restart goes on with what was written down beside the file as it is.
    assert_answer(&edge.cli(&["apply", &other, "--confirm", "1h"]), 0, &["comes back"]);
    assert_answer(&edge.cli(&["rollback"]), 0, &["in force again", goes_on]);
    assert_answer(&edge.cli(&["apply", &other]), 0, &["is in force", goes_on]);
    let said = |status: &serde_json::Value| {
        let after = status["policy_after_restart"].as_str().unwrap();
        assert!(after.starts_with(goes_on), "{after}");
        let warning = status["warnings"][0].as_str().unwrap();
        assert!(warning.contains("beside it stays in force") && warning.contains("fortnight"), "{warning}");
    };
    said(&edge.json(&["status"]));
    daemon.kill_9();
    let daemon = edge.start_again();
    let status = edge.json(&["status"]);
    assert_eq!(status["policy"], other.as_str());
    said(&status);
    // And a SIGHUP that finds the mistake changes nothing of that.
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded");
    let after = edge.json(&["status"])["policy_after_restart"].as_str().unwrap().to_owned();
    assert!(after.starts_with(goes_on), "{after}");
    // The file itself, mended and applied, is what a restart reads, and nothing is wrong with it.
    edge.write_policy(POLICY);
    let reads = "a restart reads ";
    assert_answer(&edge.cli(&["apply", &edge.policy().display().to_string()]), 0, &["is in force", reads]);
    assert!(edge.json(&["status"])["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn a_pipe_for_a_policy_and_signals_that_mean_nothing_hold_up_nobody() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    fs::remove_file(edge.policy()).unwrap();
    run(Command::new("mkfifo").arg(edge.policy()));
    daemon.signal("HUP");
    daemon.wait_for_log("policy not reloaded, the old one stays in force");
    daemon.wait_for_log("it is no file");
    for name in ["USR1", "USR2"] {
        daemon.signal(name);
        daemon.wait_for_log(&format!("SIG{name} means nothing here"));
    }
    assert!(edge.cli(&["status"]).status.success());
}

#[test]
fn a_bpf_file_system_that_is_unmounted_is_said_while_the_daemon_runs_and_when_it_stops() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    run(Command::new("umount").arg("-l").arg(edge.pin().parent().unwrap()));
    daemon.wait_for_log("PROTECTION ENDS WITH THIS DAEMON: no BPF file system at");
    let warnings = edge.json(&["status"])["warnings"].to_string();
    assert!(warnings.contains("PROTECTION ENDS WITH THIS DAEMON"), "{warnings}");
    let (_, log) = daemon.terminate();
    assert!(log.contains("is NOT PROTECTED from now on") && !log.contains("stays protected"), "{log}");
}

#[test]
fn pins_that_somebody_removes_are_made_again_and_what_that_cost_is_said() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let names_in = |dir: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let layout = || {
        let found = names_in(edge.pin()).into_iter().find(|name| name != "links").expect("a layout");
        edge.pin().join(found)
    };
    // The daemon pins again what is gone while the rest is being removed, so a removal may meet a directory that is not empty.
    let remove = |dir: PathBuf| wait_for("a removal", || fs::remove_dir_all(&dir).ok());
    let all = names_in(layout());
    remove(layout());
    daemon.wait_for_log("pins of maps under");
    wait_for("all pins of maps", || (names_in(layout()) == all).then_some(()));
    assert!(!daemon.log().contains("NOT PROTECTED"), "{}", daemon.log());
    remove(edge.pin());
    daemon.wait_for_log("it is pinned and attached again, and packets have passed unlimited since");
    daemon.wait_for_log("our program is gone");
    wait_for("protection", || (edge.json(&["status"])["protected"] == true).then_some(()));
    assert!(!daemon.log().contains("in force all the time"), "{}", daemon.log());
    assert_eq!((names_in(layout()), names_in(edge.pin().join("links")).len()), (all, 1));
    daemon.kill_9();
    let daemon = edge.start(POLICY);
    daemon.wait_for_log("program replaced in place, buckets kept");
}

#[test]
fn a_control_socket_that_somebody_removes_is_made_again_and_a_daemon_without_one_is_named() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let socket = edge.state().join("control.sock");
    fs::remove_file(&socket).unwrap();
    wait_for("a socket", || edge.cli(&["block", "add", "203.0.113.7"]).status.success().then_some(()));
    daemon.wait_for_log("control.sock was removed; it is made again");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, edge.state().join(".new").exists()), (0o600, false));
    // One that cannot make it again is not taken for none.
    daemon.signal("STOP");
    fs::remove_file(&socket).unwrap();
    let process = format!("process {} runs with this directory", daemon.pid());
    assert_answer(&edge.cli(&["status"]), 0, &["NO ANSWER  a daemon runs and has no socket", &process]);
    for verb in ["status", "stats"] {
        assert_eq!(edge.json(&[verb])["daemon"], "not answering");
    }
    assert_refused(&edge.cli(&["block", "list"]), 3, &["no daemon reachable", &process]);
    daemon.signal("CONT");
    wait_for("a socket", || edge.cli(&["block", "list"]).status.success().then_some(()));
    let (status, log) = daemon.terminate();
    assert!(status.success() && !socket.exists(), "{log}");
    assert_answer(&edge.cli(&["status"]), 0, &["NO DAEMON", "ratelimit run"]);
}

#[test]
fn a_bpf_file_system_that_another_mount_namespace_keeps_holds_no_program_after_it_was_mounted_anew() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let mount = edge.pin().parent().unwrap().to_owned();
    // The file system stays mounted there, whatever is unmounted here.
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo there; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(elsewhere.stdout.take().unwrap()).read_line(&mut line).unwrap();
    run(Command::new("umount").arg("-l").arg(&mount));
    run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&mount));
    daemon.wait_for_log("was mounted anew; everything is pinned there again");
    let kept = format!("/proc/{}/root{}", elsewhere.id(), edge.pin().display());
    let left = fs::read_dir(&kept).unwrap().count();
    let detached = edge.cli(&["detach"]);
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert_eq!(left, 0, "nothing is pinned where nobody here can reach it");
    assert!(detached.status.success(), "{}", String::from_utf8_lossy(&detached.stderr));
    run(Command::new("umount").arg("-l").arg(&mount));
}

#[test]
fn a_bpf_file_system_that_is_mounted_anew_gets_every_pin_and_what_is_in_force_outlives_the_daemon() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "198.51.100.7"]).status.success());
    let mount = edge.pin().parent().unwrap().to_owned();
    run(Command::new("umount").arg("-l").arg(&mount));
    run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&mount));
    daemon.wait_for_log("was mounted anew; everything is pinned there again");
    assert!(edge.json(&["status"])["warnings"].as_array().unwrap().is_empty());
    daemon.kill_9();
    let status = edge.json(&["status"]);
    assert_eq!((&status["protected"], &status["daemon"]), (&true.into(), &"not running".into()), "{status}");
    let daemon = edge.start(POLICY);
    daemon.wait_for_log("program replaced in place, buckets kept");
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["prefix"], "198.51.100.7/32");
    // Nobody else's pins are touched: a directory that has some is left as it is.
    let elsewhere = edge.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&elsewhere));
    fs::create_dir_all(elsewhere.join("ratelimit/abi-0-sources-1")).unwrap();
    run(Command::new("mount").arg("--bind").args([&elsewhere, &mount]));
    run(Command::new("umount").arg("-l").arg(&elsewhere));
    daemon.wait_for_log("PROTECTION ENDS WITH THIS DAEMON: nothing of it is pinned under");
    assert_eq!(fs::read_dir(edge.pin()).unwrap().count(), 1);
    run(Command::new("umount").arg("-l").arg(&mount));
}
