//! A spoofed flood that no port can be blamed for, against a real daemon, counted behind it by the kernel's own packet filter.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    daemon::Edge,
    netns::{EDGE_V4, NET, run},
    traffic::{PORT, edge_with_sources},
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const HONEST: &str = "10.99.0.2";
const PACKETS: u32 = 200_000;
/// Packets between two looks at the clock: few enough for the queue of the wire.
const BATCH: u32 = 64;

/// ICMP, GRE and a later fragment of UDP in turn, each from a source that is not ours.
fn packet(number: u32, to: Ipv4Addr) -> Vec<u8> {
    let (protocol, offset) = [(1_u8, 0_u16), (47, 0), (17, 185)][number as usize % 3];
    let mut packet = vec![0x45, 0, 0, 44, 0, 0];
    packet.extend(offset.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(Ipv4Addr::from(0xc612_0000 | number.wrapping_mul(0x9e37_79b9) >> 15).octets());
    packet.extend(to.octets());
    packet.extend([0; 24]);
    packet
}

/// Sends all of them, at fifty thousand a second.
fn flood(edge: &Edge) {
    let to: Ipv4Addr = EDGE_V4.parse().unwrap();
    edge.wire.as_net(|| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).expect("a raw socket");
        let destination = SockAddr::from(SocketAddr::from((to, 0)));
        let began = Instant::now();
        for number in 0..PACKETS {
            // What the queue of the wire does not take is lost there; the bound is on what arrives.
            let _sent = socket.send_to(&packet(number, to), &destination);
            let due = Duration::from_micros(u64::from(number) * 20);
            if number % BATCH == 0 {
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
    });
}

/// Packets of the flood that the host's stack got to see.
fn arrived(edge: &Edge) -> u64 {
    let output = run(edge.wire.on_edge("nft").args(["-j", "list", "counters"]));
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let counters = listing["nftables"].as_array().expect("a list");
    let counter = counters.iter().find_map(|one| one["counter"]["packets"].as_u64());
    counter.expect("the counter is there")
}

/// Counts, where packets enter the stack, those from the sources of the flood.
fn count_arrivals(edge: &Edge) {
    let rules = "add table inet arrivals; add counter inet arrivals forged; \
                 add chain inet arrivals first { type filter hook prerouting priority -500; }; \
                 add rule inet arrivals first ip saddr 198.18.0.0/15 counter name forged";
    run(edge.wire.on_edge("nft").args(rules.split(' ')));
}

/// Answers that a ping gets, of so many.
fn answers(mut ping: Command) -> u64 {
    let output = ping.output().expect("ping");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let received = text.split(", ").find_map(|part| part.strip_suffix(" received"));
    received.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn ping(edge: &Edge, count: &str, interval: &str) -> Command {
    let mut ping = edge.wire.in_net("ping");
    ping.args(["-n", "-I", HONEST, "-c", count, "-i", interval, "-W", "2", EDGE_V4]);
    ping
}

/// What arrives of the flood under a policy, how long it took, and how many of 60 pings were answered meanwhile.
fn under(policy: &str) -> (u64, f64, u64) {
    let edge = edge_with_sources(&[HONEST]);
    count_arrivals(&edge);
    let _daemon = edge.start(policy);
    // More than a cell vouches for, so it has an entry; and it goes on at its rate, so it keeps it.
    assert_eq!(answers(ping(&edge, "120", "0.01")), 120);
    let (mut took, mut answered) = (0.0, 0);
    thread::scope(|scope| {
        let pings = scope.spawn(|| {
            // The neighbour is forgotten, so that ARP has to find the host in the middle of the flood.
            run(edge.wire.in_net("ip").args(["neigh", "flush", "dev", NET]));
            answers(ping(&edge, "60", "0.05"))
        });
        let began = Instant::now();
        flood(&edge);
        took = began.elapsed().as_secs_f64();
        answered = pings.join().unwrap();
    });
    (arrived(&edge), took, answered)
}

#[test]
fn a_spoofed_flood_without_ports_is_held_to_the_total_of_the_host_and_an_honest_neighbour_pings_on() {
    let policy = |host: &str| {
        format!(
            "[source]\nlimits = [\"20 packets/s burst 400\"]\n{host}\n[[service]]\nname = \"attacked\"\n\
             match = {{ protocol = \"udp\", ports = [{PORT}] }}\ntotal = [\"1000 packets/s burst 1000\"]\n"
        )
    };
    let (open, ..) = under(&policy(""));
    assert!(open > u64::from(PACKETS) / 2, "{open} arrive where nothing but a service has a total");
    let (capped, took, answered) = under(&policy("[host]\ntotal = [\"2000 packets/s burst 2000\"]\n"));
    println!(
        "{PACKETS} sent: {open} arrive without a total of the host, {capped} with one in {took:.1} s; {answered} of 60 pings"
    );
    assert!(capped as f64 <= 2_000.0 + 2_000.0 * (took + 1.0), "{capped} arrived in {took} s");
    assert!(capped > 1_000, "{capped} arrived: untracked sources have their part");
    assert!(answered >= 57, "{answered} of 60 pings were answered");
}
