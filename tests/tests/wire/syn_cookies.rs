//! SYN cookies with real clients and a real kernel behind the limiter.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use aya::Ebpf;
use ratelimit_tests::{
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4, EDGE_V6, NET, run},
    redis::wait_for,
};
use ratelimit_user::dataplane::{interface, sysctl::TcpSettings};
use serde_json::Value;

const PORT: u16 = 4711;
const CLIENT_V4: &str = "10.99.0.2";
const CLIENT_V6: &str = "fd00:99:1::2";

/// SYNs above 100 a second are a flood; the limits of a source are out of the way.
const POLICY: &str = r#"
[source]
limits = ["100000 packets/s burst 200000"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [4711] }
syn_cookies = "100 syns/s burst 100"
"#;

/// An edge whose kernel takes cookies that were sent for it, and options with them.
fn edge_with_cookies(timestamps: u32) -> (Edge, Daemon, Ebpf) {
    let edge = Edge::new();
    for client in [CLIENT_V4, CLIENT_V6] {
        edge.wire.add_source(client.parse::<IpAddr>().unwrap());
    }
    let replies = edge.wire.receive_replies();
    for (name, value) in [("tcp_syncookies", 2), ("tcp_timestamps", timestamps)] {
        run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{name}={value}")]));
    }
    let daemon = edge.start(POLICY);
    (edge, daemon, replies)
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), PORT)
}

fn forge(edge: &Edge, to: &str, kind: &str, pps: Option<u64>, seconds: f64) -> Child {
    let mut command = edge.wire.in_net(binary("traffic"));
    command.args(["forge", "--to", &at(to).to_string(), "--kind", kind, "--for", &seconds.to_string()]);
    if let Some(pps) = pps {
        command.args(["--pps", &pps.to_string()]);
    }
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn report(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn replied(edge: &Edge) -> u64 {
    edge.json(&["stats"])["replies_by_reason"]["cookie_sent"].as_u64().unwrap()
}

/// Serves one connection: reads a megabyte and sends it back. The connection stays open.
fn serve_one(listener: TcpListener) -> thread::JoinHandle<TcpStream> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = vec![0; 1 << 20];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
        stream
    })
}

/// One connection through cookies, a megabyte each way; what `ss` says of the server's end of it.
fn transfer(edge: &Edge, server: &str, client: &str) -> String {
    let listener = edge.wire.as_edge(|| TcpListener::bind(at(server)).unwrap());
    assert_eq!(report(forge(edge, server, "syn", Some(2_000), 0.5))["sent"], 1_000);
    assert!(replied(edge) > 500, "the flood is answered by now: {}", replied(edge));
    let (before, valid) = (replied(edge), edge.passed("cookie_valid"));
    let serving = serve_one(listener);
    let mut stream =
        edge.wire.as_net(|| TcpStream::connect_timeout(&at(server), Duration::from_secs(3)).unwrap());
    assert_eq!(replied(edge), before + 1, "its SYN was answered with a cookie");
    let sent: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = thread::spawn(move || writer.write_all(&copy).unwrap());
    let mut echoed = vec![0; sent.len()];
    stream.read_exact(&mut echoed).unwrap();
    writing.join().unwrap();
    assert!(echoed == sent, "what came back is what was sent");
    assert_eq!(edge.passed("cookie_valid"), valid + 1, "its acknowledgement was known again");
    let served = serving.join().unwrap();
    let peer = if client.contains(':') { format!("[{client}]") } else { client.to_owned() };
    let output = run(edge.wire.on_edge("ss").args(["-tioHO", "dst", &peer]));
    let seen = String::from_utf8(output.stdout).unwrap();
    drop((stream, served));
    seen
}

