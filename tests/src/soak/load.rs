//! As much as a host may be asked to hold: connections that do not read, users, sources and blocks. Measured, and held against what
//! docs/sizing.md says.

mod blocks;

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    process::Stdio,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    growth::Held,
    sender::{Sender, Signal},
    watch::at,
};
use crate::{
    daemon::{Edge, binary},
    grpc,
    netns::EDGE_V4,
    redis::free_port,
    resp::Caller,
    service::{Client, Service},
    traffic::{Sink, edge_with_sources, socket_address},
};

/// Files for all connections at once, at either end.
const FILES: u64 = 60_000;
/// Connections on each listener.
const CONNECTIONS: usize = 10_000;
/// Users that are asked about, in questions of a thousand.
const USERS: usize = 1_000_000;
/// Sources that packets are offered from.
const SOURCES: u64 = 10_000_000;
/// Questions that are timed, on a connection of its own each.
const TIMED: usize = 40;

/// Questions that a connection asks at once, where the protocol has them wait for each other.
const PIPELINE: usize = 200;
/// Calls whose answers wait in the server for a window, on each connection of gRPC.
const UNREAD_CALLS: u32 = 20;

/// What docs/sizing.md says of all listeners full of connections that do not read: memory, and the longest of forty answers.
const CONNECTIONS_MB: u64 = 1_000;
const ANSWER: Duration = Duration::from_secs(2);
/// Of a million users with a token bucket.
const USERS_MB: u64 = 80;
/// Of ten million sources.
const SOURCES_MB: u64 = 120;
/// How long `status` may take while ten million sources are offered, and with all blocks.
const STATUS: Duration = Duration::from_secs(2);

const POLICY: &str =
    "[requests]\nkeys = 1000000\n[[api]]\nname = \"a\"\nkey = [\"user\"]\nlimits = [\"1000000/s\"]\n";

/// What was measured, and what was more than it may be.
#[derive(Debug, Default)]
pub struct LoadReport {
    /// What was more than it may be.
    pub faults: Vec<String>,
}

impl LoadReport {
    fn expect(&mut self, holds: bool, words: String) {
        println!("{}{words}", if holds { "" } else { "FAULT: " });
        if !holds {
            self.faults.push(words);
        }
    }
}

/// What a service or a host is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// Connections on each listener that do not read.
    Connections,
    /// Users that are asked about.
    Users,
    /// Packets that are each from another source.
    Sources,
    /// Blocks, ordered one at a time.
    Blocks,
}

/// Loads a service and a host, one thing after the other. All there are if none is chosen.
pub fn load(chosen: &[Load]) -> LoadReport {
    let mut report = LoadReport::default();
    let has = |load| chosen.is_empty() || chosen.contains(&load);
    if has(Load::Connections) {
        let at_once = may_open_files();
        connections(&mut report, at_once);
    }
    if has(Load::Users) {
        users(&mut report);
    }
    if has(Load::Sources) {
        sources(&mut report);
    }
    if has(Load::Blocks) {
        blocks::blocks(&mut report);
    }
    report
}

/// Whether all connections can be open at once.
fn may_open_files() -> bool {
    let files = Rlimit { current: Some(FILES), maximum: Some(FILES) };
    let at_once = setrlimit(Resource::Nofile, files).is_ok();
    if !at_once {
        let most = getrlimit(Resource::Nofile).current;
        println!(
            "a process may open {most:?} files here, and needs {FILES}: one listener is full at a time, not all at once"
        );
    }
    at_once
}

fn megabytes(pid: u32) -> u64 {
    Held::of(pid).kilobytes / 1024
}

/// All listeners full, one after the other, and everybody else in between.
fn connections(report: &mut LoadReport, at_once: bool) {
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let service = Service::start_listening(POLICY, &format!("metrics = \"{metrics}\""));
    let host = service.http;
    let question = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let crowds = [
        ("nobody", None),
        ("http", Some((service.http, question("/v1/check?user=u&api=a").repeat(PIPELINE)))),
        ("dashboard", Some((service.http, question("/")))),
        ("grpc", Some((service.grpc, grpc::calls_without_a_window(UNREAD_CALLS)))),
        ("resp", Some((service.resp, b"CHECK u a\r\n".repeat(PIPELINE)))),
        ("metrics", Some((metrics, question("/metrics")))),
    ];
    let before = megabytes(service.pid());
    let mut open = Vec::new();
    for (name, crowd) in crowds {
        if !at_once {
            open.clear();
        }
        let begun = Instant::now();
        let (asked, open_before) = (if crowd.is_some() { CONNECTIONS } else { 0 }, open.len());
        if let Some((at, question)) = crowd {
            open.extend((0..CONNECTIONS).filter_map(|_| connected(at, &question)));
        }
        let opened = begun.elapsed();
        // What the crowd has asked is answered, as far as it reads.
        timed(|| service.get("/v1/check?user=honest&api=a").status == 200);
        let longest = [
            ("http", timed(|| service.get("/v1/check?user=honest&api=a").status == 200)),
            (
                "dashboard",
                timed(|| service.connect().under(&service.http.to_string()).get("/").status == 200),
            ),
            ("grpc", timed(|| grpc_answers(service.grpc))),
            ("resp", timed(|| Caller::connect(service.resp).ask("PING") == "PONG")),
            ("metrics", timed(|| scraped(metrics))),
        ];
        let mb = megabytes(service.pid()).saturating_sub(before);
        let words: Vec<String> = longest
            .iter()
            .map(|(name, (median, longest))| format!("{name} {median:.1?}/{longest:.1?}"))
            .collect();
        let holds = open.len() - open_before == asked
            && longest.iter().all(|(_, (_, longest))| *longest < ANSWER)
            && mb <= CONNECTIONS_MB;
        report.expect(
            holds,
            format!(
                "+{CONNECTIONS} at {name} ({} open, in {opened:.1?}): {mb} MB more; answers (median/longest): {}",
                open.len(),
                words.join(", ")
            ),
        );
    }
}

