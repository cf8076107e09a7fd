//! The end of a service: what was asked is answered, connections end, and nobody waits for long.

use std::{
    io::{ErrorKind, Read as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::Edge,
    grpc,
    redis::wait_for,
    resp::Caller,
    service::{Client, Service},
};
use ratelimit_user::serve::grpc::messages::{
    Descriptor, DescriptorEntry, LimitCode, RateLimitRequest, RateLimitResponse,
};

/// The second question of a user is answered three seconds after the first, that of an API for patient callers a minute after it. A third is refused.
const POLICY: &str = "[[api]]\nname = \"queue\"\nlimits = [\"20/min burst 1\"]\non_limit = \"delay 3s\"\n\
                      [[api]]\nname = \"patient\"\nlimits = [\"1/min burst 1\"]\non_limit = \"delay 60s\"\n";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Asks a question whose answer is held, and does not wait for it.
fn ask_ahead<S: std::io::Read + std::io::Write>(client: &mut Client<S>, user: &str, api: &str) {
    let target = format!("/v1/check?user={user}&api={api}");
    assert_eq!(client.get(&target).status, 200);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
}

/// Waits until the second question of a user is held.
fn wait_until_held<S: std::io::Read + std::io::Write>(mut beside: Client<S>, user: &str, api: &str) {
    let third = format!("/v1/check?user={user}&api={api}&peek=1");
    wait_for("a question that is held", || (beside.get(&third).status == 429).then_some(()));
}

/// Waits until new connections are refused.
fn wait_until_closed(address: SocketAddr) {
    wait_for("a socket that is closed", || match TcpStream::connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Some(()),
        _ => None,
    });
}

/// Whether the other end closes without another byte.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_service_that_is_stopped_answers_what_was_asked() {
    let mut service = Service::start(POLICY);
    let mut held = service.connect();
    ask_ahead(&mut held, "ann", "queue");
    let mut redis = Caller::connect(service.resp);
    assert!(redis.ask("CHECK bob queue").contains('1'));
    redis.send(b"CHECK bob queue\r\n");
    let (idle, silent) = (service.connect(), TcpStream::connect(service.resp).expect("connect"));
    let mut envoy = grpc::Client::connect(service.grpc);
    let entries = vec![DescriptorEntry { key: "user".into(), value: "eve".into() }];
    let descriptors = vec![Descriptor { entries, hits_addend: None }];
    let question = RateLimitRequest { domain: "queue".into(), descriptors, hits_addend: 0 };
    let answer: RateLimitResponse = envoy.call(SHOULD_RATE_LIMIT, &question).expect("an answer");
    assert_eq!(answer.overall_code(), LimitCode::Ok);

    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for user in ["ann", "bob", "eve"] {
                wait_until_held(service.connect(), user, "queue");
            }
            service.signal("TERM");
            [service.http, service.grpc, service.resp].into_iter().for_each(wait_until_closed);
        });
        let answer: RateLimitResponse = envoy.call(SHOULD_RATE_LIMIT, &question).expect("an answer");
        assert_eq!(answer.overall_code(), LimitCode::Ok, "asked before the end, answered in it");
    });
    let answer = held.receive();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")));
    assert_eq!(held.rest(), b"");
    assert!(redis.receive().contains('1'), "its turn came");
    assert!(is_closed(idle.stream()) && is_closed(&silent));
    assert!(service.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!service.http_socket().exists() && !service.resp_socket().exists());
}

#[test]
fn a_service_that_is_stopped_waits_five_seconds_at_most() {
    let mut service = Service::start(POLICY);
    let mut held = service.connect();
    ask_ahead(&mut held, "ann", "patient");
    wait_until_held(service.connect(), "ann", "patient");
    let begun = Instant::now();
    service.signal("TERM");
    assert!(service.wait().success());
    let took = begun.elapsed();
    assert!((Duration::from_millis(4_900)..Duration::from_secs(8)).contains(&took), "{took:?}");
}

#[test]
fn a_second_signal_ends_a_service_at_once() {
    let mut service = Service::start(POLICY);
    let mut held = service.connect();
    ask_ahead(&mut held, "ann", "patient");
    wait_until_held(service.connect(), "ann", "patient");
    let begun = Instant::now();
    service.signal("TERM");
    service.wait_for_log("stopping:");
    service.signal("INT");
    assert!(service.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_daemon_that_is_stopped_answers_what_was_asked() {
    let edge = Edge::new();
    let socket = edge.dir().join("http.sock");
    let policy = format!(
        "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n[listen]\nhttp = \"unix:{}\"\n{POLICY}",
        socket.display()
    );
    let daemon = edge.start(&policy);
    let connect = || Client::new(UnixStream::connect(&socket).expect("the daemon listens"));
    let (mut held, mut idle) = (connect(), connect());
    ask_ahead(&mut held, "ann", "queue");
    assert_eq!(idle.get("/healthz").status, 200);
    wait_until_held(connect(), "ann", "queue");
    let begun = Instant::now();
    let (status, log) = daemon.terminate();
    assert!(status.success(), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let answer = held.receive();
    assert_eq!((answer.status, answer.field("connection")), (200, Some("close")), "{log}");
    assert_eq!((held.rest(), idle.rest()), (Vec::new(), Vec::new()));
    assert!(UnixStream::connect(&socket).is_err());
}
