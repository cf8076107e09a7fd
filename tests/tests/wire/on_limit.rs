//! What becomes of a packet that a limit refuses: the bytes that the real program makes of it, and what a real client sees.

use std::{
    io::{ErrorKind, Read as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use ratelimit_common::abi::{Reason, Verdict, counter::Fate};
use ratelimit_tests::{
    daemon::Edge,
    frames::{ACK, IPV4, IPV6, Ipv4, Ipv6, SYN, TCP, UDP, VLAN, ethernet, folded, fragment, tag},
    loaded::Loaded,
    netns::{EDGE_V4, EDGE_V6},
    policies,
};
use socket2::{Domain, Protocol, Socket, Type};

const FIN: u8 = 0x01;
const RST: u8 = 0x04;

/// Nothing is left of anything from the second packet on.
const POLICY: &str = r#"
[source]
limits = ["100000 packets/s"]
ladder = false
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
per_source = ["1 packet/day"]
on_limit = "reject"
[[service]]
name = "game"
match = { protocol = "udp", ports = [4000] }
per_source = ["1 packet/day"]
on_limit = "reject"
[[service]]
name = "bulk"
match = { protocol = "udp", ports = [5000] }
per_source = ["1 packet/day"]
on_limit = "mark"
dscp = "cs1"
"#;

/// From port 49153 to another.
fn ports(to: u16) -> Vec<u8> {
    [&[0xc0, 0x01][..], &to.to_be_bytes()].concat()
}

fn tcp(flags: u8, data: usize) -> Vec<u8> {
    let mut header = ports(80);
    header.extend(0x0102_0304_u32.to_be_bytes());
    header.extend(0x0a0b_0c0d_u32.to_be_bytes());
    header.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    header.extend(vec![7; data]);
    header
}

fn udp(to: u16, data: usize) -> Vec<u8> {
    let mut header = ports(to);
    header.extend((8 + data as u16).to_be_bytes());
    header.extend([0, 0]);
    header.extend(vec![9; data]);
    header
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ipv4::from([192, 0, 2, 1]).carrying(protocol, payload)
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    Ipv6::from("2001:db8::1".parse().unwrap()).carrying(protocol, payload)
}

/// A program whose limits for both families are used up.
fn spent() -> Loaded {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    for packet in [tcp(SYN, 0), udp(4000, 4), udp(5000, 4)] {
        let protocol = if packet.len() == 20 { TCP } else { UDP };
        assert_eq!(loaded.run(&ethernet(IPV4, &v4(protocol, &packet))), Verdict::Pass);
        assert_eq!(loaded.run(&ethernet(IPV6, &v6(protocol, &packet))), Verdict::Pass);
    }
    loaded
}

fn count(loaded: &Loaded, fate: Fate) -> u64 {
    let counts = loaded.maps.counts().unwrap();
    counts
        .iter()
        .filter(|count| count.fate == fate && count.reason.is_limit())
        .map(|count| count.counter.packets)
        .sum()
}

/// The body of a reply and the sum over everything that its checksum covers, with all else about the frame checked.
fn body<'r>(reply: &'r [u8], request: &[u8], tags: usize, protocol: u8) -> (&'r [u8], u16) {
    let l3 = 14 + tags * 4;
    assert_eq!(reply[..6], request[6..12], "to whom it came from");
    assert_eq!(reply[6..12], request[..6]);
    assert_eq!(reply[12..l3], request[12..l3], "tags and type stay");
    let (ip, old) = (&reply[l3..], &request[l3..]);
    if ip[0] >> 4 == 4 {
        assert_eq!((ip[0], ip[8], ip[9]), (0x45, 64, protocol));
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len(), "its length is the frame's");
        assert_eq!(folded(&ip[..20]), 0xffff, "IPv4 checksum");
        assert_eq!((&ip[12..16], &ip[16..20]), (&old[16..20], &old[12..16]), "addresses change places");
        let pseudo = [&ip[12..20], &[0, protocol], &((ip.len() - 20) as u16).to_be_bytes()].concat();
        let covered = if protocol == 1 { ip[20..].to_vec() } else { [&pseudo, &ip[20..]].concat() };
        (&ip[20..], folded(&covered))
    } else {
        assert_eq!((ip[0], ip[6], ip[7]), (0x60, protocol, 64));
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
        assert_eq!((&ip[8..24], &ip[24..40]), (&old[24..40], &old[8..24]));
        let pseudo = [&ip[8..40], &[0, protocol], &((ip.len() - 40) as u16).to_be_bytes()].concat();
        (&ip[40..], folded(&[&pseudo, &ip[40..]].concat()))
    }
}