fn connected(at: SocketAddr, question: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_nonblocking(true).ok()?;
    let _let_go = stream.write_all(question);
    Some(stream)
}

/// The median and the longest of so many answers.
fn timed(mut ask: impl FnMut() -> bool) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..TIMED)
        .map(|_| {
            let begun = Instant::now();
            // No answer is the longest.
            if ask() { begun.elapsed() } else { Duration::MAX }
        })
        .collect();
    times.sort_unstable();
    (times[TIMED / 2], times[TIMED - 1])
}

fn grpc_answers(at: SocketAddr) -> bool {
    let answer = grpc::Client::connect(at)
        .call_raw("/grpc.health.v1.Health/Check", bytes::Bytes::from_static(&[0; 5]));
    answer.is_ok()
}

fn scraped(at: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect(at) else { return false };
    let timeout = stream.set_read_timeout(Some(Duration::from_secs(20)));
    timeout.is_ok() && Client::new(stream).get("/metrics").status == 200
}

fn users(report: &mut LoadReport) {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    assert_eq!(client.get("/v1/check?user=honest&api=a").status, 200);
    let before = megabytes(service.pid());
    let begun = Instant::now();
    for thousand in 0..USERS / 1_000 {
        let questions: Vec<String> =
            (0..1_000).map(|user| format!("{{\"user\":\"user-{thousand}-{user}\",\"api\":\"a\"}}")).collect();
        assert_eq!(client.post("/v1/check", &format!("[{}]", questions.join(","))).status, 200);
    }
    let took = begun.elapsed();
    let mb = megabytes(service.pid()) - before;
    let (median, longest) = timed(|| service.get("/v1/check?user=honest&api=a").status == 200);
    report.expect(
        mb <= USERS_MB && longest < ANSWER,
        format!(
            "{USERS} users in {took:.1?}: {mb} MB more; an answer takes {median:.1?}, {longest:.1?} at most"
        ),
    );
}

fn sources(report: &mut LoadReport) {
    let edge = edge_with_sources(&["10.99.0.2"]);
    let daemon = edge.start("[source]\nlimits = [\"1000 packets/s\"]\n");
    let mut sink = Sink::start(&edge, EDGE_V4);
    let signal = Arc::new(Signal::default());
    let honest = Sender::start(&edge.wire, &signal, "10.99.0.2", at(EDGE_V4), 100);
    let before = megabytes(daemon.pid());
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut forger = edge
        .wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "syn", "--within", "16.0.0.0/4", "--to", &socket_address(EDGE_V4)])
        .args(["--for", "600"])
        .stdout(Stdio::null())
        .spawn()
        .expect("a forger");
    while judged(&edge) < SOURCES && begun.elapsed() < Duration::from_secs(590) {
        let asked = Instant::now();
        let answered = edge.cli(&["status"]).status.success();
        slowest = slowest.max(if answered { asked.elapsed() } else { Duration::MAX });
        thread::sleep(Duration::from_millis(500));
    }
    let offered = judged(&edge);
    let _gone = forger.kill();
    let _gone = forger.wait();
    signal.end();
    let sent = honest.sent();
    let lost = sent - sink.datagrams_of("10.99.0.2", sent).min(sent);
    let mb = megabytes(daemon.pid()).saturating_sub(before);
    report.expect(
        offered >= SOURCES && lost == 0 && slowest < STATUS && mb < SOURCES_MB,
        format!(
            "{offered} packets, each from another of 268 million sources, in {:.0?}: an honest sender lost {lost} of {sent}; status took \
             {slowest:.1?} at most; {mb} MB more",
            begun.elapsed()
        ),
    );
    drop(daemon);
}

/// Packets that the program has judged.
fn judged(edge: &Edge) -> u64 {
    let stats = edge.json(&["stats"]);
    let reasons = stats["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().filter_map(|reason| reason["packets"].as_u64()).sum()
}
