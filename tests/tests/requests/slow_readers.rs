//! Callers that ask and do not read, on one protocol after the other, and everybody else meanwhile.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    process::Command,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ratelimit_tests::{
    answer::stderr,
    daemon::Edge,
    grpc::{self, HEALTH_CHECK, HEALTH_WATCH, QUOTAS},
    redis::{free_port, wait_for},
    resp::Caller,
    service::Service,
};
use ratelimit_user::{
    places::MAX_UNFINISHED,
    serve::grpc::{
        backlog::{CALL, COMMON_STREAMS},
        messages::health::{HealthCheckRequest, HealthCheckResponse},
    },
};

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

#[test]
fn an_answer_of_grpc_waits_for_the_callers_window() {
    const DATA: u8 = 0;
    let next_frame = |stream: &mut TcpStream| frame(stream).expect("a whole frame").0;
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

/// Calls of one connection whose answers wait. The first of a connection is not counted.
const WAITING: u32 = 250;
/// Connections whose calls take twice what there is for all.
const TOO_MANY: usize = 2 * MAX_UNFINISHED / (WAITING as usize * CALL);

/// Frames of HTTP/2.
const HEADERS: u8 = 1;
const PING: u8 = 6;
const END_STREAM: u8 = 1;

/// Sends frames, waits for so many heads (and ends) of answers, then for the answer to a ping: by then the server has counted what waits. Kinds and flags of all frames that
/// came; none if the server has hung up.
fn answered<S: Read + Write>(stream: &mut S, sent: &[u8], heads: usize) -> Option<Vec<(u8, u8)>> {
    stream.write_all(sent).ok()?;
    let mut seen = Vec::new();
    while seen.iter().filter(|(kind, _)| *kind == HEADERS).count() < heads {
        seen.push(frame(stream)?);
    }
    stream.write_all(&[&[0, 0, 8, PING, 0, 0, 0, 0, 0][..], &[7; 8]].concat()).ok()?;
    loop {
        match frame(stream)? {
            (PING, _) => return Some(seen),
            other => seen.push(other),
        }
    }
}

/// Kind and flags of the next frame; none if the server has hung up.
fn frame(stream: &mut impl Read) -> Option<(u8, u8)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    stream.read_exact(&mut vec![0; length as usize]).ok()?;
    Some((head[3], head[4]))
}

fn connected(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// So many connections, each of which has sent these frames, and the server has read them.
fn waiting(at: SocketAddr, count: usize, sent: &[u8], heads: usize) -> Vec<TcpStream> {
    let ask = |_| {
        let mut stream = connected(at);
        // Those that come later make it lose its place, or it loses it itself.
        let _lost = answered(&mut stream, sent, heads);
        stream
    };
    (0..count).map(ask).collect()
}

/// How many of them the server has not hung up on.
fn still_open<S: Read + Write>(crowd: &mut [S]) -> usize {
    crowd.iter_mut().filter_map(|stream| answered(stream, &[], 0)).count()
}

fn is_healthy(at: SocketAddr) -> bool {
    let health = HealthCheckRequest { service: String::new() };
    grpc::Client::connect(at).call::<HealthCheckResponse>(HEALTH_CHECK, &health).is_ok()
}

/// What the calls of one connection of a crowd take.
const TAKEN: usize = (WAITING as usize - 1) * CALL;

#[test]
fn answers_of_grpc_that_nobody_takes_have_a_bound_together_and_those_who_take_theirs_keep_their_place() {
    let service = Service::start(POLICY);
    let mut honest = grpc::Client::connect(service.grpc);
    let mut proxy = connected(service.grpc);
    let opened = [grpc::calls_to(HEALTH_CHECK, 0), grpc::opened_behind(QUOTAS, 0)].concat();
    assert!(answered(&mut proxy, &opened, 1).is_some());
    let calls = grpc::calls_without_a_window(WAITING);
    // An open stream protects its connection, and not what lies behind it.
    let with_a_stream = [&calls[..], &grpc::opened_behind(QUOTAS, WAITING)].concat();
    for (who, sent, streams) in [("calls", &calls, 0), ("calls and a stream of quotas", &with_a_stream, 1)] {
        let mut crowd = waiting(service.grpc, TOO_MANY, sent, WAITING as usize + streams);
        let open = still_open(&mut crowd);
        println!("{who}: {open} of {TOO_MANY} connections are open");
        assert!(
            open * TAKEN <= MAX_UNFINISHED,
            "{who}: {open} of {TOO_MANY} connections hold {}",
            open * TAKEN
        );
        assert!(open * TAKEN > MAX_UNFINISHED / 2, "{who}: no more go than have to: {open}");
        let health = HealthCheckRequest { service: String::new() };
        let served = honest.call::<HealthCheckResponse>(HEALTH_CHECK, &health);
        assert!(served.is_ok(), "{who}: {served:?}");
        assert!(is_healthy(service.grpc), "{who}: who comes is answered");
        assert_eq!(service.get("/v1/check?user=honest&api=a").status, 200, "{who}");
        assert_eq!(Caller::connect(service.resp).ask("PING"), "PONG", "{who}");
    }
    assert!(answered(&mut proxy, &[], 0).is_some(), "who has nothing unread keeps its stream");
}

#[test]
fn what_a_caller_of_grpc_left_waiting_is_free_when_it_goes_away_and_when_it_takes_its_answers() {
    let service = Service::start(POLICY);
    let fits = MAX_UNFINISHED / TAKEN - 2;
    let calls = grpc::calls_without_a_window(WAITING);
    let mut first = waiting(service.grpc, fits, &calls, WAITING as usize);
    assert_eq!(still_open(&mut first), fits, "so many fit");
    // Half go away, the others take their answers: the window of each stream becomes one of 1000 bytes.
    drop(first.split_off(fits / 2));
    for stream in &mut first {
        let window = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 3, 232];
        assert!(answered(stream, &window, WAITING as usize).is_some(), "all answers end");
    }
    // A place is given back when the server has seen the end.
    wait_for("room for a second crowd", || {
        let mut second = waiting(service.grpc, fits, &calls, WAITING as usize);
        (still_open(&mut second) == fits).then_some(())
    });
    assert_eq!(still_open(&mut first), fits / 2, "nobody had to go for them");
}

