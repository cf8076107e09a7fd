//! `ratelimit watch` on a real host, and what `explain` says of packets that were refused.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::pty::openpty;
use ratelimit_tests::{
    answer::{assert_refused, stderr},
    daemon::Edge,
    netns::{EDGE, EDGE_V4, EDGE_V6, run},
    traffic::{PORT, edge_with_sources, flood, sent},
};
use ratelimit_user::capture::Capture;
use serde_json::Value;

const BAD: &str = "10.99.0.66";
const OTHER: &str = "10.99.0.67";
const POLICY: &str = "[source]\nlimits = [\"500 packets/s burst 1000\"]\n";
/// As many callers as may watch at once.
const MAX_WATCHERS: usize = 16;

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(json).collect()
}

fn json(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("one object per line")
}

fn watching(edge: &Edge, words: &[&str]) -> Child {
    let mut command = edge.cli_command(&[&["watch"], words].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start watching")
}

/// Waits until it has shown a packet.
fn first_line(child: &mut Child) -> BufReader<ChildStdout> {
    let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert!(line.contains("limit_packets"), "{line}");
    reader
}

/// A caller that asks to watch and reads what it is told first, and then nothing more.
fn stuck(edge: &Edge) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(edge.state().join("control.sock")).unwrap();
    stream.write_all(b"{\"verb\":\"watch\"}\n").unwrap();
    let mut first = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut first).unwrap();
    (stream, first)
}

/// Fields of the packets of a capture, as Wireshark reads them.
fn as_wireshark_reads(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file)
        .args(["-n", "-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]));
    let text = String::from_utf8(run(&mut command).stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn refused_packets_open_in_wireshark_with_the_reason_as_their_comment() {
    let edge = edge_with_sources(&[BAD, OTHER]);
    let service = format!(
        "[[service]]\nname = \"game\"\nmatch = {{ protocol = \"udp\", ports = [{PORT}] }}\nper_source = [\"100 packets/s burst 100\"]\n"
    );
    let _daemon = edge.start(&format!("{POLICY}{service}"));
    let running = [flood(&edge, BAD, EDGE_V4, 2_000, 4.0), flood(&edge, OTHER, EDGE_V4, 2_000, 4.0)];
    let file = edge.dir().join("refused.pcapng");
    let words =
        ["watch", "--source", BAD, "--count", "300", "--for", "30s", "--pcap", file.to_str().unwrap()];
    let told = lines(&edge.cli(&[&words[..], &["--output", "json"]].concat()));
    let piped = edge.cli(&["watch", "--count", "20", "--for", "30s", "--pcap", "-"]);
    running.into_iter().for_each(|one| assert!(sent(one) > 0));
    assert_eq!(told.len(), 300);
    let fields =
        ["frame.comment", "frame.interface_name", "ip.src", "udp.dstport", "frame.len", "frame.time_epoch"];
    let read = as_wireshark_reads(&file, &fields);
    assert_eq!(read.len(), 300);
    for (packet, told) in read.iter().zip(&told) {
        // Fewer packets than are sampled: each of them is there, and stands for itself.
        let expected = [
            "dropped: limit_packets, service game",
            EDGE,
            BAD,
            &PORT.to_string(),
            &told["bytes"].to_string(),
        ];
        assert_eq!(packet[..5], expected);
    }
    let seconds = |packet: &[String]| packet[5].parse::<f64>().unwrap();
    assert!(read.windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1]) + 0.2), "{read:?}");
    // One source sends 2000 a second and 100 pass.
    let span = seconds(&read[299]) - seconds(&read[0]);
    assert!((0.05..1.0).contains(&span), "300 packets in {span} s");
    // What is piped is the same, and our own reader reads it.
    assert!(piped.status.success(), "{}", stderr(&piped));
    let mut capture = Capture::read("pipe", Box::new(io::Cursor::new(piped.stdout))).unwrap();
    let mut packets = 0;
    while let Some(packet) = capture.next_packet().unwrap() {
        assert_eq!(packet.comment, Some("dropped: limit_packets, service game"));
        packets += 1;
    }
    assert_eq!(packets, 20);
    let wrong = edge.cli(&["watch", "--pcap", "/nowhere/at/all.pcapng", "--for", "1s"]);
    assert_refused(&wrong, 2, &["cannot write the capture /nowhere/at/all.pcapng"]);
}

