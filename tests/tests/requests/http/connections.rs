//! Connections that nobody uses, or uses badly, and those beside them; how connections end.

use std::{
    collections::BTreeSet,
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    redis::{free_port, wait_for},
    service::{Client, Service},
};
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

/// A service with tokens, which also answers scrapers.
fn guarded() -> (Service, u16) {
    let file = std::env::temp_dir().join(format!("ratelimit-body-token-{}", std::process::id()));
    fs::write(&file, "a-token-for-those-who-ask\n").expect("write the token");
    let port = free_port();
    let listen = format!("token_file = \"{}\"\nmetrics = \"127.0.0.1:{port}\"", file.display());
    let service = Service::start_listening(POLICY, &listen);
    fs::remove_file(&file).expect("remove the token");
    (service, port)
}

/// The body comes when the answer is there already, and is longer than what the kernel takes without a reader.
#[test]
fn a_refused_body_in_a_later_packet_harms_no_answer() {
    let (guarded, metrics) = guarded();
    let open = Service::start(POLICY);
    let scraped = format!("127.0.0.1:{metrics}").parse().expect("an address");
    let body = vec![b'x'; 300_000];
    for (address, request, status) in [
        (guarded.http, "POST /v1/check", 401),
        (open.http, "POST /v1/reset", 403),
        (open.http, "POST /v1/nothing", 404),
        (open.http, "PUT /v1/check", 405),
        (open.http, "POST /dashboard/stream", 405),
        (open.http, "GET /v1/check?user=ann&api=a", 200),
        (scraped, "POST /metrics", 405),
        (scraped, "POST /elsewhere", 404),
    ] {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut client = Client::new(stream);
        client.send(
            format!("{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len())
                .as_bytes(),
        );
        let answer = client.receive();
        assert_eq!((answer.status, answer.field("connection")), (status, Some("close")), "{request}");
        client.stream().write_all(&body).unwrap_or_else(|error| panic!("{request}: {error}"));
        let mut end = [0];
        assert_eq!(client.stream().read(&mut end).ok(), Some(0), "{request}: closed in order");
    }
    // A body that was read is in nobody's way.
    let mut client = open.connect();
    for _ in 0..2 {
        let answer = client.post("/v1/check", "{\"user\":\"ann\",\"api\":\"a\"}");
        assert_eq!((answer.status, answer.field("connection")), (200, None));
    }
}

/// Python sends a body in a packet of its own, and believes what an answer says of its connection.
#[test]
fn a_client_that_is_refused_with_a_body_asks_on() {
    let (guarded, _) = guarded();
    let script = "import http.client, sys\n\
                  host = http.client.HTTPConnection(sys.argv[1], timeout=10)\n\
                  for n in range(40):\n\
                  \x20   host.request('POST', ['/v1/check', '/v1/refund'][n % 2], body=b'x' * (1 + n * 1000))\n\
                  \x20   answer = host.getresponse()\n\
                  \x20   answer.read()\n\
                  \x20   print(answer.status)\n";
    let asked = Command::new("python3").args(["-c", script, &guarded.http.to_string()]).output();
    let asked = asked.expect("python3");
    let said = String::from_utf8_lossy(&asked.stdout);
    assert_eq!(said, "401\n".repeat(40), "{}", String::from_utf8_lossy(&asked.stderr));
}

/// The files that each thread of a service waits for, by the numbers of their inodes. An epoll instance may be open twice.
fn waited_for(service: &Service) -> BTreeSet<BTreeSet<String>> {
    let process = format!("/proc/{}", service.pid());
    let of_instance = |file: fs::DirEntry| {
        let kind = fs::read_link(file.path()).ok()?;
        let name = file.file_name().into_string().ok()?;
        let text = fs::read_to_string(format!("{process}/fdinfo/{name}")).ok()?;
        let inode = |line: &str| Some(line.split_once("ino:")?.1.split_whitespace().next()?.to_owned());
        let files = text.lines().filter(|line| line.starts_with("tfd:")).filter_map(inode);
        kind.to_str()?.ends_with("[eventpoll]").then(|| files.collect())
    };
    let files = fs::read_dir(format!("{process}/fd")).expect("the service runs");
    files.flatten().filter_map(of_instance).collect()
}

#[test]
fn connections_are_spread_evenly_over_threads() {
    let service = Service::start(&format!("{POLICY}[requests]\nthreads = 4\n"));
    let mut connections = Vec::new();
    for address in [service.http, service.grpc, service.resp] {
        // A connection of the start may still be ending, and the next one gets its number.
        let before: BTreeSet<String> = wait_for("connections that stay", || {
            let all = || -> BTreeSet<String> { waited_for(&service).into_iter().flatten().collect() };
            let before = all();
            std::thread::sleep(Duration::from_millis(50));
            (all() == before).then_some(before)
        });
        connections.extend((0..32).map(|_| TcpStream::connect(address).expect("connect")));
        let spread = wait_for("connections that threads have", || {
            let more = waited_for(&service).into_iter().map(|thread| thread.difference(&before).count());
            let more: Vec<usize> = more.filter(|more| *more > 0).collect();
            (more.iter().sum::<usize>() == 32).then_some(more)
        });
        assert_eq!(spread, [8; 4], "{address}");
    }
}
