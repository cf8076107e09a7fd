//! Packets longer than their length field can say: the kernel makes them of many segments before generic XDP sees them.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use aya::programs::xdp::XdpMode;
use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{
    frames::{ACK, IPV4, IPV6, Ipv4, Ipv6, TCP, VLAN, ethernet, tag, tcp},
    loaded::Loaded,
    memory::Memory,
    netns::{EDGE, EDGE_V6, NET, Wire, run},
    policies,
};
use ratelimit_user::compile::lists::Lists;

const CLIENT_V6: &str = "fd00:99:1::2";
const HOP_BY_HOP: u8 = 0;

/// A segment so long that its packet has to say so elsewhere; short enough for a test run, which has a few buffers only.
fn segment(len: usize) -> Vec<u8> {
    let mut segment = tcp(ACK);
    segment.resize(len, 0x5a);
    segment
}

fn v4(segment: &[u8]) -> Vec<u8> {
    Ipv4 { total_len: Some(0), ..Ipv4::from([192, 0, 2, 1]) }.carrying(TCP, segment)
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    Ipv6 { payload_len: Some(0), ..Ipv6::from("2001:db8::1".parse().unwrap()) }.carrying(next, payload)
}

/// The older form: a hop-by-hop header with the real length (RFC 2675).
fn jumbo(segment: &[u8]) -> Vec<u8> {
    let len = (segment.len() as u32 + 8).to_be_bytes();
    v6(HOP_BY_HOP, &[&[TCP, 0, 0xc2, 4], &len[..], segment].concat())
}

const LIMITS: &[&str] = &["1000 packets/s"];

fn loaded() -> Loaded {
    Loaded::with_sources(&policies::limits(LIMITS), 1_024)
}

/// What becomes of a frame, in the kernel and beside it.
fn judge(loaded: &mut Loaded, frame: &[u8]) -> (Verdict, Reason) {
    let outcome = loaded.outcome(frame);
    let memory = Memory::new(&policies::limits(LIMITS), Lists::default());
    assert_eq!(memory.run(frame), outcome.verdict);
    let [(reason, counter)] = outcome.moved[..] else { panic!("{outcome:?}") };
    assert_eq!((counter.packets, counter.bytes), (1, frame.len() as u64), "charged for all of it");
    let beside: Vec<_> = memory.counters().into_iter().filter(|(_, counter)| counter.packets > 0).collect();
    assert_eq!(beside, [(reason, counter)]);
    (outcome.verdict, reason)
}

#[test]
fn a_packet_beyond_64_kb_that_says_no_length_is_as_long_as_its_frame() {
    let (mut loaded, long) = (loaded(), segment(66_000));
    for (name, frame) in [
        ("IPv4", ethernet(IPV4, &v4(&long))),
        ("IPv4 in a VLAN", ethernet(VLAN, &tag(IPV4, &v4(&long)))),
        ("IPv6", ethernet(IPV6, &v6(TCP, &long))),
        ("IPv6, the older form", ethernet(IPV6, &jumbo(&long))),
    ] {
        assert_eq!(judge(&mut loaded, &frame), (Verdict::Pass, Reason::Conforming), "{name}");
    }
}

#[test]
fn a_packet_that_could_say_its_length_and_does_not_stays_refused() {
    let mut loaded = loaded();
    // To the byte: the longest that could have said its length, and the first that could not.
    let rows = [(40, false), (1_480, false), (65_515, false), (65_516, true)];
    for (len, passes) in rows {
        let expected = if passes { Reason::Conforming } else { Reason::BadIpHeader };
        assert_eq!(judge(&mut loaded, &ethernet(IPV4, &v4(&segment(len)))).1, expected, "IPv4, {len}");
    }
    for (len, passes) in [(40, false), (1_480, false), (65_535, false), (65_536, true)] {
        let expected = if passes { Reason::Conforming } else { Reason::Truncated };
        assert_eq!(judge(&mut loaded, &ethernet(IPV6, &v6(TCP, &segment(len)))).1, expected, "IPv6, {len}");
    }
    assert_eq!(judge(&mut loaded, &ethernet(IPV6, &jumbo(&segment(1_480)))).1, Reason::Truncated);
    // A length that is said counts, however long the frame is.
    let said = Ipv4 { total_len: Some(19), ..Ipv4::from([192, 0, 2, 1]) }.carrying(TCP, &segment(66_000));
    assert_eq!(judge(&mut loaded, &ethernet(IPV4, &said)).1, Reason::BadIpHeader);
}

#[test]
fn a_transfer_in_generic_mode_works_where_the_kernel_makes_packets_of_200_kb() {
    const TRANSFER: usize = 64 << 20;
    let wire = Wire::new();
    wire.add_source(CLIENT_V6.parse().unwrap());
    for (mut ip, interface) in [(wire.on_edge("ip"), EDGE), (wire.in_net("ip"), NET)] {
        let sizes = ["gso_max_size", "200000", "gro_max_size", "200000"];
        run(ip.args(["link", "set", "dev", interface]).args(sizes));
    }
    let mut loaded = wire.as_edge(|| {
        let mut loaded = Loaded::new(&policies::limits(&["10000000 packets/s"]));
        loaded.xdp().attach(EDGE, XdpMode::Skb).expect("attach in generic mode");
        loaded
    });
    let listener = wire.as_edge(|| TcpListener::bind((EDGE_V6, 4711)).unwrap());
    let mut client = wire.as_net(|| TcpStream::connect((EDGE_V6, 4711)).unwrap());
    let (mut served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let writing = thread::spawn(move || {
        let piece = vec![7; 1 << 20];
        (0..TRANSFER >> 20).try_for_each(|_| client.write_all(&piece)).map(|()| client)
    });
    let (mut buffer, mut received) = (vec![0; 1 << 20], 0);
    while received < TRANSFER {
        match served.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) => received += len,
        }
    }
    let seen: Vec<_> = loaded.counters().into_iter().filter(|(_, counter)| counter.packets > 0).collect();
    println!("received {received}, {seen:?}");
    for reason in [Reason::BadIpHeader, Reason::Truncated] {
        assert_eq!(loaded.count(reason), 0, "{reason:?}: {seen:?}");
    }
    assert_eq!(received, TRANSFER, "{seen:?}");
    drop(served);
    let _client = writing.join().unwrap();
    let _xdp = loaded.xdp();
}