#[test]
fn a_refused_segment_gets_the_reset_that_a_closed_port_would_send() {
    let mut loaded = spent();
    let acknowledges = |length: u32| (0_u32, 0x0102_0304 + length, RST | ACK);
    let continues = (0x0a0b_0c0d_u32, 0, RST);
    // Name, packet, tags, and what is expected: sequence, acknowledgement, flags.
    let rows = [
        ("a SYN", ethernet(IPV4, &v4(TCP, &tcp(SYN, 0))), 0, acknowledges(1)),
        ("a SYN with data", ethernet(IPV4, &v4(TCP, &tcp(SYN, 100))), 0, acknowledges(101)),
        ("a FIN without ACK", ethernet(IPV4, &v4(TCP, &tcp(FIN, 3))), 0, acknowledges(4)),
        ("an acknowledgement", ethernet(IPV4, &v4(TCP, &tcp(ACK, 0))), 0, continues),
        ("data", ethernet(IPV4, &v4(TCP, &tcp(ACK, 1000))), 0, continues),
        ("a tagged SYN", ethernet(VLAN, &tag(IPV4, &v4(TCP, &tcp(SYN, 0)))), 1, acknowledges(1)),
        ("a SYN over IPv6", ethernet(IPV6, &v6(TCP, &tcp(SYN, 0))), 0, acknowledges(1)),
        ("data over IPv6", ethernet(IPV6, &v6(TCP, &tcp(ACK, 99))), 0, continues),
    ];
    for (name, request, tags, (sequence, acknowledged, flags)) in &rows {
        let (verdict, reply) = loaded.rewrite(request);
        assert_eq!(verdict, Verdict::Reply, "{name}");
        let (tcp, sum) = body(&reply, request, *tags, TCP);
        assert_eq!(sum, 0xffff, "{name}: checksum");
        assert_eq!(tcp[..4], [0, 80, 0xc0, 0x01], "{name}: ports change places");
        assert_eq!(tcp[4..8], sequence.to_be_bytes(), "{name}: sequence");
        assert_eq!(tcp[8..12], acknowledged.to_be_bytes(), "{name}: acknowledgement");
        assert_eq!((tcp[12], tcp[13], tcp.len()), (0x50, *flags, 20), "{name}");
    }
    assert_eq!(count(&loaded, Fate::Rejected), rows.len() as u64);
    assert_eq!(count(&loaded, Fate::Decided), 0);
}

#[test]
fn a_refused_datagram_gets_an_icmp_error_that_repeats_its_headers() {
    let mut loaded = spent();
    let rows = [
        ("an empty one", ethernet(IPV4, &v4(UDP, &udp(4000, 0))), 0),
        ("a long one", ethernet(IPV4, &v4(UDP, &udp(4000, 1400))), 0),
        ("a tagged one", ethernet(VLAN, &tag(IPV4, &v4(UDP, &udp(4000, 20)))), 1),
        ("one over IPv6", ethernet(IPV6, &v6(UDP, &udp(4000, 0))), 0),
        ("a long one over IPv6", ethernet(IPV6, &v6(UDP, &udp(4000, 1200))), 0),
    ];
    for (name, request, tags) in &rows {
        let (verdict, reply) = loaded.rewrite(request);
        assert_eq!(verdict, Verdict::Reply, "{name}");
        let ip = &request[14 + tags * 4..];
        let (protocol, kind, headers) = if ip[0] >> 4 == 4 { (1, [3, 13], 20) } else { (58, [1, 1], 40) };
        let (error, sum) = body(&reply, request, *tags, protocol);
        assert_eq!(sum, 0xffff, "{name}: checksum");
        assert_eq!(error[..2], kind, "{name}: administratively prohibited");
        assert_eq!(error[4..8], [0; 4]);
        assert_eq!(error[8..], ip[..headers + 8], "{name}: the headers of the packet");
    }
}