#[test]
fn a_flood_is_watched_and_its_source_explained_with_reason_and_time() {
    let edge = edge_with_sources(&[BAD, OTHER]);
    let _daemon = edge.start(POLICY);
    let begun = edge.json(&["explain", BAD]);
    assert_eq!(begun["last_drops"], serde_json::json!([]));
    let running = [flood(&edge, BAD, EDGE_V4, 20_000, 4.0), flood(&edge, OTHER, EDGE_V4, 20_000, 4.0)];
    let watch = ["watch", "--source", BAD, "--reason", "limit_packets", "--count", "3", "--for", "30s"];
    let seen = lines(&edge.cli(&[&watch[..], &["--output", "json"]].concat()));
    assert_eq!(seen.len(), 3, "{seen:?}");
    for packet in &seen {
        assert_eq!(
            (&packet["source"], &packet["reason"]),
            (&BAD.into(), &"limit_packets".into()),
            "{packet}"
        );
        assert_eq!((&packet["fate"], &packet["port"]), (&"dropped".into(), &PORT.into()), "{packet}");
        assert_eq!(
            (&packet["protocol"], &packet["destination"]),
            (&"udp".into(), &EDGE_V4.into()),
            "{packet}"
        );
        assert!(packet["source_port"].as_u64().is_some(), "{packet}");
        assert!(packet["service"].is_null() && packet["bytes"].as_u64().unwrap() >= 42, "{packet}");
        assert!(packet["at"].as_str() >= begun["at"].as_str().map(|at| &at[..19]), "{packet}");
    }
    let text = edge.cli(&["watch", "--count", "1", "--for", "30s", "--source", OTHER]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("Z  10.99.0.67       dropped: limit_packets, udp port "), "{text}");
    assert!(text.contains(&format!(" to {EDGE_V4} port {PORT}, ")), "{text}");
    running.into_iter().for_each(|one| assert!(sent(one) > 0));

    let after = edge.json(&["explain", BAD]);
    let drops = after["last_drops"].as_array().unwrap();
    assert_eq!(drops.len(), 8, "the last ones: {after:#}");
    let newest = &drops[0];
    assert_eq!(
        (&newest["reason"], &newest["fate"]),
        (&"limit_packets".into(), &"dropped".into()),
        "{newest}"
    );
    let at = newest["at"].as_str().unwrap();
    assert!(
        at[..19] <= after["at"].as_str().unwrap()[..19] && at > begun["at"].as_str().unwrap(),
        "{newest}"
    );
    let ages: Vec<u64> = drops.iter().map(|drop| drop["ms_ago"].as_u64().unwrap()).collect();
    assert!(ages.is_sorted() && ages[0] < 2_000, "newest first: {ages:?}");
    let words = String::from_utf8(edge.cli(&["explain", BAD]).stdout).unwrap();
    assert!(words.contains("last refused packets, a sample of them\n"), "{words}");
    assert!(words.contains(" ago: dropped, port 4711: over a limit in packets (limit_packets)\n"), "{words}");
    assert_eq!(edge.json(&["explain", "10.99.0.68"])["last_drops"], serde_json::json!([]));
}

#[test]
fn a_blocked_ipv6_source_is_watched_as_its_prefix_and_explained_by_any_of_its_addresses() {
    let source = "fd00:99::66";
    let edge = edge_with_sources(&[source]);
    let _daemon = edge.start(POLICY);
    assert!(edge.cli(&["block", "add", "fd00:99::66", "--force"]).status.success());
    let running = flood(&edge, source, EDGE_V6, 1_000, 2.0);
    let seen = lines(
        &edge.cli(&["watch", "--reason", "blocked", "--count", "1", "--for", "30s", "--output", "json"]),
    );
    assert_eq!((&seen[0]["source"], &seen[0]["reason"]), (&"fd00:99::/64".into(), &"blocked".into()));
    sent(running);
    assert_eq!(edge.json(&["explain", "fd00:99::1234"])["last_drops"][0]["reason"], "blocked");
}

#[test]
fn watching_ends_with_its_time_with_its_reader_and_with_the_daemon() {
    let edge = edge_with_sources(&[BAD]);
    let daemon = edge.start(POLICY);
    let begun = Instant::now();
    assert_eq!(lines(&edge.cli(&["watch", "--for", "1s", "--output", "json"])), [Value::Null; 0]);
    assert!((1..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());

    let running = flood(&edge, BAD, EDGE_V4, 20_000, 4.0);
    // The reader goes away after one line, as with `| head -1`.
    let begun = Instant::now();
    let mut child = watching(&edge, &["--for", "20s"]);
    drop(first_line(&mut child));
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());

    let mut child = watching(&edge, &[]);
    let _reader = first_line(&mut child);
    daemon.kill_9();
    assert_refused(&child.wait_with_output().unwrap(), 3, &["the daemon at", "has gone"]);
    assert_refused(&edge.cli(&["watch"]), 3, &["no daemon reachable"]);
    sent(running);
}

#[test]
fn a_quiet_watch_says_what_passes() {
    let edge = Edge::new();
    let _daemon = edge.start(POLICY);
    let output = edge.cli(&["watch", "--for", "5s"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing is being refused: "), "{}", stderr(&output));
}

#[test]
fn mistakes_are_told_before_anybody_is_asked() {
    let edge = Edge::new();
    assert_refused(
        &edge.cli(&["watch", "--source", "10.0.0.1/8", "--reason", "arp"]),
        2,
        &[
            "--source: 10.0.0.1/8 has host bits set",
            "--reason: \"arp\" is no reason that is watched",
            "limit_syns",
        ],
    );
    assert_refused(&edge.cli(&["watch", "--for", "soon"]), 2, &["--for: "]);
    assert_refused(&edge.cli(&["watch", "--count", "0"]), 2, &["--count"]);
    let terminal = openpty(None, None).expect("a terminal");
    let mut command = edge.cli_command(&["watch", "--pcap", "-"]);
    let child =
        command.stdout(Stdio::from(terminal.slave)).stderr(Stdio::piped()).spawn().expect("start watching");
    assert_refused(
        &child.wait_with_output().unwrap(),
        2,
        &["--pcap - writes packets", "which is a terminal", "name a file"],
    );
}

#[test]
fn callers_that_stop_reading_hurt_nobody_and_make_room_when_they_go() {
    let edge = edge_with_sources(&[BAD]);
    let _daemon = edge.start(POLICY);
    let watchers: Vec<_> = (0..MAX_WATCHERS).map(|_| stuck(&edge)).collect();
    assert!(watchers.iter().all(|(_, first)| first.contains("watching")), "{watchers:?}");
    let running = flood(&edge, BAD, EDGE_V4, 20_000, 3.0);
    assert_refused(&edge.cli(&["watch", "--count", "1"]), 1, &["16 callers watch already"]);
    until("packets are refused", || edge.dropped("limit_packets") > 0);
    assert_ne!(edge.json(&["explain", BAD])["last_drops"], serde_json::json!([]), "others are answered");
    drop(watchers);
    until("there is room", || edge.cli(&["watch", "--for", "1s"]).status.success());
    sent(running);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
    }
}
