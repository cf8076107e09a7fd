//! Real traffic between namespaces, through a real daemon's program, counted by a real receiver.

use std::time::{Duration, Instant};

use ratelimit_tests::{
    daemon::binary,
    netns::{EDGE_V4, EDGE_V6},
    traffic::{PORT, Sink, edge_with_sources, flood, sent, socket_address},
};
use serde_json::Value;

const BAD: &str = "10.99.0.66";
const GOOD: &str = "10.99.0.2";

#[test]
fn one_source_at_ten_times_its_limit_is_held_to_it_and_its_neighbour_loses_nothing() {
    let edge = edge_with_sources(&[BAD, GOOD]);
    // A burst of half a second: a sender that a busy machine stops for less than that loses nothing of its rate.
    let (rate, burst, seconds) = (2_000.0, 1_000.0, 5.0);
    let _daemon = edge.start("[source]\nlimits = [\"2000 packets/s burst 1000\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V4);
    let began = Instant::now();
    let bad = flood(&edge, BAD, EDGE_V4, 20_000, seconds);
    let good = flood(&edge, GOOD, EDGE_V4, 500, seconds);
    let (offered, good_sent) = (sent(bad), sent(good));
    let took = began.elapsed().as_secs_f64();
    let (admitted, good_received) = (sink.datagrams(BAD) as f64, sink.datagrams_of(GOOD, good_sent));
    let expected = burst + rate * seconds;
    println!(
        "offered {offered}, admitted {admitted}, expected {expected}: {:+.3} %",
        (admitted / expected - 1.0) * 100.0
    );
    assert!(offered as f64 > 9.0 * rate * seconds, "only {offered} were offered");
    assert!(admitted >= expected * 0.98, "{admitted} admitted of {expected}");
    assert!(admitted <= expected * 1.02, "{admitted} admitted of {expected}");
    assert!(admitted <= burst + rate * took + 1.0, "the strict bound, over the time it really took");
    assert_eq!(good_received, good_sent, "the neighbour within its limit loses nothing");
}

#[test]
fn ipv6_rotation_inside_one_slash_64_is_one_source() {
    let sources: Vec<String> = (1..=20).map(|host| format!("fd00:99:1:1:{host:x}::{host:x}")).collect();
    let other = "fd00:99:1:2::1";
    let mut all: Vec<&str> = sources.iter().map(String::as_str).collect();
    all.push(other);
    let edge = edge_with_sources(&all);
    // Neighbour discovery and the like take a few; nothing refills during the test.
    let _daemon = edge.start("[source]\nlimits = [\"1000 packets/day\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V6);
    for source in &sources {
        sent(flood(&edge, source, EDGE_V6, 1_000, 0.2));
    }
    let of_another = sent(flood(&edge, other, EDGE_V6, 1_000, 0.2));
    assert_eq!(sink.datagrams_of(other, of_another), of_another, "another /64 is another source");
    let admitted: u64 = sources.iter().map(|source| sink.datagrams(source)).sum();
    assert!((990..=1_000).contains(&admitted), "{admitted} of 4000 admitted, the limit is 1000 for the /64");
}

#[test]
fn a_block_ends_by_itself_even_with_no_daemon_alive() {
    let edge = edge_with_sources(&[BAD]);
    let daemon = edge.start("[source]\nlimits = [\"1000000 packets/s\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V4);
    assert!(edge.cli(&["block", "add", "10.99.0.64/28", "--for", "2s"]).status.success());
    let blocked_at = Instant::now();
    daemon.kill_9();
    let first = sent(flood(&edge, BAD, EDGE_V4, 500, 0.5));
    assert!(blocked_at.elapsed() < Duration::from_secs(2), "this machine is too slow for the test");
    assert_eq!(sink.datagrams(BAD), 0, "{first} were sent into the block");
    // Send until one arrives: no guess about when the two seconds are over.
    while sink.datagrams(BAD) == 0 {
        sent(flood(&edge, BAD, EDGE_V4, 1_000, 0.05));
        assert!(blocked_at.elapsed() < Duration::from_secs(20), "the block never ended");
    }
    assert!(
        blocked_at.elapsed() >= Duration::from_millis(1_950),
        "it ended early: {:?}",
        blocked_at.elapsed()
    );
}

#[test]
fn killing_the_daemon_keeps_the_limit_and_a_restart_keeps_the_buckets() {
    let edge = edge_with_sources(&[BAD]);
    let policy = "[source]\nlimits = [\"300 packets/day\"]\n";
    let daemon = edge.start(policy);
    let mut sink = Sink::start(&edge, EDGE_V4);
    let spent = sent(flood(&edge, BAD, EDGE_V4, 2_000, 0.1));
    assert!(spent >= 150, "only {spent} were sent");
    daemon.kill_9();
    sent(flood(&edge, BAD, EDGE_V4, 2_000, 0.5));
    let without_daemon = sink.datagrams(BAD);
    assert!((290..=300).contains(&without_daemon), "{without_daemon} of 300 admitted with no daemon alive");
    let daemon = edge.start(policy);
    daemon.wait_for_log("program replaced in place, buckets kept");
    sent(flood(&edge, BAD, EDGE_V4, 2_000, 0.5));
    assert_eq!(sink.datagrams(BAD), without_daemon, "a restart must not hand out a fresh burst");
}

#[test]
fn no_packet_passes_unlimited_while_the_daemon_is_replaced_again_and_again() {
    let edge = edge_with_sources(&[BAD]);
    let policy = "[source]\nlimits = [\"100 packets/day\"]\n";
    let mut daemon = edge.start(policy);
    let mut sink = Sink::start(&edge, EDGE_V4);
    let running = flood(&edge, BAD, EDGE_V4, 20_000, 4.0);
    for _ in 0..5 {
        daemon.kill_9();
        daemon = edge.start(policy);
    }
    let offered = sent(running);
    let admitted = sink.datagrams(BAD);
    assert!(admitted <= 100, "{admitted} of {offered} passed");
    assert_eq!(edge.passed("unlimited"), 0);
    drop(daemon);
}

#[test]
fn maps_of_another_abi_are_replaced_without_a_gap_and_the_lists_come_along() {
    let edge = edge_with_sources(&[BAD, GOOD]);
    let policy = "[source]\nlimits = [\"100 packets/day\"]\ntable_entries = 1000\n";
    let daemon = edge.start(policy);
    assert!(edge.cli(&["block", "add", "10.99.0.66", "--reason", "from before"]).status.success());
    daemon.kill_9();
    // What a daemon of an older version would have left behind.
    let current = std::fs::read_dir(edge.pin())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("abi-"))
        .unwrap();
    let old = edge.pin().join("abi-0-sources-1000");
    std::fs::rename(&current, &old).unwrap();
    let mut sink = Sink::start(&edge, EDGE_V4);
    let running = flood(&edge, BAD, EDGE_V4, 20_000, 2.0);
    let daemon = edge.start(policy);
    daemon.wait_for_log("maps of another layout found (abi 0, 1000 sources): 1 listed prefixes carried over");
    sent(running);
    sent(flood(&edge, BAD, EDGE_V4, 1_000, 0.2));
    assert_eq!(sink.datagrams(BAD), 0, "the block held throughout");
    assert!(!old.exists(), "the old maps are gone");
    assert!(current.exists(), "the new ones are pinned");
    assert_eq!(edge.json(&["block", "list"])["blocks"][0]["reason"], "from before");
    assert!(edge.dropped("blocked") > 0, "the new program counts in the new maps");
}

#[test]
fn a_larger_table_is_put_in_place_without_a_gap() {
    let edge = edge_with_sources(&[BAD]);
    let policy =
        |entries: u32| format!("[source]\nlimits = [\"100 packets/day\"]\ntable_entries = {entries}\n");
    edge.start(&policy(1_000)).kill_9();
    let _daemon = edge.start(&policy(2_000));
    let status = edge.json(&["status"]);
    assert_eq!(status["table_capacity"], 2_000);
    assert_eq!(status["interfaces"][0]["mode"], "native");
}

#[test]
fn a_good_client_gets_its_answers_while_a_flood_runs_beside_it() {
    let edge = edge_with_sources(&[BAD, GOOD]);
    let _daemon =
        edge.start("[source]\nlimits = [\"2000 packets/s burst 4000\", \"100 syns/s burst 100\"]\n");
    let _sink = Sink::start(&edge, EDGE_V4);
    let running = flood(&edge, BAD, EDGE_V4, 50_000, 3.0);
    let output = edge
        .wire
        .in_net(binary("traffic"))
        .args(["ask", "--from", GOOD, "--to", &socket_address(EDGE_V4), "--for", "2", "--every", "50"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    sent(running);
    assert!(report["ok"].as_u64().unwrap() >= 20, "{report}");
    assert_eq!(report["failed"], 0, "{report}");
    assert!(edge.dropped("limit_packets") > 10_000);
}

#[test]
fn a_jumbo_frame_on_the_wire_is_accepted_and_counted_whole() {
    let edge = edge_with_sources(&[GOOD]);
    for (side, interface) in [("edge", "edge0"), ("net", "net0")] {
        let mut command = if side == "edge" { edge.wire.on_edge("ip") } else { edge.wire.in_net("ip") };
        ratelimit_tests::netns::run(command.args(["link", "set", interface, "mtu", "9000"]));
    }
    let _daemon = edge.start("[source]\nlimits = [\"100 MB/s\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V4);
    let output = edge
        .wire
        .in_net(binary("traffic"))
        .args([
            "flood",
            "--from",
            GOOD,
            "--to",
            &socket_address(EDGE_V4),
            "--for",
            "0.2",
            "--pps",
            "200",
            "--size",
            "8900",
        ])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = report["sent"].as_u64().unwrap();
    assert_eq!(sink.datagrams_of(GOOD, frames), frames);
    let stats = edge.json(&["stats"]);
    let conforming =
        stats["reasons"].as_array().unwrap().iter().find(|r| r["reason"] == "conforming").unwrap();
    assert!(conforming["bytes"].as_u64().unwrap() >= frames * 8942, "{conforming} for {frames} frames");
    assert_eq!(edge.json(&["status"])["interfaces"][0]["mode"], "native");
}

#[test]
fn large_datagrams_of_an_honest_source_arrive_in_fragments_and_a_flood_of_them_is_held() {
    let edge = edge_with_sources(&[GOOD, BAD]);
    let _daemon = edge.start("[source]\nlimits = [\"100000 packets/s\", \"1000 fragments/s burst 1000\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V4);
    let large = |from: &str, pps: &str, seconds: &str| {
        let mut command = edge.wire.in_net(binary("traffic"));
        command.args(["flood", "--from", from, "--to", &socket_address(EDGE_V4), "--size", "8000"]);
        let output = command.args(["--pps", pps, "--for", seconds]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["sent"].as_u64().unwrap()
    };
    // Fifty datagrams of six pieces each are 300 pieces a second.
    let honest = large(GOOD, "50", "1");
    assert_eq!(
        sink.datagrams_of(GOOD, honest),
        honest,
        "every large datagram of the honest source arrives whole"
    );
    assert_eq!(edge.dropped("limit_fragments"), 0);
    large(BAD, "2000", "1");
    assert!(edge.dropped("limit_fragments") > 5_000, "{}", edge.dropped("limit_fragments"));
}

#[test]
fn untracked_sources_that_exceed_a_services_total_are_refused_and_the_attack_state_says_so() {
    let edge = edge_with_sources(&[BAD, GOOD]);
    let daemon = edge.start(&format!(
        "[source]\nlimits = [\"1000000 packets/s\"]\n[[service]]\nname = \"attacked\"\n\
         match = {{ protocol = \"udp\", ports = [{PORT}] }}\ntotal = [\"2000 packets/s burst 2000\"]\n"
    ));
    let mut sink = Sink::start(&edge, EDGE_V4);
    assert_eq!(edge.json(&["status"])["posture"], "normal");
    let began = Instant::now();
    let offered = sent(flood(&edge, BAD, EDGE_V4, 60_000, 3.0));
    let took = began.elapsed().as_secs_f64();
    daemon.wait_for_log("attack state normal -> ");
    let status = edge.json(&["status"]);
    assert_ne!(status["posture"], "normal", "{status}");
    assert!(status["posture_changes"].as_u64().unwrap() >= 1);
    let admitted = sink.datagrams(BAD) as f64;
    assert!(admitted <= 2_000.0 + 2_000.0 * took + 1.0, "{admitted} of {offered} in {took} s");
    assert!(admitted >= 0.9 * 2_000.0 * 3.0, "{admitted} of {offered} in {took} s");
    assert!(edge.dropped("service_total") > 100_000);
}
