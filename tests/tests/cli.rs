//! Every verb of the command line, its exit codes and its sentences.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use ratelimit_tests::{
    bpffs::Scratch,
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, run},
};
use ratelimit_user::{
    dataplane::{kernel, pin::PinDir, probe},
    serve::control,
};

const POLICY: &str = "[source]\nlimits = [\"5000 packets/s burst 10000\", \"100 syns/s\"]\n";
/// Somebody who is not root.
const NOBODY: &str = "65534";

fn ratelimit(words: &[&str]) -> Output {
    Command::new(binary("ratelimit")).args(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The binary where somebody who is not root can execute it. By another process: a file that this one had open for writing
/// could not be executed while any thread here forks.
fn copy_of_binary(dir: &Path) -> PathBuf {
    let copy = dir.join("ratelimit");
    run(Command::new("cp").arg(binary("ratelimit")).arg(&copy));
    copy
}

/// Exit code and one sentence that has these words in it.
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

/// `ratelimit run` that must fail, and must leave nothing behind.
fn assert_run_refused(edge: &Edge, words: &[&str], code: i32, sentence: &[&str]) {
    let output = edge.run_command().args(words).output().unwrap();
    assert_refused(&output, code, sentence);
    assert!(!stdout(&output).contains("ready"));
    assert!(pins(edge).is_empty(), "left behind: {:?}", pins(edge));
    assert!(!edge.state().join("control.sock").exists());
    assert!(!attached(edge), "a program was left on the interface");
}

/// Everything pinned, as paths below the pin directory.
fn pins(edge: &Edge) -> Vec<String> {
    let output = Command::new("find").arg(edge.pin()).args(["-type", "f"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn attached(edge: &Edge) -> bool {
    let output = run(edge.wire.on_edge("ip").args(["link", "show", "dev", EDGE]));
    stdout(&output).contains("xdp")
}

#[test]
fn check_needs_no_root_and_says_what_it_understood() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("policy.toml");
    fs::write(&file, POLICY).unwrap();
    let world = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scratch.dir(), world).unwrap();
    let copy = copy_of_binary(scratch.dir());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("policy.toml: ok"));
    assert!(stdout(&output).contains("source.packets: 5000 packets/s burst 10000"));
    assert!(stdout(&output).contains("source.syns: 100 syns/s burst 100"));
}

#[test]
fn check_reports_every_problem_of_a_file_at_once_with_line_and_column() {
    let scratch = Scratch::new();
    let file = scratch.dir().join("bad.toml");
    fs::write(
        &file,
        "colour = \"blue\"\n[source]\nlimits = [\"0 packets/s\", \"10 furlongs/s\"]\nipv6_prefix = 129\n",
    )
    .unwrap();
    let output = ratelimit(&["check", file.to_str().unwrap()]);
    assert_refused(
        &output,
        2,
        &[
            "bad.toml:1:1:",
            "colour",
            "bad.toml:3:11:",
            "rate 0",
            "bad.toml:3:30:",
            "furlongs",
            "bad.toml:4:15:",
            "129",
        ],
    );
}

#[test]
fn a_policy_file_that_is_not_there_or_not_text_is_a_bad_file() {
    let scratch = Scratch::new();
    let missing = scratch.dir().join("missing.toml");
    assert_refused(&ratelimit(&["check", missing.to_str().unwrap()]), 2, &["missing.toml"]);
    let binary_file = scratch.dir().join("binary.toml");
    fs::write(&binary_file, [0xff, 0xfe, 0x00]).unwrap();
    assert_refused(&ratelimit(&["check", binary_file.to_str().unwrap()]), 2, &["binary.toml", "UTF-8"]);
}

#[test]
fn wrong_usage_exits_with_two() {
    for words in [
        &["frobnicate"][..],
        &[],
        &["run"],
        &["block", "add"],
        &["status", "--output", "xml"],
        &["limit", "set", "source.packets"],
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
        &["confirm"],
        &["rollback"],
    ] {
        assert_refused(&edge.cli(words), 3, &["no daemon reachable at", "control.sock", "ratelimit run"]);
    }
}

#[test]
fn run_refuses_what_cannot_work_and_leaves_nothing_behind() {
    let edge = Edge::new();
    edge.write_policy("[source]\nlimits = [\"0 packets/s\"]\n");
    assert_run_refused(&edge, &["--iface", EDGE], 2, &["policy.toml:2:11:", "rate 0"]);
    edge.write_policy(POLICY);
    assert_run_refused(&edge, &[], 2, &["no interface to guard", "--iface"]);
    assert_run_refused(&edge, &["--iface", "nope0"], 2, &["\"nope0\" does not exist", EDGE]);
    assert_run_refused(&edge, &["--iface", EDGE, "--iface", "nope0"], 2, &["\"nope0\" does not exist"]);
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
    fs::set_permissions(edge.dir(), fs::Permissions::from_mode(0o755)).unwrap();
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
fn a_foreign_program_is_named_and_left_alone() {
    let edge = Edge::new();
    let foreign = Edge::new();
    // Any program that is not pinned under this pin directory is a stranger, even one of our own.
    foreign.write_policy(POLICY);
    let mut command = edge.wire.on_edge(binary("ratelimit"));
    command.arg("run").arg("--policy").arg(foreign.policy()).args(["--iface", EDGE]);
    command.arg("--state").arg(foreign.state()).arg("--pin").arg(foreign.pin());
    let _stranger = Daemon::start(command);
    edge.write_policy(POLICY);
    let output = edge.run_command().args(["--iface", EDGE]).output().unwrap();
    assert_refused(&output, 5, &["already runs the XDP program \"ratelimit_frags\"", "left alone"]);
    assert!(pins(&edge).is_empty());
    assert!(attached(&edge), "the stranger still runs");
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
fn blocks_that_ran_out_are_removed_from_the_kernel() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "192.0.2.1", "--for", "1ms"]).status.success());
    assert!(edge.cli(&["block", "add", "192.0.2.2"]).status.success());
    daemon.kill_9();
    // A starting daemon sweeps at once.
    let _daemon = edge.start(POLICY);
    let release = probe::require_kernel(&probe::kernel_release()).unwrap();
    let (_, maps) = kernel::load(Some(&PinDir::new(edge.pin())), 262_144, release).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while maps.lists().unwrap().len() > 1 {
        assert!(Instant::now() < deadline, "{:?}", maps.lists());
    }
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["prefix"], "192.0.2.2/32");
}

