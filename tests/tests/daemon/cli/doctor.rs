//! `ratelimit doctor` on interfaces that are really there.

use std::process::Command;

use ratelimit_tests::{
    answer::{assert_answer, assert_refused, stdout},
    daemon::{Edge, binary},
    netns::{EDGE, NET, run},
    redis::{Options, Redis},
    tun::Tun,
};
use serde_json::Value;

use super::{NOBODY, POLICY, attached, copy_of_binary};

/// What was found of one check, on one interface or on the host.
fn finding<'a>(answer: &'a Value, interface: Option<&str>, check: &str) -> &'a Value {
    let all = answer["findings"].as_array().unwrap();
    let is_it = |one: &&Value| one["check"] == check && one["interface"].as_str() == interface;
    all.iter().find(is_it).unwrap_or_else(|| panic!("{check} of {interface:?} is not in {answer:#}"))
}

fn assert_grade(answer: &Value, interface: &str, check: &str, grade: &str, words: &str) {
    let finding = finding(answer, Some(interface), check);
    assert_eq!(finding["grade"], grade, "{finding}");
    assert!(finding.to_string().contains(words), "{words:?} is not in {finding}");
}

#[test]
fn links_of_every_kind_are_told_apart_and_nothing_is_attached() {
    let edge = Edge::new();
    let _tun = Tun::new(&edge.wire, "tun0", "10.98.0.1/24");
    let ip = |words: &[&str]| run(edge.wire.on_edge("ip").args(words));
    ip(&["link", "add", "br0", "type", "bridge"]);
    ip(&["link", "add", "port0", "type", "veth", "peer", "name", "port1"]);
    ip(&["link", "set", "port0", "master", "br0"]);
    let names = [EDGE, "tun0", "br0", "port0"];
    let words: Vec<&str> =
        ["doctor"].into_iter().chain(names.iter().flat_map(|name| ["--iface", name])).collect();
    let answer = edge.json(&words);
    assert_eq!(answer["version"], 1);
    assert_grade(&answer, EDGE, "link_type", "ok", "ethernet");
    assert_grade(&answer, EDGE, "native_mode", "ok", "veth");
    assert_grade(&answer, EDGE, "program", "ok", "no XDP program");
    assert_grade(&answer, EDGE, "mtu", "ok", "1500");
    assert_grade(&answer, "tun0", "link_type", "ok", "frames are IP packets");
    assert_grade(&answer, "tun0", "native_mode", "warn", "generic mode");
    assert_grade(&answer, "br0", "structure", "warn", "guard its ports");
    assert_grade(&answer, "br0", "native_mode", "warn", "generic mode");
    assert_grade(&answer, "port0", "structure", "ok", "a port of br0 (bridge)");
    assert_eq!(finding(&answer, None, "kernel")["grade"], "ok", "{answer:#}");
    assert_eq!(finding(&answer, None, "bpf_file_system")["grade"], "ok", "{answer:#}");
    assert_eq!(answer["ok"], false, "a bridge is a finding");
    assert!(!attached(&edge), "doctor looks, and attaches nothing");
    assert!(!edge.state().exists() && !edge.pin().exists(), "doctor makes nothing");
    let said = edge.cli(&["doctor", "--iface", "br0"]);
    assert_answer(&said, 1, &["warn     br0 structure", "do: guard its ports"]);
    assert_refused(&edge.cli(&["doctor", "--iface", "eth9"]), 2, &["eth9", EDGE]);
}

#[test]
fn a_daemon_its_program_and_somebody_elses_program_are_recognised() {
    let edge = Edge::new();
    let daemon = edge.start(POLICY);
    // Without a word the interfaces that are guarded are looked at.
    let answer = edge.json(&["doctor"]);
    assert_grade(&answer, EDGE, "program", "ok", "ratelimit, in native mode");
    let found = finding(&answer, None, "daemon");
    assert_eq!(found["grade"], "ok", "{found}");
    assert!(found["message"].as_str().unwrap().contains(&format!("pid {}", daemon.pid())), "{found}");
    assert_eq!(finding(&answer, None, "capabilities")["grade"], "ok", "{answer:#}");
    daemon.kill_9();
    let answer = edge.json(&["doctor"]);
    assert_eq!(finding(&answer, None, "daemon")["grade"], "warn", "{answer:#}");
    assert!(edge.cli(&["detach"]).status.success());
    // The other end of the wire has a program that is not ours. Somebody who may not ask whose it is hears that, and everything that anybody
    // may know.
    let _foreign = edge.wire.receive_replies();
    let copy = copy_of_binary(edge.dir());
    let ask = |user: &str| -> Value {
        let mut command = edge.wire.in_net("setpriv");
        command.args(["--reuid", user, "--clear-groups"]).arg(&copy).args(["doctor", "--iface", NET]);
        command.args(["--state", "/nonexistent", "--pin"]).arg(edge.pin()).args(["--output", "json"]);
        serde_json::from_str(&stdout(&command.output().unwrap())).unwrap()
    };
    assert_grade(&ask("0"), NET, "program", "fail", "ip link set dev net0 xdp off");
    let answer = ask(NOBODY);
    assert_grade(&answer, NET, "program", "unknown", "only root may ask");
    assert_grade(&answer, NET, "link_type", "ok", "ethernet");
}

#[test]
fn a_store_that_evicts_and_a_store_that_is_away_are_findings() {
    let server = Redis::single(Options::default());
    let dir = std::env::temp_dir().join(format!("rlt-doctor-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("policy.toml");
    let file = file.to_str().unwrap();
    let day = "[[api]]\nname = \"a\"\nlimits = [\"5/day\"]\n";
    let ask_about = |redis: &str, further: &str| -> Value {
        std::fs::write(file, format!("{POLICY}{further}[cluster]\nredis = \"{redis}\"\n")).unwrap();
        let mut command = Command::new(binary("ratelimit"));
        command.args([
            "doctor",
            "--iface",
            "lo",
            "--policy",
            file,
            "--state",
            "/nonexistent",
            "--output",
            "json",
        ]);
        serde_json::from_str(&stdout(&command.output().unwrap())).unwrap()
    };
    let ask = |redis: &str| ask_about(redis, "");
    let volatile = ask_about(&server.url(), day);
    assert_eq!(finding(&volatile, None, "store")["grade"], "warn", "{volatile:#}");
    assert!(finding(&volatile, None, "store").to_string().contains("appendonly yes"), "{volatile:#}");
    server.ask(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = ask_about(&server.url(), day);
    assert!(finding(&snapshots, None, "store").to_string().contains("save points"), "{snapshots:#}");
    server.ask(&["CONFIG", "SET", "save", ""]);
    let good = ask(&server.url());
    assert_eq!(finding(&good, None, "store")["grade"], "ok", "{good:#}");
    server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let evicting = ask(&server.url());
    assert_eq!(finding(&evicting, None, "store")["grade"], "fail", "{evicting:#}");
    assert!(finding(&evicting, None, "store").to_string().contains("noeviction"), "{evicting:#}");
    let url = server.url();
    drop(server);
    let away = ask(&url);
    assert_eq!(finding(&away, None, "store")["grade"], "fail", "{away:#}");
    std::fs::remove_dir_all(dir).unwrap();
}
