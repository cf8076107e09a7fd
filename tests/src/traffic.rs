//! Real senders and a real receiver on the wire of an edge host.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::IpAddr,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::daemon::{Edge, binary};

/// The port of the server.
pub const PORT: u16 = 4711;

/// How long packets that were sent may be on their way, through a kernel that has other things to do.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server behind the limiter.
#[derive(Debug)]
pub struct Sink {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Sink {
    /// Starts the server on one of the edge host's addresses.
    pub fn start(edge: &Edge, address: &str) -> Self {
        Self::with(edge, address, &[])
    }

    /// Starts a server whose counts also have `arrived_ns`: by source, when each datagram came since counts were last asked for, in nanoseconds of CLOCK_MONOTONIC.
    pub fn with_times(edge: &Edge, address: &str) -> Self {
        Self::with(edge, address, &["--times"])
    }

    fn with(edge: &Edge, address: &str, options: &[&str]) -> Self {
        let listen = socket_address(address);
        let mut child = edge
            .wire
            .on_edge(binary("traffic"))
            .args(["sink", "--listen", &listen])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the server");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut sink = Self { child, stdin, stdout };
        sink.counts();
        sink
    }

    /// Counts of everything that has arrived so far.
    pub fn counts(&mut self) -> Value {
        writeln!(self.stdin).expect("ask the server");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("hear the server");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Datagrams from one source so far. What has been sent is on its way for a while where the machine is busy: asks until nothing more
    /// comes, or until it is clear that somebody goes on sending.
    pub fn datagrams(&mut self, source: &str) -> u64 {
        let mut arrived = self.counted(source);
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(25));
            let before = std::mem::replace(&mut arrived, self.counted(source));
            if arrived == before {
                break;
            }
        }
        arrived
    }

    /// Datagrams from one source, when `sent` of them are known to be on their way; fewer if they do not come.
    pub fn datagrams_of(&mut self, source: &str, sent: u64) -> u64 {
        let begun = Instant::now();
        while self.counted(source) < sent && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        self.datagrams(source)
    }

    /// Datagrams from one source that have been counted by now, while somebody sends.
    pub fn counted(&mut self, source: &str) -> u64 {
        self.counts()["udp"][source].as_u64().unwrap_or(0)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The server's address, as it is typed.
pub fn socket_address(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:{PORT}") } else { format!("{address}:{PORT}") }
}

/// Starts a sender in the network.
pub fn flood(edge: &Edge, from: &str, to: &str, pps: u64, seconds: f64) -> Child {
    edge.wire
        .in_net(binary("traffic"))
        .args(["flood", "--from", from, "--to", &socket_address(to)])
        .args(["--pps", &pps.to_string(), "--for", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start a sender")
}

/// How many packets a sender sent until it ended.
pub fn sent(child: Child) -> u64 {
    let output = child.wait_with_output().expect("wait for the sender");
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["sent"].as_u64().expect("a count")
}

/// Waits until a sender has ended.
pub fn done(child: Child) {
    sent(child);
}

/// An edge host with these addresses in the network in front of it.
pub fn edge_with_sources(sources: &[&str]) -> Edge {
    let edge = Edge::new();
    for source in sources {
        edge.wire.add_source(source.parse::<IpAddr>().expect("an address"));
    }
    edge
}