#[test]
fn a_client_that_connects_by_cookie_has_every_option_and_transfers_data_both_ways() {
    let (edge, daemon, _replies) = edge_with_cookies(2);
    assert!(!daemon.log().contains("SYN cookie"), "nothing to warn of: {}", daemon.log());
    for (server, client) in [(EDGE_V4, CLIENT_V4), (EDGE_V6, CLIENT_V6)] {
        let seen = transfer(&edge, server, client);
        let words: Vec<&str> = seen.split_whitespace().collect();
        println!("{seen}");
        // Both ends run the same kernel with the same buffers. A client that understood another scale than the server uses
        // would transfer, but slowly: here the two numbers would differ from what the kernel chooses by itself.
        let scale = edge.wire.as_edge(|| TcpSettings::read().window_scale().unwrap());
        for option in ["ts", "sack", &format!("wscale:{scale},{scale}")] {
            assert!(words.contains(&option), "{option} is missing: {seen}");
        }
        let mss = if server.contains(':') { 1440 } else { 1460 };
        assert!(words.contains(&format!("advmss:{}", mss - 12).as_str()), "{seen}");
    }
}

#[test]
fn where_answers_would_not_arrive_nobody_is_answered_everybody_connects_and_the_operator_is_told() {
    let edge = Edge::new();
    edge.wire.add_source(CLIENT_V4.parse::<IpAddr>().unwrap());
    for setting in ["tcp_syncookies=2", "tcp_timestamps=2"] {
        run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{setting}")]));
    }
    let daemon = edge.start(&POLICY.replace("100 syns/s burst 100", "1 syns/day burst 1"));
    let _listener = edge.wire.as_edge(|| TcpListener::bind(at(EDGE_V4)).unwrap());
    let connect = || edge.wire.as_net(|| TcpStream::connect_timeout(&at(EDGE_V4), Duration::from_secs(3)));
    let policy = edge.policy();
    let far_end = || {
        let answer = edge.json(&["doctor", "--iface", EDGE, "--policy", policy.to_str().unwrap()]);
        let all = answer["findings"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["check"] == "far_end").unwrap()["grade"].clone()
    };
    // Across namespaces, and within one.
    let takes_answers = |name: &str| interface::find(name).unwrap().far_end.unwrap().takes_answers().unwrap();
    run(edge.wire.on_edge("ip").args(["link", "add", "pair0", "type", "veth", "peer", "name", "pair1"]));
    assert!(edge.wire.as_net(|| takes_answers(NET)), "the daemon's own end");
    assert!(!edge.wire.as_edge(|| takes_answers(EDGE) || takes_answers("pair0")));
    // With GRO the driver takes answers, and nobody fetches them.
    for gro in ["off", "on"] {
        run(edge.wire.in_net("ethtool").args(["-K", NET, "gro", gro]));
        daemon.wait_for_log("edge0: no packet is answered here (SYN cookies), because it is a veth");
        let open: Vec<_> = (0..8).map(|_| connect().unwrap()).collect();
        assert_eq!((open.len(), replied(&edge)), (8, 0), "GRO {gro}");
        assert_eq!(far_end(), "warn");
        assert!(
            edge.json(&["status"])["warnings"].to_string().contains("any program there that passes packets")
        );
    }
    let _replies = edge.wire.receive_replies();
    wait_for("answers", || edge.json(&["status"])["warnings"].as_array().unwrap().is_empty().then_some(()));
    let open: Vec<_> = (0..8).map(|_| connect().unwrap()).collect();
    assert_eq!((open.len(), replied(&edge)), (8, 8), "each by a cookie");
    assert_eq!(far_end(), "ok");
}