#[test]
fn a_request_without_an_end_is_refused_before_it_fills_the_memory() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let mut stream = UnixStream::connect(edge.state().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // More than is read, no end of line, and the connection stays open.
    let most = control::MAX_REQUEST;
    stream.write_all(&vec![b'x'; most as usize]).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.contains(&format!("request is longer than {most} bytes")), "{answer}");
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
fn status_tells_mode_policy_table_and_pins() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let status = edge.json(&["status"]);
    assert_eq!(status["interfaces"][0]["name"], EDGE);
    assert_eq!(status["interfaces"][0]["mode"], "native");
    assert_eq!(status["policy_generation"], 1);
    assert_eq!(status["table_capacity"], 262_144);
    assert_eq!(status["pid"], daemon.pid());
    let text = stdout(&edge.cli(&["status"]));
    for word in ["edge0: native", "generation 1", "of 262144", "0 blocked, 0 allowed"] {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn stats_has_the_documented_shape() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let stats = edge.json(&["stats"]);
    for field in ["passed_packets", "dropped_packets", "passed_bytes", "dropped_bytes"] {
        assert!(stats["totals"][field].is_u64(), "{field}: {stats}");
    }
    for reason in ["blocked", "limit_packets", "limit_bytes", "limit_syns", "truncated"] {
        assert_eq!(stats["drops_by_reason"][reason], 0, "{reason}");
    }
    assert!(stats["services"].is_array() && stats["users"].is_array());
    assert!(stdout(&edge.cli(&["stats"])).starts_with("verdict  reason"));
}

