//! Clients that were never seen, behind a flood of forged queries: resolvers are sent to TCP, players are asked for a number, and both are known from then on.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    netns::{self, EDGE_V4, EDGE_V6},
    redis::wait_for,
};

fn policy(port: u16, challenge: &str) -> String {
    format!(
        "[source]\nlimits = [\"100000 packets/s\"]\n[[service]]\nname = \"udp\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\n\
         total = [\"1000 packets/s burst 2000\"]\nchallenge = \"{challenge}\"\n"
    )
}

/// The port of a game server.
const GAME: u16 = 27_015;

/// The addresses that the server answers with, so that a test sees how it was asked.
const OVER_UDP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OVER_TCP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// The response with one address to a query that has no records behind its question.
fn response(query: &[u8], address: Ipv4Addr) -> Vec<u8> {
    let name = query[12..].iter().position(|byte| *byte == 0).expect("a name");
    let question = &query[12..12 + name + 5];
    let record = [&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4][..], &address.octets()].concat();
    [&query[..2], &[0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0], question, &record].concat()
}

/// A name server at an address of the edge host, until the test ends.
fn serve(edge: &Edge, address: &str) {
    let at = SocketAddr::new(address.parse().unwrap(), 53);
    let (socket, listener) =
        edge.wire.as_edge(|| (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap()));
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            // A flood's datagrams are no queries.
            if len >= 17 && query[2] & 0x80 == 0 && query[5] == 1 {
                let _ = socket.send_to(&response(&query[..len], OVER_UDP), from);
            }
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut len = [0; 2];
            if stream.read_exact(&mut len).is_err() {
                continue;
            }
            let mut query = vec![0; u16::from_be_bytes(len).into()];
            stream.read_exact(&mut query).expect("a query");
            let response = response(&query, OVER_TCP);
            let len = (response.len() as u16).to_be_bytes();
            stream.write_all(&[&len[..], &response].concat()).expect("send a response");
        }
    });
}

/// The resolvers that are asked, each a program of another project.
const RESOLVERS: [&str; 3] = ["dig", "kdig", "unbound-host"];
/// How many addresses each resolver asks from. The last two are of IPv6.
const ADDRESSES: usize = 8;

fn address(resolver: usize, at: usize) -> IpAddr {
    let number = (10 * resolver + at) as u16;
    match at {
        0..6 => Ipv4Addr::new(10, 99, 1, number as u8 + 1).into(),
        _ => Ipv6Addr::new(0xfd00, 0x99, number, 0, 0, 0, 0, 1).into(),
    }
}

/// What a resolver prints for one question, asked from an address.
fn resolve(edge: &Edge, resolver: &str, from: IpAddr) -> String {
    let server = if from.is_ipv4() { EDGE_V4 } else { EDGE_V6 };
    let mut asked = edge.wire.in_net(resolver);
    if resolver == "unbound-host" {
        let conf = edge.dir().join("unbound.conf");
        let families = if from.is_ipv4() { "do-ip6: no" } else { "do-ip4: no" };
        let text = format!(
            "server:\n  outgoing-interface: {from}\n  {families}\n  module-config: \"iterator\"\n  do-not-query-localhost: no\n\
             stub-zone:\n  name: \"example.org\"\n  stub-addr: {server}\n  stub-prime: no\n"
        );
        fs::write(&conf, text).expect("write the settings of a resolver");
        asked.arg("-C").arg(conf).args(["-t", "A"]);
    } else {
        asked.args(["+short", "-b", &from.to_string(), &format!("@{server}")]);
    }
    String::from_utf8(netns::run(asked.arg("example.org")).stdout).expect("text")
}

/// A flood of forged datagrams to the server, faster than its total by far.
fn flood(edge: &Edge, port: u16) -> Child {
    edge.wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &format!("{EDGE_V4}:{port}"), "--within", "16.0.0.0/4"])
        .args(["--for", "120", "--pps", "20000"])
        .stdout(Stdio::null())
        .spawn()
        .expect("start a forger")
}

/// Waits until the flood has spent the total of the service.
fn wait_until_spent(edge: &Edge) {
    wait_for("a total that is spent", || {
        let dropped = edge.json(&["stats"])["drops_by_reason"]["service_total"].as_u64();
        (dropped > Some(20_000)).then_some(())
    });
}

fn challenged(edge: &Edge) -> u64 {
    edge.json(&["stats"])["rejected_by_reason"]["service_total"].as_u64().expect("a count")
}

