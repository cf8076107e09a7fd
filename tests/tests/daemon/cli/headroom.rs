//! Headroom of a running daemon, with readings made up in a directory that it takes for `/proc`.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::stdout,
    daemon::{Daemon, Edge},
    netns::EDGE,
};
use serde_json::Value;

use super::{POLICY, status::http_get};

/// A directory of files like those of the kernel under /proc.
struct Proc(PathBuf);

impl Proc {
    fn new(edge: &Edge) -> Self {
        let dir = edge.dir().join("proc");
        for below in ["pressure", "net"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        Self(dir)
    }

    /// In one step: the daemon must never read half a file.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join("new"), text).unwrap();
        fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
    }

    fn pressure(&self, percent: u32) {
        self.write("pressure/cpu", &format!("some avg10={percent}.00 avg60=0.00 avg300=0.00 total=1\n"));
    }

    fn backlog(&self, packets: u32) {
        self.write("net/softnet_stat", &format!("9 0 3 0 0 0 0 0 0 0 0 {packets:08x} 00000000\n"));
    }

    /// Starts a daemon that reads these files.
    fn start(&self, edge: &Edge) -> Daemon {
        self.start_with(edge, &format!("{POLICY}[listen]\nmetrics = \"127.0.0.1:9464\"\n"))
    }

    fn start_with(&self, edge: &Edge, policy: &str) -> Daemon {
        edge.write_policy(policy);
        let mut command = edge.run_command();
        command.args(["--iface", EDGE, "--proc"]).arg(&self.0);
        Daemon::start(command)
    }
}

/// Waits until the status is as wanted, and says how long that took.
fn wait_for(edge: &Edge, what: &str, wanted: impl Fn(&Value) -> bool) -> Duration {
    let began = Instant::now();
    loop {
        let status = edge.json(&["status"]);
        if wanted(&status) {
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{what} did not come: {status}");
    }
}

fn headroom_is(word: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["headroom"] == word
}

fn assert_metrics(edge: &Edge, headroom: u32, changes: u32) {
    let text = http_get(edge, "/metrics");
    for line in
        [format!("ratelimit_headroom {headroom}\n"), format!("ratelimit_headroom_changes_total {changes}\n")]
    {
        assert!(text.contains(&line), "{line:?} is missing in: {text}");
    }
}

#[test]
fn headroom_follows_the_readings_with_hysteresis_and_each_change_is_logged_once() {
    let edge = Edge::new();
    let proc = Proc::new(&edge);
    proc.pressure(5);
    proc.backlog(0);
    proc.write("stat", "cpu0 0 0 0 100 0 0 0 0 0 0\n");
    let daemon = proc.start(&edge);
    wait_for(&edge, "the first reading", |status| {
        status["headroom"] == "yes" && status["headroom_readings"]["cpu_pressure_percent"] == 5.0
    });
    assert_metrics(&edge, 1, 0);

    proc.pressure(80);
    let took = wait_for(&edge, "the loss", headroom_is("no"));
    assert!(took >= Duration::from_millis(900), "two readings are a second apart, and this took {took:?}");
    let status = edge.json(&["status"]);
    let reason = status["headroom_reason"].as_str().unwrap();
    assert_eq!(reason, "tasks waited for a CPU 80.00 % of the time (headroom ends at 50 %)");
    assert_metrics(&edge, 0, 1);
    let text = stdout(&edge.cli(&["status"]));
    assert!(text.contains("headroom   no, for ") && text.contains(reason), "{text}");

    // Pressure goes, and something else is there that would not have taken it away, but does not give it back either.
    proc.backlog(400);
    proc.pressure(5);
    wait_for(&edge, "a reading between the marks", |status| {
        status["headroom_readings"]["backlog"] == 400
            && status["headroom_readings"]["cpu_pressure_percent"] == 5.0
    });
    proc.backlog(0);
    let took = wait_for(&edge, "headroom again", headroom_is("yes"));
    assert!(
        took >= Duration::from_millis(8_900),
        "ten calm readings take nine seconds, and this took {took:?}"
    );
    assert_metrics(&edge, 1, 2);
    let status = edge.json(&["status"]);
    assert!(status["headroom_reason"].is_null() && status["headroom_changes"] == 2, "{status}");
    assert_eq!(status["policy_generation"], 1, "no limit is elastic, so nothing is enforced again");

    daemon.wait_for_log("headroom is back");
    let log = daemon.log();
    assert_eq!(log.matches(&format!("warning: headroom lost: {reason}\n")).count(), 1, "{log}");
    assert_eq!(log.matches("headroom is back: 10 calm readings").count(), 1, "{log}");
    let lines = log.lines().filter(|line| line.contains("headroom")).count();
    assert_eq!(lines, 2, "nothing else is said of it: {log}");
}

#[test]
fn files_that_are_missing_or_malformed_are_noted_once_and_without_any_there_is_no_headroom() {
    let edge = Edge::new();
    let proc = Proc::new(&edge);
    proc.write("net/softnet_stat", "who knows\n");
    let daemon = proc.start(&edge);
    wait_for(&edge, "the loss", headroom_is("no"));
    let status = edge.json(&["status"]);
    assert_eq!(status["headroom_reason"], "nothing of the host's load can be measured");
    let notes: Vec<&str> =
        status["headroom_notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(
        notes[2].ends_with("line 1 has \"who\", where a hexadecimal number of 32 bits should be"),
        "{notes:?}"
    );
    notes.iter().for_each(|note| daemon.wait_for_log(note));
    let log = daemon.log();
    for note in notes {
        assert_eq!(log.matches(note).count(), 1, "{note:?} in {log}");
    }
    proc.backlog(3);
    wait_for(&edge, "a reading", |status| status["headroom_readings"]["backlog"] == 3);
    let left = edge.json(&["status"])["headroom_notes"].as_array().unwrap().len();
    assert_eq!(left, 2, "what is measured again is no note");
}

#[test]
fn an_elastic_limit_loses_its_margin_with_the_headroom_and_keeps_what_was_spent() {
    let edge = Edge::new();
    let client = "10.99.0.2".parse().unwrap();
    edge.wire.add_source(client);
    let proc = Proc::new(&edge);
    proc.pressure(5);
    proc.backlog(0);
    proc.write("stat", "cpu0 0 0 0 100 0 0 0 0 0 0\n");
    let policy = "[source]\ngate = false\nladder = false\nlimits = [\"40 packets/day elastic 50%\"]\n";
    let _daemon = proc.start_with(&edge, policy);
    wait_for(&edge, "headroom", headroom_is("yes"));
    let socket = edge.wire.as_net(|| std::net::UdpSocket::bind("10.99.0.2:0").unwrap());
    let send = |count: u32| {
        for _ in 0..count {
            socket.send_to(b"hello", (ratelimit_tests::netns::EDGE_V4, 9)).unwrap();
        }
    };
    // Some above the limit and within the margin, whatever else a socket sends meanwhile.
    send(50);
    let margin = edge.passed("soft_margin");
    assert!(margin > 0 && edge.dropped("limit_packets") == 0, "{margin}");
    proc.pressure(90);
    wait_for(&edge, "the loss", |status| status["headroom"] == "no" && status["policy_generation"] == 2);
    send(5);
    assert_eq!(edge.passed("soft_margin"), margin, "no margin any more");
    assert!(edge.dropped("limit_packets") >= 5, "and the limit itself has been spent");
}