#[test]
fn without_a_place_for_options_a_client_still_connects_and_the_operator_is_told() {
    let (edge, daemon, _replies) = edge_with_cookies(1);
    daemon.wait_for_log("sysctl -w net.ipv4.tcp_timestamps=2");
    let seen = transfer(&edge, EDGE_V4, CLIENT_V4);
    let words: Vec<&str> = seen.split_whitespace().collect();
    assert!(words.contains(&"advmss:1460"), "{seen}");
    assert!(!words.iter().any(|word| ["ts", "sack"].contains(word) || word.starts_with("wscale")), "{seen}");
    run(edge.wire.on_edge("sysctl").args(["-w", "net.ipv4.tcp_syncookies=1"]));
    let status = edge.json(&["status"]);
    let warning = status["warnings"][0].as_str().unwrap();
    assert!(warning.contains("sysctl -w net.ipv4.tcp_syncookies=2"), "{warning}");
}

#[test]
fn honest_connections_succeed_during_a_spoofed_flood_and_cookies_end_with_it() {
    let (edge, _daemon, _replies) = edge_with_cookies(2);
    for (server, client) in [(EDGE_V4, CLIENT_V4), (EDGE_V6, CLIENT_V6)] {
        let sink = edge
            .wire
            .on_edge(binary("traffic"))
            .args(["sink", "--listen", &at(server).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let before = replied(&edge);
        let flood = forge(&edge, server, "syn", None, 6.0);
        let started = Instant::now();
        while replied(&edge) == before {
            assert!(started.elapsed() < Duration::from_secs(3), "the flood was never answered");
        }
        let asking = edge
            .wire
            .in_net(binary("traffic"))
            .args([
                "ask",
                "--from",
                client,
                "--to",
                &at(server).to_string(),
                "--every",
                "40",
                "--for",
                "5",
                "--patience",
                "3",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = report(asking);
        let flooded = report(flood);
        let answered = replied(&edge) - before;
        println!("{server}: flood {flooded}, answered {answered}, honest {asked}");
        let (ok, failed) = (asked["ok"].as_u64().unwrap(), asked["failed"].as_u64().unwrap());
        // One after the other, so a busy machine makes fewer.
        assert!(ok + failed >= 20, "{asked}");
        assert!(failed * 100 <= ok + failed, "99 % within three seconds: {asked}");
        assert!(answered > 10_000, "the flood was one: {answered}");
        let mut sink = sink;
        sink.kill().unwrap();
        sink.wait().unwrap();
    }
    // Ten seconds after the last SYN above the threshold the kernel answers by itself again.
    let ended = Instant::now();
    let listener = edge.wire.as_edge(|| TcpListener::bind(at(EDGE_V4)).unwrap());
    loop {
        let before = replied(&edge);
        edge.wire.as_net(|| TcpStream::connect_timeout(&at(EDGE_V4), Duration::from_secs(3)).unwrap());
        if replied(&edge) == before {
            break;
        }
        assert!(ended.elapsed() < Duration::from_secs(20), "cookies never ended");
        // Asked more often, these connections would be a flood of their own.
        thread::sleep(Duration::from_millis(200));
    }
    assert!(ended.elapsed() > Duration::from_secs(5), "cookies ended too early: {:?}", ended.elapsed());
    drop(listener);
}

#[test]
fn acknowledgements_without_a_cookie_are_dropped_and_established_connections_go_on() {
    let (edge, _daemon, _replies) = edge_with_cookies(2);
    for server in [EDGE_V4, EDGE_V6] {
        let listener = edge.wire.as_edge(|| TcpListener::bind(at(server)).unwrap());
        let mut client =
            edge.wire.as_net(|| TcpStream::connect_timeout(&at(server), Duration::from_secs(3)).unwrap());
        let (mut served, _) = listener.accept().unwrap();
        report(forge(&edge, server, "syn", Some(2_000), 0.5));
        let invalid = edge.dropped("cookie_invalid");
        let sent = report(forge(&edge, server, "ack", Some(5_000), 1.0))["sent"].as_u64().unwrap();
        assert_eq!(edge.dropped("cookie_invalid") - invalid, sent, "every one of them");
        // This client's connection is older than the flood.
        client.write_all(b"still there?").unwrap();
        let mut echo = [0; 12];
        served.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        served.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"still there?");
    }
}