#[test]
fn a_new_resolver_is_answered_over_tcp_and_then_known() {
    let edge = Edge::new();
    let addresses = |resolver| (0..ADDRESSES).map(move |at| address(resolver, at));
    (0..RESOLVERS.len()).flat_map(addresses).for_each(|source| edge.wire.add_source(source));
    let _replies = edge.wire.receive_replies();
    let _daemon = edge.start(&policy(53, "dns"));
    for address in [EDGE_V4, EDGE_V6] {
        serve(&edge, address);
    }
    let mut forger = flood(&edge, 53);
    wait_until_spent(&edge);
    let mut over_tcp = 0;
    for (at, resolver) in RESOLVERS.iter().enumerate() {
        for source in addresses(at) {
            let first = resolve(&edge, resolver, source);
            let is_over_tcp = first.contains(&OVER_TCP.to_string());
            // A twentieth of the flood passes, and so may a query.
            assert!(
                is_over_tcp || first.contains(&OVER_UDP.to_string()),
                "{resolver} from {source}: {first}"
            );
            if is_over_tcp {
                over_tcp += 1;
                for _ in 0..3 {
                    let again = resolve(&edge, resolver, source);
                    assert!(
                        again.contains(&OVER_UDP.to_string()),
                        "{resolver} from {source} is known: {again}"
                    );
                }
            }
        }
    }
    let asked = RESOLVERS.len() * ADDRESSES;
    println!("{over_tcp} of {asked} resolvers were sent to TCP");
    assert!(over_tcp >= asked * 3 / 4, "{over_tcp} of {asked} were sent to TCP");
    assert!(challenged(&edge) >= over_tcp as u64);
    forger.kill().expect("stop the forger");
    forger.wait().expect("its end");
}

/// The number by which a game server of the test recognises a client.
const OF_THE_SERVER: [u8; 4] = [0x0a, 0x0b, 0x0c, 0x0d];
const PLAYERS: u8 = 0x44;

/// A game server that answers `A2S_PLAYER` for its own number only, as real ones do, until the test ends.
fn serve_game(edge: &Edge) {
    let socket = edge.wire.as_edge(|| UdpSocket::bind((EDGE_V4, GAME)).unwrap());
    thread::spawn(move || {
        let mut query = [0; 64];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let response = match &query[..len] {
                [0xff, 0xff, 0xff, 0xff, 0x55, number @ ..] if number == OF_THE_SERVER => {
                    vec![0xff, 0xff, 0xff, 0xff, PLAYERS, 0]
                }
                [0xff, 0xff, 0xff, 0xff, 0x55, _, _, _, _] => {
                    [&[0xff, 0xff, 0xff, 0xff, 0x41][..], &OF_THE_SERVER].concat()
                }
                _ => continue,
            };
            let _ = socket.send_to(&response, from);
        }
    });
}

/// Asks who plays, and repeats the query with each number that comes back, as the protocol says. Returns how many numbers came.
fn players(socket: &UdpSocket) -> Option<usize> {
    let mut number = [0xff; 4];
    for challenges in 0..5 {
        let query = [&[0xff, 0xff, 0xff, 0xff, 0x55][..], &number].concat();
        socket.send(&query).expect("ask");
        let mut response = [0; 64];
        match socket.recv(&mut response).ok()? {
            9 if response[4] == 0x41 => number.copy_from_slice(&response[5..9]),
            6 if response[4] == PLAYERS => return Some(challenges),
            len => panic!("a response of {len} bytes: {response:?}"),
        }
    }
    None
}

#[test]
fn a_new_player_is_asked_for_a_number_and_then_known() {
    let edge = Edge::new();
    let sources: Vec<Ipv4Addr> = (1..=20).map(|last| Ipv4Addr::new(10, 99, 1, last)).collect();
    sources.iter().for_each(|source| edge.wire.add_source((*source).into()));
    let _replies = edge.wire.receive_replies();
    let _daemon = edge.start(&policy(GAME, "a2s"));
    serve_game(&edge);
    let mut forger = flood(&edge, GAME);
    wait_until_spent(&edge);
    let mut asked = 0;
    for source in sources {
        let socket = edge.wire.as_net(|| UdpSocket::bind((source, 0)).unwrap());
        socket.connect((EDGE_V4, GAME)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let numbers = players(&socket).unwrap_or_else(|| panic!("{source} got no answer"));
        // Two of the host and one of the server, unless its first query was among the twentieth that passes.
        if numbers == 3 {
            asked += 1;
            // Within the share that a known client may save up: eight packets.
            for _ in 0..3 {
                assert_eq!(players(&socket), Some(1), "{source} is known: only the server asks it");
            }
        }
    }
    println!("{asked} of 20 players were asked for a number");
    assert!(asked >= 15, "{asked} of 20 were asked");
    assert!(challenged(&edge) >= 2 * asked);
    forger.kill().expect("stop the forger");
    forger.wait().expect("its end");
}