#[test]
fn nobody_who_could_be_somebody_else_is_told_and_nothing_that_is_an_answer_itself() {
    let mut loaded = spent();
    let mut to_group = ethernet(IPV4, &v4(UDP, &udp(4000, 4)));
    to_group[0] |= 1;
    let mut to_address_group = v4(UDP, &udp(4000, 4));
    to_address_group[16] = 224;
    let mut to_group_v6 = v6(UDP, &udp(4000, 4));
    to_group_v6[24] = 0xff;
    let mut optioned = Ipv4 { options: 4, ..Ipv4::from([192, 0, 2, 1]) }.carrying(UDP, &udp(4000, 4));
    optioned[20] = 1;
    let first_fragment = {
        let mut packet = v4(UDP, &udp(4000, 64));
        packet[6] = 0x20;
        packet
    };
    let fragment_v6 = v6(44, &[&fragment(UDP, 0, true)[..], &udp(4000, 64)].concat());
    let rows = [
        ("a reset", ethernet(IPV4, &v4(TCP, &tcp(RST, 0)))),
        ("a reset that acknowledges", ethernet(IPV6, &v6(TCP, &tcp(RST | ACK, 0)))),
        ("what was sent to a group of stations", to_group),
        ("what was sent to a group of hosts", ethernet(IPV4, &to_address_group)),
        ("the same over IPv6", ethernet(IPV6, &to_group_v6)),
        ("the first piece of a packet", ethernet(IPV4, &first_fragment)),
        ("the same over IPv6", ethernet(IPV6, &fragment_v6)),
        ("a datagram with IP options", ethernet(IPV4, &optioned)),
    ];
    for (name, request) in &rows {
        let (verdict, left) = loaded.rewrite(request);
        assert_eq!(verdict, Verdict::Drop, "{name}");
        assert_eq!(&left, request, "{name}: not touched");
    }
    assert_eq!((count(&loaded, Fate::Rejected), count(&loaded, Fate::Decided)), (0, rows.len() as u64));
    // Sources that are no host's: from nobody, from a group. Their own first packet passes.
    for source in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        let frame = ethernet(IPV4, &Ipv4::from(source).carrying(UDP, &udp(4000, 4)));
        loaded.run(&frame);
        assert_eq!(loaded.run(&frame), Verdict::Drop, "{source:?}");
    }
}

#[test]
fn a_flood_of_refused_packets_gets_no_more_answers_than_the_allowance() {
    let mut loaded = spent();
    let frame = ethernet(IPV4, &v4(UDP, &udp(4000, 4)));
    let told = (0..5_000).filter(|_| loaded.run(&frame) == Verdict::Reply).count();
    // A tenth of a second's worth at once; the run itself takes a moment.
    assert!((100..1_000).contains(&told), "{told}");
    assert_eq!(count(&loaded, Fate::Rejected) + count(&loaded, Fate::Decided), 5_000);
}

#[test]
fn a_marked_packet_passes_with_another_class_and_a_right_checksum() {
    let mut loaded = spent();
    let tagged = ethernet(VLAN, &tag(IPV4, &v4(UDP, &udp(5000, 30))));
    for (request, tags) in [(ethernet(IPV4, &v4(UDP, &udp(5000, 30))), 0), (tagged, 1)] {
        let (verdict, marked) = loaded.rewrite(&request);
        assert_eq!(verdict, Verdict::Pass);
        let (ip, old) = (&marked[14 + tags * 4..], &request[14 + tags * 4..]);
        assert_eq!(ip[1], 8 << 2);
        assert_eq!(folded(&ip[..20]), folded(&old[..20]), "the checksum is as right as it was");
        assert_eq!((&ip[2..10], &ip[12..]), (&old[2..10], &old[12..]), "nothing else has changed");
    }
    let request = ethernet(IPV6, &v6(UDP, &udp(5000, 30)));
    let (verdict, marked) = loaded.rewrite(&request);
    assert_eq!(verdict, Verdict::Pass);
    assert_eq!(u16::from_be_bytes([marked[14], marked[15]]) >> 6 & 63, 8);
    assert_eq!(marked[16..], request[16..]);
    assert_eq!(count(&loaded, Fate::Marked), 3);
    assert_eq!(loaded.count(Reason::LimitPackets), 0, "and nothing was dropped");
}

