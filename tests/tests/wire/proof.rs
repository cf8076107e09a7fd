//! Connections that were there before a flood: untracked sources use up what untracked sources may, and an established connection goes on.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    netns::EDGE_V4,
};
use serde_json::Value;

const PORT: u16 = 4712;
const CLIENT: &str = "10.99.0.2";

/// The service takes little, and a flood of forged sources wants all of it. The client stays far below what makes a source known by itself.
const POLICY: &str = r#"
[source]
limits = ["100000 packets/s burst 200000"]
ladder = false

[[service]]
name = "web"
match = { protocol = "tcp", ports = [4712] }
total = ["2000 packets/s burst 2000"]
"#;

#[test]
fn an_established_connection_goes_on_while_forged_segments_use_up_what_untracked_sources_may() {
    let edge = Edge::new();
    edge.wire.add_source(CLIENT.parse::<IpAddr>().unwrap());
    let _daemon = edge.start(POLICY);
    let at = SocketAddr::new(EDGE_V4.parse().unwrap(), PORT);
    let listener = edge.wire.as_edge(|| TcpListener::bind(at).unwrap());
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 64];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..read]).unwrap();
        }
    });
    let mut stream = edge.wire.as_net(|| TcpStream::connect_timeout(&at, Duration::from_secs(3)).unwrap());
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();

    let mut command = edge.wire.in_net(binary("traffic"));
    command.args(["forge", "--to", &at.to_string(), "--kind", "ack", "--for", "5", "--pps", "60000"]);
    let flood = command.stdout(Stdio::piped()).spawn().unwrap();
    let dropped = |edge: &Edge| edge.json(&["stats"])["drops_by_reason"]["service_total"].as_u64().unwrap();
    let deadline = Instant::now() + Duration::from_secs(3);
    while dropped(&edge) < 10_000 {
        assert!(Instant::now() < deadline, "the flood never used up the total");
    }

    let mut slowest = Duration::ZERO;
    for round in 0..40_u8 {
        let asked = Instant::now();
        let mut answer = [0; 8];
        stream.write_all(&[round; 8]).unwrap();
        stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(answer, [round; 8]);
        slowest = slowest.max(asked.elapsed());
    }
    let output = flood.wait_with_output().unwrap();
    let flooded: Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = dropped(&edge);
    println!("flood {flooded}, {refused} refused, slowest of 40 round trips {slowest:?}");
    assert!(refused > flooded["sent"].as_u64().unwrap() / 2, "the flood was one: {refused} of {flooded}");
    // The first lost segment is sent again after 200 ms; a few in a row would take seconds.
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    drop(stream);
    echo.join().unwrap();
}
