//! Honest sources whose prefix is attacked from inside: somebody forges the addresses around them.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Stdio},
    sync::mpsc::{self, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{
    daemon::{Edge, binary},
    frames::Ipv4,
    memory::Memory,
    netns::EDGE_V4,
    policies,
};
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;
/// What one source may have, and how many sources' worth a /24 may have by default.
const PER_SEC: u64 = 100;
const BURST: u64 = 100;
const MULTIPLE: u64 = 32;
const LIMITS: &str = "limits = [\"100 packets/s burst 100\"]";

/// What became of packets in a /24 of which all other addresses are forged.
struct Outcome {
    /// Packets of each quiet source that passed and that did not, after the first two seconds.
    quiet: Vec<(u64, u64)>,
    /// The moments at which packets of any source passed.
    passed: Vec<u64>,
}

/// So many packets a second from forged addresses in a random order, and quiet sources at their own pace.
fn attack(forged_per_sec: u64, quiet_per_sec: &[u64], seconds: u64) -> Outcome {
    attack_in_bursts(forged_per_sec, 1, quiet_per_sec, seconds)
}

/// The attack in bursts: so many forged packets come at once.
fn attack_in_bursts(forged_per_sec: u64, at_once: u64, quiet_per_sec: &[u64], seconds: u64) -> Outcome {
    let memory = Memory::new(&policies::source(LIMITS), Default::default());
    let mut random = fastrand::Rng::with_seed(11);
    let frame = |host: u8| Ipv4::from(Ipv4Addr::new(192, 0, 2, host)).udp_frame(8);
    let frames: Vec<Vec<u8>> = (0..=255).map(frame).collect();
    let start = memory.now_ns.get();
    let mut outcome = Outcome { quiet: vec![(0, 0); quiet_per_sec.len()], passed: Vec::new() };
    let mut due: Vec<u64> = quiet_per_sec.iter().map(|_| start).collect();
    for forged in 0..forged_per_sec * seconds {
        let now = start + forged / at_once * at_once * SECOND / forged_per_sec;
        memory.now_ns.set(now);
        for (which, per_sec) in quiet_per_sec.iter().enumerate() {
            if due[which] > now {
                continue;
            }
            due[which] += SECOND / per_sec;
            let pass = memory.run(&frames[which + 1]) == Verdict::Pass;
            if pass {
                outcome.passed.push(now);
            }
            if now - start >= 2 * SECOND {
                let (passed, refused) = &mut outcome.quiet[which];
                *(if pass { passed } else { refused }) += 1;
            }
        }
        let host = random.u8(quiet_per_sec.len() as u8 + 1..);
        if memory.run(&frames[usize::from(host)]) == Verdict::Pass {
            outcome.passed.push(now);
        }
    }
    outcome
}

#[test]
fn quiet_sources_lose_nothing_while_all_addresses_around_them_are_forged() {
    for (forged_per_sec, seconds) in [(20_000, 12), (400_000, 5)] {
        let Outcome { quiet, .. } = attack(forged_per_sec, &[8, 8, 4, 1], seconds);
        for (passed, refused) in quiet {
            assert!(passed > 0);
            assert_eq!(refused, 0, "{passed} passed of a quiet source beside {forged_per_sec}/s");
        }
    }
}

#[test]
fn quiet_sources_lose_nothing_while_forged_packets_come_in_bursts() {
    for at_once in [100, 1_000, 4_000] {
        let Outcome { quiet, .. } = attack_in_bursts(20_000, at_once, &[8, 7, 4, 1], 12);
        for (passed, refused) in quiet {
            assert_eq!(refused, 0, "{passed} passed of a quiet source beside {at_once} at once");
        }
    }
}

#[test]
fn rotation_inside_a_prefix_is_held_to_its_multiple_in_every_interval() {
    for (forged_per_sec, seconds) in [(20_000, 8), (100_000, 4)] {
        let Outcome { passed, .. } = attack(forged_per_sec, &[8, 8, 4, 1], seconds);
        for (first, start) in passed.iter().enumerate().step_by(37) {
            for last in [passed.len() - 1, first + (passed.len() - 1 - first) / 2] {
                let window = passed[last] - start;
                let bound = MULTIPLE * (BURST * SECOND + PER_SEC * window) / SECOND;
                let count = (last - first + 1) as u64;
                assert!(count <= bound, "{count} in {window} ns, {bound} are the most");
            }
        }
        let earned = MULTIPLE * PER_SEC * seconds;
        let all = passed.len() as u64;
        assert!(all * 10 >= earned * 9, "{all} passed of {earned} that the prefix may have");
    }
}

#[test]
fn a_source_that_wants_more_than_an_equal_share_gets_an_equal_share() {
    // 32 sources' worth for 255 of them: an eighth of 100 packets/s each.
    let Outcome { quiet, .. } = attack(50_000, &[8, 60], 10);
    let (passed, refused) = quiet[1];
    let seconds = 8;
    assert!(
        (9 * seconds..18 * seconds).contains(&passed),
        "{passed} passed, {refused} refused in {seconds} s"
    );
    assert_eq!(quiet[0].1, 0, "the quiet one is not concerned");
}

#[test]
fn a_prefix_that_is_not_crowded_squeezes_nobody() {
    // Sixteen sources that use all of their bursts at once, of thirty-two sources' worth.
    let memory = Memory::new(&policies::source(LIMITS), Default::default());
    for host in 1..=16 {
        let frame = Ipv4::from(Ipv4Addr::new(192, 0, 2, host)).udp_frame(8);
        let passed = (0..BURST).filter(|_| memory.run(&frame) == Verdict::Pass).count() as u64;
        assert!(passed >= BURST * 7 / 8, "{passed} of source {host}");
    }
    assert_eq!(memory.counters()[Reason::LimitPrefix as usize].1.packets, 0);
}

const PORT: u16 = 4713;
const CLIENTS: [&str; 3] = ["10.99.7.11", "10.99.7.12", "10.99.7.13"];

/// The default prefix aggregation around sources of 100 packets/s.
const POLICY: &str = "[source]\nlimits = [\"100 packets/s burst 100\"]\n";

fn at() -> SocketAddr {
    SocketAddr::new(EDGE_V4.parse().unwrap(), PORT)
}

/// Forges addresses of the clients' /24, but not theirs.
fn forge(edge: &Edge, kind: &str, pps: Option<u64>, seconds: u64) -> Child {
    let mut command = edge.wire.in_net(binary("traffic"));
    command.args(["forge", "--to", &at().to_string(), "--kind", kind, "--for", &seconds.to_string()]);
    command.args(["--within", "10.99.7.0/24"]);
    CLIENTS.iter().for_each(|client| {
        command.args(["--spare", client]);
    });
    if let Some(pps) = pps {
        command.args(["--pps", &pps.to_string()]);
    }
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn sent(flood: Child) -> u64 {
    let output = flood.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["sent"].as_u64().unwrap()
}

fn edge() -> Edge {
    let edge = Edge::new();
    CLIENTS.iter().for_each(|client| edge.wire.add_source(client.parse().unwrap()));
    edge
}

/// Waits until the prefix refuses somebody.
fn wait_for_pressure(edge: &Edge) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while edge.dropped("limit_prefix") < 10_000 {
        assert!(Instant::now() < deadline, "the prefix was never used up");
    }
}

#[test]
fn real_datagrams_at_a_quiet_pace_all_arrive_beside_forged_neighbours() {
    let edge = edge();
    let _daemon = edge.start(POLICY);
    let server = edge.wire.as_edge(|| UdpSocket::bind(at()).unwrap());
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // What the socket loses would be taken for what the limiter dropped.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&server, 64 << 20).unwrap();
    for pps in [Some(20_000), None] {
        let flood = forge(&edge, "udp", pps, 8);
        wait_for_pressure(&edge);
        // The flood has begun: what the prefix had saved up is gone, and shares are settling.
        thread::sleep(Duration::from_secs(1));
        let clients = CLIENTS.map(|client| edge.wire.as_net(|| UdpSocket::bind((client, 0)).unwrap()));
        let reader = server.try_clone().unwrap();
        // Sending takes longer than five seconds on a busy machine, so the wait for the last datagrams begins when they were sent.
        let (last_was_sent, ending) = mpsc::channel::<()>();
        let counting = thread::spawn(move || {
            let (mut got, mut buffer, mut deadline) = (0_usize, [0; 64], None);
            while deadline.is_none_or(|deadline| Instant::now() < deadline) {
                if ending.try_recv() == Err(TryRecvError::Disconnected) {
                    deadline.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
                }
                got += usize::from(
                    reader.recv(&mut buffer).is_ok_and(|len| &buffer[..len] == b"quiet and honest"),
                );
            }
            got
        });
        // Each client sends eight packets a second, in turn.
        let offered = 5 * 8 * CLIENTS.len();
        for turn in 0..offered {
            clients[turn % CLIENTS.len()].send_to(b"quiet and honest", at()).unwrap();
            thread::sleep(Duration::from_secs(5) / offered as u32);
        }
        drop(last_was_sent);
        let got = counting.join().unwrap();
        let forged = sent(flood);
        println!("{got} of {offered} arrived beside {forged} forged in 8 s");
        // The socket's queue is shared with what the prefix may have, so a busy machine may lose one.
        assert!(got * 100 >= offered * 99, "{got} of {offered} arrived beside {forged} forged in 8 s");
    }
}

#[test]
fn an_established_connection_and_fresh_ones_are_not_refused_while_their_prefix_is_forged() {
    let edge = edge();
    let _daemon = edge.start(POLICY);
    let listener = edge.wire.as_edge(|| TcpListener::bind(at()).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..read]).unwrap();
                }
            });
        }
    });
    let connect = |from: &str| {
        let from: SocketAddr = SocketAddr::new(from.parse().unwrap(), 0);
        edge.wire.as_net(move || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect_timeout(&at().into(), Duration::from_secs(3)).map(|()| TcpStream::from(socket))
        })
    };
    let echo = |stream: &mut TcpStream, round: u8| {
        let asked = Instant::now();
        let mut answer = [0; 16];
        stream.write_all(&[round; 16]).unwrap();
        stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(answer, [round; 16]);
        asked.elapsed()
    };
    let mut old = connect(CLIENTS[1]).unwrap();
    old.set_nodelay(true).unwrap();
    old.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    echo(&mut old, 0);
    let flood = forge(&edge, "ack", None, 8);
    wait_for_pressure(&edge);
    let mut slowest = Duration::ZERO;
    // Well below its own limit: a segment and an acknowledgement each time.
    for round in 0..100 {
        slowest = slowest.max(echo(&mut old, round));
        thread::sleep(Duration::from_millis(40));
    }
    let mut connected = 0;
    for round in 0..10 {
        if let Ok(mut fresh) = connect(CLIENTS[2]) {
            fresh.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            echo(&mut fresh, round);
            connected += 1;
        }
    }
    let forged = sent(flood);
    println!(
        "slowest of 100 round trips {slowest:?}, {connected} of 10 connected, beside {forged} forged in 8 s"
    );
    let explained = edge.json(&["explain", CLIENTS[1]]);
    assert_eq!(explained["last_drops"], Value::Array(Vec::new()), "nothing of it was refused");
    assert!(explained["own"]["proven_for_ms"].as_u64().is_some_and(|ms| ms > 500_000), "{explained}");
    // The flood fills the queue of the wire, which drops whatever comes then; what it lost is sent again after 200 ms.
    assert!(slowest < Duration::from_millis(1_200), "{slowest:?}");
    let fresh = edge.json(&["explain", CLIENTS[2]]);
    assert_eq!(fresh["last_drops"], Value::Array(Vec::new()), "nothing of it was refused");
    // A SYN that the wire lost twice is sent again after the patience of a client.
    assert!(connected >= 9, "{connected} of 10");
}