#[test]
fn on_trial_nothing_is_answered_or_marked() {
    let mut loaded = Loaded::new(&policies::policy(&format!("mode = \"monitor\"\n{POLICY}")));
    for packet in [v4(UDP, &udp(4000, 4)), v4(UDP, &udp(5000, 4)), v4(TCP, &tcp(SYN, 0))] {
        let frame = ethernet(IPV4, &packet);
        for _ in 0..3 {
            let (verdict, left) = loaded.rewrite(&frame);
            assert_eq!((verdict, left == frame), (Verdict::Pass, true));
        }
    }
    assert_eq!(count(&loaded, Fate::Waived), 6);
}

/// What a client and a host need for two packets each, and no more.
const WIRE_POLICY: &str = r#"
[source]
limits = ["100000 packets/s"]
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
per_source = ["2 syns/day"]
on_limit = "reject"
[[service]]
name = "game"
match = { protocol = "udp", ports = [4000] }
per_source = ["2 packets/day"]
on_limit = "reject"
[[service]]
name = "bulk"
match = { protocol = "udp", ports = [5000] }
per_source = ["2 packets/day"]
on_limit = "mark"
dscp = "af13"
"#;

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A host with a client beside it.
fn edge() -> Edge {
    let edge = Edge::new();
    for client in ["10.99.0.2", "fd00:99::2"] {
        edge.wire.add_source(client.parse().unwrap());
    }
    edge
}

fn connected(edge: &Edge, to: SocketAddr) -> UdpSocket {
    edge.wire.as_net(|| {
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    })
}

#[test]
fn a_client_that_connects_too_often_is_refused_at_once() {
    let edge = edge();
    let _replies = edge.wire.receive_replies();
    let _daemon = edge.start(WIRE_POLICY);
    for address in [EDGE_V4, EDGE_V6] {
        let to = at(address, 80);
        let _listener = edge.wire.as_edge(|| TcpListener::bind(to).unwrap());
        let connect = || edge.wire.as_net(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
        let _open = (connect().unwrap(), connect().unwrap());
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
    }
    let stats = edge.json(&["stats"]);
    assert_eq!(stats["rejected_by_reason"]["limit_syns"], 2, "{stats}");
}

#[test]
fn a_client_that_sends_too_much_udp_gets_the_icmp_error() {
    let edge = edge();
    let _replies = edge.wire.receive_replies();
    let _daemon = edge.start(WIRE_POLICY);
    // What Linux makes of "administratively prohibited" in each family: EHOSTUNREACH and EACCES.
    for (address, expected) in [(EDGE_V4, ErrorKind::HostUnreachable), (EDGE_V6, ErrorKind::PermissionDenied)]
    {
        let to = at(address, 4000);
        let _server = edge.wire.as_edge(|| UdpSocket::bind(to).unwrap());
        let client = connected(&edge, to);
        for _ in 0..3 {
            client.send(b"hello").unwrap();
        }
        let seen = client.recv(&mut [0; 16]).unwrap_err().kind();
        assert_eq!(seen, expected, "{address}: {}", edge.json(&["stats"]));
    }
}

#[test]
fn a_capture_on_the_host_shows_the_class_of_what_was_over_the_limit() {
    let edge = edge();
    let _daemon = edge.start(WIRE_POLICY);
    let to = at(EDGE_V4, 5000);
    let _server = edge.wire.as_edge(|| UdpSocket::bind(to).unwrap());
    // Sees whole IP packets, as the stack took them.
    let capture = edge.wire.as_edge(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap());
    capture.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let client = connected(&edge, to);
    for _ in 0..4 {
        client.send(b"hello").unwrap();
    }
    let mut classes = Vec::new();
    while classes.len() < 4 {
        let mut packet = [0; 128];
        let len = (&capture).read(&mut packet).expect("four packets");
        assert!(len >= 28, "{len}");
        if packet[22..24] == 5000_u16.to_be_bytes() {
            assert_eq!(folded(&packet[..20]), 0xffff, "IPv4 checksum");
            classes.push(packet[1] >> 2);
        }
    }
    assert_eq!(classes, [0, 0, 14, 14]);
    let stats = edge.json(&["stats"]);
    assert_eq!(stats["marked_by_reason"]["limit_packets"], 2, "{stats}");
}
