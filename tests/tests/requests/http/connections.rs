//! Connections that nobody uses, or uses badly, and those beside them.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use ratelimit_tests::{redis::wait_for, service::Service};
use rustix::process::{Resource, getrlimit, setrlimit};

const POLICY: &str = "[[api]]\nname = \"a\"\nlimits = [\"1000000/s\"]\n";
const ASK: &[u8] = b"GET /v1/check?user=ann&api=a HTTP/1.1\r\nHost: h\r\n\r\n";

/// The longest of a hundred answers.
fn slowest(service: &Service) -> Duration {
    let mut client = service.connect();
    let ask = |_| {
        let begun = Instant::now();
        assert_eq!(client.get("/v1/check?user=ann&api=a").status, 200);
        begun.elapsed()
    };
    (0..100).map(ask).max().expect("a time")
}

#[test]
fn ten_thousand_idle_connections_do_not_hurt_others() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("raise the limit of descriptors");
    // Both ends are on this host, but in two processes.
    let room = limit.current.map_or(10_000, |most| most.saturating_sub(500).min(10_000));
    let service = Service::start(POLICY);
    let mut idle = Vec::new();
    for _ in 0..room {
        let mut stream = TcpStream::connect(service.http).expect("connect");
        stream.write_all(ASK).expect("ask");
        idle.push(stream);
    }
    // Every one of them is kept, and still answers.
    for stream in &mut idle {
        let mut status = [0; 15];
        stream.read_exact(&mut status).expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 200 OK");
    }
    let slowest = slowest(&service);
    assert!(slowest < Duration::from_millis(500), "{slowest:?} beside {room} idle connections");
}

#[test]
fn a_caller_that_never_reads_stops_nobody_and_loses_its_connection() {
    let service = Service::start(POLICY);
    let mut deaf = TcpStream::connect(service.http).expect("connect");
    deaf.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let questions = ASK.repeat(1_000);
    // Until neither side has room for more: the service does not take in what it cannot answer.
    let mut sent = 0_usize;
    while deaf.write_all(&questions).is_ok() {
        sent += questions.len();
        assert!(sent < 1 << 30, "the service takes in everything");
    }
    assert!(slowest(&service) < Duration::from_millis(500));
    // The service has not read all of it when it closes: whoever writes on is told so.
    wait_for("a connection that is closed", || match deaf.write_all(b"G") {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Some(()),
        _ => None,
    });
}

#[test]
fn a_head_that_comes_in_drops_ends_its_connection() {
    let service = Service::start(POLICY);
    let mut slow = TcpStream::connect(service.http).expect("connect");
    let begun = Instant::now();
    slow.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    for byte in ASK.iter().cycle() {
        // A letter now and then, but never the end of the head.
        let byte = if *byte == b'\n' { b'x' } else { *byte };
        if slow.write_all(&[if byte == b'\r' { b'x' } else { byte }]).is_err() {
            break;
        }
        let mut answer = [0; 64];
        match slow.read(&mut answer) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it goes on");
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(service.get("/healthz").status, 200);
}

#[test]
fn questions_that_come_at_once_are_answered_in_their_order() {
    let service =
        Service::start("[[api]]\nname = \"a\"\nlimits = [\"5000/hour\"]\nalgorithm = \"fixed-window\"\n");
    let mut client = service.connect();
    client.send(&ASK.repeat(200));
    for nth in 1..=200 {
        let reply = client.receive();
        assert_eq!(
            reply.field("ratelimit").unwrap().split(';').nth(1),
            Some(format!("r={}", 5_000 - nth).as_str())
        );
    }
}
