//! Limits on new connections while SYNs are answered with cookies: anybody can bring that about, and nobody gets more by it.

use std::{
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    netns::{EDGE_V4, run},
};

const PORT: u16 = 4714;
const CLIENT: &str = "10.99.0.2";
/// New connections that each policy allows the client.
const BURST: u64 = 10;
const PER_SEC: u64 = 10;

/// A service whose SYNs are answered from the eleventh a second on, with something more to say about one source.
fn policy(source: &str, service: &str, rest: &str) -> String {
    format!(
        "[source]\nlimits = [\"100000 packets/s burst 200000\"{source}]\n\n\
         [[service]]\nname = \"web\"\nmatch = {{ protocol = \"tcp\", ports = [{PORT}] }}\n\
         syn_cookies = \"10 syns/s burst 10\"\n{service}\n\n{rest}\n"
    )
}

/// Connections that a client got which wants as many as it can, while forged SYNs keep cookies on; and for how long.
fn connections(policy: &str) -> (u64, Duration) {
    let edge = Edge::new();
    edge.wire.add_source(CLIENT.parse::<IpAddr>().unwrap());
    let _replies = edge.wire.receive_replies();
    for setting in ["tcp_syncookies=2", "tcp_timestamps=2"] {
        run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{setting}")]));
    }
    let _daemon = edge.start(policy);
    let at = SocketAddr::new(EDGE_V4.parse().unwrap(), PORT);
    let listener = edge.wire.as_edge(|| TcpListener::bind(at).unwrap());
    let accepted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&accepted);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(u64::from(stream.is_ok()), Ordering::Relaxed);
        }
    });
    let mut command = edge.wire.in_net(binary("traffic"));
    command.args(["forge", "--to", &at.to_string(), "--for", "6", "--pps", "2000"]);
    let mut flood = command.stdout(Stdio::null()).spawn().unwrap();
    let answered = || edge.json(&["stats"])["replies_by_reason"]["cookie_sent"].as_u64().unwrap();
    let deadline = Instant::now() + Duration::from_secs(4);
    while answered() < 100 {
        assert!(Instant::now() < deadline, "the flood was never answered");
    }
    let began = Instant::now();
    edge.wire.as_net(|| {
        while began.elapsed() < Duration::from_secs(3) {
            // Closed at once: what counts is that it was made.
            let _made = TcpStream::connect_timeout(&at, Duration::from_millis(50));
        }
    });
    let took = began.elapsed();
    flood.wait().unwrap();
    assert!(answered() > 1_000, "cookies were on");
    (accepted.load(Ordering::Relaxed), took)
}

#[test]
fn limits_on_new_connections_hold_while_syns_are_answered_with_cookies() {
    let user = "[[user]]\nname = \"acme\"\nsources = [\"10.99.0.2\"]\nnetwork = [\"10 syns/s burst 10\"]";
    for (whose, text) in [
        ("every source", policy(", \"10 syns/s burst 10\"", "", "")),
        ("a source at the service", policy("", "per_source = [\"10 syns/s burst 10\"]", "")),
        ("a user", policy("", "", user)),
    ] {
        let (accepted, took) = connections(&text);
        let bound = BURST + (PER_SEC as f64 * took.as_secs_f64()) as u64;
        println!("{accepted} connections in {took:?} under a limit of {whose}, {bound} are the most");
        assert!(accepted <= bound, "{accepted} connections under a limit of {whose}, {bound} are the most");
        // What a lost race or a busy machine costs is not the limit's doing.
        assert!(accepted * 2 >= bound, "{accepted} connections under a limit of {whose}, of {bound}");
    }
}

#[test]
fn a_window_of_new_connections_holds_while_syns_are_answered_with_cookies() {
    let text = policy("", "per_source = [\"20 syns/hour sliding-window\"]", "");
    let (accepted, took) = connections(&text);
    println!("{accepted} connections in {took:?} under a window of 20");
    assert!((10..=20).contains(&accepted), "{accepted} connections under a window of 20");
}

#[test]
fn forged_syns_of_an_address_do_not_use_up_its_new_connections() {
    // 198.18.0.0/15 is forged at 2000 SYNs a second, and the user has all of it and the client.
    let user = "[[user]]\nname = \"acme\"\nsources = [\"10.99.0.2\", \"198.18.0.0/15\"]\nnetwork = [\"10 syns/s burst 10\"]";
    let (accepted, took) = connections(&policy("", "", user));
    let bound = BURST + (PER_SEC as f64 * took.as_secs_f64()) as u64;
    println!("{accepted} connections in {took:?}, {bound} are the most");
    assert!(accepted <= bound && accepted * 2 >= bound, "{accepted} connections of {bound}");
}