#[test]
fn blocks_are_added_listed_changed_and_removed() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    let added = edge.cli(&["block", "add", "203.0.113.0/24", "--for", "10m", "--reason", "syn flood"]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stdout(&added).contains("blocked 203.0.113.0/24 for 600 s"));
    assert!(edge.cli(&["block", "add", "2001:db8:bad::/48"]).status.success());
    let blocks = edge.json(&["block", "list"])["blocks"].clone();
    assert_eq!(blocks.as_array().unwrap().len(), 2, "{blocks}");
    assert_eq!(blocks[0]["prefix"], "203.0.113.0/24");
    assert!((590..=600).contains(&blocks[0]["seconds_left"].as_u64().unwrap()));
    assert_eq!(blocks[0]["reason"], "syn flood");
    assert_eq!(blocks[1]["seconds_left"], serde_json::Value::Null);
    assert!(stdout(&edge.cli(&["block", "list"])).contains("for good"));
    // Again, with another lifetime: changed, not doubled.
    assert!(edge.cli(&["block", "add", "203.0.113.0/24"]).status.success());
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 2);
    // They outlive the daemon.
    daemon.kill_9();
    let _daemon = edge.start(POLICY);
    assert_eq!(edge.json(&["status"])["policy_generation"], 2, "policies are counted through restarts");
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 2);
    assert!(edge.cli(&["block", "del", "203.0.113.0/24"]).status.success());
    assert_refused(
        &edge.cli(&["block", "del", "203.0.113.0/24"]),
        1,
        &["203.0.113.0/24 is not on the block list"],
    );
    assert_eq!(edge.json(&["block", "list"])["blocks"].as_array().unwrap().len(), 1);
}

#[test]
fn removing_a_block_inside_a_wider_one_says_so() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "203.0.113.0/24"]).status.success());
    assert!(edge.cli(&["block", "add", "203.0.113.9"]).status.success());
    let removed = edge.cli(&["block", "del", "203.0.113.9"]);
    assert!(stdout(&removed).contains("203.0.113.0/24 still blocks it"), "{}", stdout(&removed));
}

#[test]
fn the_allow_list_is_added_to_listed_and_removed_from() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert!(edge.cli(&["allow", "add", "198.51.100.7"]).status.success());
    assert!(edge.cli(&["allow", "add", "2001:db8::/32"]).status.success());
    assert_eq!(
        edge.json(&["allow", "list"])["allows"],
        serde_json::json!(["198.51.100.7/32", "2001:db8::/32"])
    );
    let both = edge.cli(&["block", "add", "198.51.100.7"]);
    assert!(stdout(&both).contains("on the allow list too, which wins"), "{}", stdout(&both));
    assert!(edge.cli(&["allow", "del", "198.51.100.7"]).status.success());
    assert_refused(&edge.cli(&["allow", "del", "198.51.100.7"]), 1, &["is not on the allow list"]);
    assert_eq!(
        edge.json(&["block", "list"])["blocks"][0]["prefix"],
        "198.51.100.7/32",
        "the block is untouched"
    );
}

