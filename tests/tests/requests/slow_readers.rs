//! Callers that ask and do not read, on one protocol after the other, and everybody else meanwhile.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use ratelimit_tests::{grpc, redis::free_port, resp::Caller, service::Service};
use ratelimit_user::serve::grpc::messages::health::{HealthCheckRequest, HealthCheckResponse};

const POLICY: &str = "[[api]]\nname = \"a\"\nlimits = [\"1000000/s\"]\n";
/// Connections: more than there are places.
const CROWD: usize = 500;
/// Open files that the service may have.
const FILES: u32 = 500;
/// How long somebody may wait for an answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// Questions of one connection, asked at once.
const PIPELINE: usize = 20;

/// Connections that ask so and read nothing.
fn crowd(at: SocketAddr, question: &[u8]) -> Vec<TcpStream> {
    let ask = |_| {
        let mut stream = TcpStream::connect(at).ok()?;
        stream.set_nonblocking(true).ok()?;
        // The service may have let this connection go already.
        let _full = stream.write_all(question);
        Some(stream)
    };
    (0..CROWD).filter_map(ask).collect()
}

#[test]
fn a_crowd_of_slow_readers_on_one_protocol_keeps_nobody_from_another() {
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let service = Service::start_limited(POLICY, &format!("metrics = \"{metrics}\""), FILES);
    let question =
        |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes().repeat(PIPELINE);
    let crowds = [
        ("http", service.http, question("/v1/check?user=u&api=a")),
        ("the dashboard", service.http, question("/")),
        ("grpc", service.grpc, grpc::calls_without_a_window(PIPELINE as u32)),
        ("resp", service.resp, b"CHECK u a\r\n".repeat(PIPELINE)),
        ("metrics", metrics, question("/metrics")),
    ];
    for (name, at, question) in crowds {
        let crowd = crowd(at, &question);
        let begun = Instant::now();
        let reply = service.get("/v1/check?user=honest&api=a");
        assert_eq!(reply.status, 200, "over HTTP, with a crowd at {name}");
        assert_eq!(Caller::connect(service.resp).ask("PING"), "PONG", "with a crowd at {name}");
        let health = HealthCheckRequest { service: String::new() };
        let served = grpc::Client::connect(service.grpc)
            .call::<HealthCheckResponse>("/grpc.health.v1.Health/Check", &health);
        assert!(served.is_ok(), "{served:?} with a crowd at {name}");
        let stream = TcpStream::connect(metrics).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let scraped = ratelimit_tests::service::Client::new(stream).get("/metrics");
        assert!(scraped.body.contains("ratelimit_"), "with a crowd at {name}");
        let took = begun.elapsed();
        println!("{} at {name}: the four others took {took:?}", crowd.len());
        assert!(took < PATIENCE, "with a crowd at {name}: {took:?}");
    }
}

/// The kind of the next frame of HTTP/2, and whatever comes with it is read.
fn next_frame(stream: &mut TcpStream) -> u8 {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("the head of a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    stream.read_exact(&mut vec![0; length as usize]).expect("a whole frame");
    head[3]
}

#[test]
fn an_answer_of_grpc_waits_for_the_callers_window() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const PING: u8 = 6;
    let service = Service::start(POLICY);
    let mut stream = TcpStream::connect(service.grpc).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(&grpc::calls_without_a_window(1)).expect("asked");
    // A ping that is sent when the head has come is answered behind whatever the server has to say by then.
    let mut before = Vec::new();
    while before.last() != Some(&HEADERS) {
        before.push(next_frame(&mut stream));
    }
    stream.write_all(&[&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], &[7; 8]].concat()).expect("pinged");
    while before.last() != Some(&PING) {
        before.push(next_frame(&mut stream));
    }
    assert!(!before.contains(&DATA), "{before:?}");
    const WINDOW_UPDATE: u8 = 8;
    stream.write_all(&[0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 1, 0, 0, 1, 0]).expect("a window");
    while next_frame(&mut stream) != DATA {}
}