#[test]
fn messages_of_grpc_that_do_not_end_have_the_same_bound() {
    let service = Service::start(POLICY);
    let part = Bytes::from([&[0, 0, 0, 250, 0][..], &vec![1; 60_000]].concat());
    let each = 100;
    let count = 2 * MAX_UNFINISHED / (each * part.len());
    let rls = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    for path in [rls, QUOTAS] {
        let mut crowd: Vec<_> = (0..count).map(|_| grpc::Client::connect(service.grpc)).collect();
        for client in &mut crowd {
            client.begin_calls(path, each, &part);
        }
        let open = crowd.iter_mut().map(grpc::Client::is_open).filter(|open| *open).count();
        println!("{path}: {open} of {count} connections are open");
        assert!(open * each * part.len() <= MAX_UNFINISHED, "{path}: {open} of {count}");
        assert!(open > 0, "{path}: no more go than have to");
        assert!(is_healthy(service.grpc), "{path}");
    }
}

#[test]
fn streams_of_grpc_have_a_bound_together_and_each_connection_has_some_of_its_own() {
    let service = Service::start(POLICY);
    let watches = grpc::calls_to(HEALTH_WATCH, WAITING);
    let refused = |stream: &mut TcpStream, sent: &[u8]| {
        let seen = answered(stream, sent, WAITING as usize).expect("answers");
        seen.iter().filter(|(kind, flags)| *kind == HEADERS && flags & END_STREAM > 0).count()
    };
    let count = COMMON_STREAMS / WAITING as usize + 4;
    let mut crowd: Vec<_> = (0..count).map(|_| connected(service.grpc)).collect();
    let all: usize = crowd.iter_mut().map(|stream| refused(stream, &watches)).sum();
    assert_eq!(all, count * (WAITING as usize - 4) - COMMON_STREAMS, "of {count} connections");
    let mut honest = grpc::Client::connect(service.grpc);
    let health = HealthCheckRequest { service: String::new() };
    let mut own: Vec<_> = (0..4).map(|_| honest.watch(HEALTH_WATCH, &health)).collect();
    for stream in &mut own {
        assert!(honest.receive::<HealthCheckResponse>(stream).is_some(), "its own are left to it");
    }
    assert!(is_healthy(service.grpc));
    drop(crowd);
    // A place is given back when the server has seen the end.
    wait_for("all streams to be free", || {
        (refused(&mut connected(service.grpc), &watches) == 0).then_some(())
    });
}

#[test]
fn the_bound_of_waiting_calls_holds_across_a_policy_change_and_begins_anew_with_another_front_process() {
    let edge = Edge::new();
    let socket = edge.dir().join("grpc.sock");
    let policy = |rate: u32| {
        format!(
            "[source]\nlimits = [\"5000 packets/s burst 10000\"]\n[listen]\ngrpc = [\"unix:{}\"]\n\
             [[api]]\nname = \"a\"\nlimits = [\"{rate}/min\"]\n",
            socket.display()
        )
    };
    let daemon = edge.start(&policy(1000));
    let calls = grpc::calls_without_a_window(WAITING);
    let crowd = |count: usize| -> Vec<UnixStream> {
        let ask = |_| {
            let mut stream = UnixStream::connect(&socket).expect("connect");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let _lost = answered(&mut stream, &calls, WAITING as usize);
            stream
        };
        (0..count).map(ask).collect()
    };
    let fits = MAX_UNFINISHED / TAKEN - 2;
    let mut before = crowd(fits);
    assert_eq!(still_open(&mut before), fits);
    edge.write_policy(&policy(2000));
    let applied = edge.cli(&["apply", &edge.policy().display().to_string()]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    assert_eq!(still_open(&mut before), fits, "a change of policy ends no connection");
    let mut behind = crowd(fits);
    let open = still_open(&mut before) + still_open(&mut behind);
    assert!(open * TAKEN <= MAX_UNFINISHED, "{open} connections over both policies");
    let front = daemon.front().to_string();
    assert!(Command::new("kill").args(["-9", &front]).status().expect("kill").success());
    daemon.wait_for_log("another front process serves requests");
    assert_eq!(still_open(&mut before) + still_open(&mut behind), 0, "they went with the process");
    let mut after = crowd(fits);
    assert_eq!(still_open(&mut after), fits, "its memory is all free");
}