#[test]
fn bad_prefixes_lifetimes_and_reasons_are_refused_with_what_would_be_right() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let long = "x".repeat(65);
    for (words, sentence) in [
        (&["block", "add", "203.0.113.7/24"][..], &["203.0.113.0/24"][..]),
        (&["block", "add", "203.0.113.0/33"], &["33"]),
        (&["block", "add", "example.com"], &["example.com"]),
        (&["block", "add", "::ffff:192.0.2.1"], &["192.0.2.1"]),
        (&["allow", "add", "2001:db8::1/48"], &["2001:db8::/48"]),
        (&["block", "add", "192.0.2.1", "--for", "10"], &["--for", "10"]),
        (&["block", "add", "192.0.2.1", "--for", "0s"], &["--for"]),
        (&["block", "add", "192.0.2.1", "--reason", &long], &["65 bytes", "at most 64"]),
    ] {
        assert_refused(&edge.cli(words), 2, sentence);
    }
    assert_eq!(edge.json(&["block", "list"])["blocks"], serde_json::json!([]), "nothing was half done");
}

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
}

#[test]
fn the_control_socket_is_for_its_owner_and_survives_nonsense() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let socket = edge.state().join("control.sock");
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(edge.state()).unwrap().mode() & 0o777, 0o700);
    let huge = vec![b'x'; 100_000];
    for nonsense in [&b"\n"[..], b"{}\n", b"{\"verb\":\"explode\"}\n", b"\xff\xfe\n", &huge] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The daemon may hang up on the huge one before it has been sent.
        let _cut = stream.write_all(nonsense);
        let mut answer = String::new();
        let _cut = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("\"code\":\"usage\""), "{answer}");
    }
    assert!(edge.cli(&["status"]).status.success(), "it still answers");
}

#[test]
fn somebody_else_is_refused_by_credentials_even_if_the_socket_were_open() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    // Open every door that file modes could close.
    fs::set_permissions(edge.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(edge.state(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(edge.state().join("control.sock"), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = copy_of_binary(edge.dir());
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(copy)
        .args(["status", "--state"])
        .arg(edge.state())
        .output()
        .unwrap();
    assert_refused(&output, 4, &["only root and the daemon's own user"]);
}

#[test]
fn a_policy_on_trial_is_shown_as_one_and_its_services_are_counted_by_name() {
    let edge = Edge::new();
    let service =
        "[[service]]\nname = \"dns\"\nmatch = { protocol = \"udp\", ports = [53] }\non_limit = \"monitor\"\n";
    let _daemon = edge.start(&format!("{POLICY}{service}"));
    let status = edge.json(&["status"]);
    assert_eq!(status["warnings"][0], "service dns is on trial: its limits drop nothing");
    let stats = edge.json(&["stats"]);
    assert_eq!(stats["services"][1]["service"], "dns", "{stats}");
    assert!(stats["would_drop_by_reason"].as_object().unwrap().is_empty(), "{stats}");
    edge.write_policy(&format!("mode = \"monitor\"\n{POLICY}"));
    let file = edge.policy();
    assert!(edge.cli(&["apply", file.to_str().unwrap()]).status.success());
    let status = edge.json(&["status"]);
    assert!(status["warnings"][0].as_str().unwrap().contains("NOTHING IS DROPPED"), "{status}");
}

#[test]
fn metrics_pass_promtool_and_count_what_stats_counts() {
    let edge = Edge::new();
    run(edge.wire.on_edge("ip").args(["link", "set", "lo", "up"]));
    let _daemon = edge.start(&format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"));
    assert!(edge.cli(&["block", "add", "192.0.2.1"]).status.success());
    let body = http_get(&edge, "/metrics");
    let (head, text) = body.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for line in [
        "ratelimit_packets_total{reason=\"conforming\",service=\"\",verdict=\"pass\"}",
        "ratelimit_bytes_total{reason=\"limit_packets\",service=\"\",verdict=\"drop\"} 0",
        "ratelimit_table_capacity 262144",
        "ratelimit_attached{interface=\"edge0\",mode=\"native\"} 1",
        "ratelimit_policy_generation 1",
        "ratelimit_listed_prefixes{list=\"block\"} 1",
        "ratelimit_build_info{abi=",
    ] {
        assert!(text.contains(line), "{line:?} is missing in: {text}");
    }
    // The numbers are those of `stats`; traffic of the test's own wire may come in between, so they may only grow.
    let stats = edge.json(&["stats"]);
    let sample = |name: &str, reason: &str, verdict: &str| -> u64 {
        let start = format!("{name}{{reason=\"{reason}\",service=\"\",verdict=\"{verdict}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    };
    for count in stats["reasons"].as_array().unwrap() {
        let (reason, verdict) = (count["reason"].as_str().unwrap(), count["verdict"].as_str().unwrap());
        for (name, field) in [("ratelimit_packets_total", "packets"), ("ratelimit_bytes_total", "bytes")] {
            let (shown, later) = (sample(name, reason, verdict), count[field].as_u64().unwrap());
            assert!(shown <= later, "{name} {reason}: {shown}, and later {later}");
            let floor =
                if field == "bytes" { sample("ratelimit_packets_total", reason, verdict) * 14 } else { 0 };
            assert!(shown >= floor, "{name} {reason}: {shown} is too little for that many frames");
        }
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    assert!(verdict.status.success() && verdict.stderr.is_empty(), "{}", stderr(&verdict));
    assert!(http_get(&edge, "/elsewhere").starts_with("HTTP/1.1 404"));
}

/// One request from inside the edge host.
fn http_get(edge: &Edge, path: &str) -> String {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    stdout(&run(edge.wire.on_edge("bash").args(["-c", &script])))
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
    let strangers = edge.pin().join("strangers");
    fs::create_dir(&strangers).unwrap();
    assert!(detach(&edge.pin()).status.success());
    assert!(strangers.exists() && pins(&edge).is_empty());
    assert_refused(&detach(&edge.dir().join("nowhere")), 1, &["nothing to detach"]);
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
fn a_start_that_fails_leaves_the_policy_in_force_as_it_was() {
    let edge = Edge::new();
    edge.start("[source]\nlimits = [\"7 packets/s\"]\n").kill_9();
    edge.write_policy("[source]\nlimits = [\"1000000 packets/s\"]\n");
    let output =
        edge.run_command().args(["--iface", EDGE, "--iface", "lo", "--require-native"]).output().unwrap();
    assert_refused(&output, 5, &["\"lo\" cannot run XDP in native mode"]);
    let release = probe::require_kernel(&probe::kernel_release()).unwrap();
    let (_, maps) = kernel::load(Some(&PinDir::new(edge.pin())), 262_144, release).unwrap();
    let policy = maps.policy().unwrap();
    assert_eq!(policy.generation, 1);
    assert_eq!(policy.source.set.limits[0].cost_fp, 256_000_000_000_u64.div_ceil(7));
    assert!(attached(&edge), "edge0 is guarded as before");
}

#[test]
fn a_link_of_another_network_namespace_is_left_alone() {
    let (edge, other) = (Edge::new(), Edge::new());
    edge.start(POLICY).kill_9();
    // The same pin directory, seen from a host whose edge0 is another interface.
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
fn detach_does_not_take_a_busy_daemon_for_an_absent_one() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    daemon.signal("STOP");
    let output = edge.cli(&["detach"]);
    let still_attached = attached(&edge);
    daemon.signal("CONT");
    assert_refused(&output, 3, &["no daemon reachable", "control.sock"]);
    assert!(still_attached, "its pins were left alone");
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
fn a_choice_that_locks_the_operator_out_comes_with_a_warning() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    assert_refused(
        &edge.cli(&["block", "add", "::/0"]),
        2,
        &["fd00:99::1 is this host's own address", "--force"],
    );
    let everybody = edge.cli(&["block", "add", "::/0", "--for", "1s", "--force"]);
    assert!(stdout(&everybody).contains("your own connection included"), "{}", stdout(&everybody));
    let escape = edge.cli(&["block", "add", "192.0.2.1", "--reason", "red \u{1b}[31malert"]);
    assert_refused(&escape, 2, &["control characters"]);
}
