//! Services that share a port, told apart by destination: through the loaded program.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use ratelimit_common::abi::{Verdict, destination::MAX_DESTINATIONS};
use ratelimit_tests::{
    frames::{
        ACK, IPV4, IPV6, Ipv4, Ipv6, QINQ, TCP, UDP, VLAN, ethernet, extension, fragment, tag, tcp, udp,
    },
    loaded::{Loaded, run},
    memory::Memory,
    policies,
};
use ratelimit_user::{
    compile::{self, Before, Desired},
    config,
    dataplane::kernel::KernelMaps,
};

/// What the frames of these tests are for: UDP 53 and TCP 80.
const POLICY: &str = r#"
[source]
limits = ["50000000 packets/s"]
ladder = false
[[service]]
name = "rest"
match = { protocol = "udp", ports = [53] }
[[service]]
name = "wide"
match = { protocol = "udp", ports = [53], destinations = ["192.0.0.0/16", "2001:db8::/32", "::/0"] }
[[service]]
name = "narrow"
match = { protocol = "udp", ports = ["50-60"], destinations = ["192.0.2.0/24", "2001:db8:1::/48"] }
[[service]]
name = "one"
match = { protocol = "udp", ports = [53], destinations = ["192.0.2.7", "2001:db8:1::7"] }
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80], destinations = ["192.0.2.0/24"] }
total = ["5 packets/day"]
"#;

const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);

/// An IP packet, and what it is to Ethernet.
fn packet(to: &str, protocol: u8, payload: &[u8]) -> (u16, Vec<u8>) {
    match to.parse().unwrap() {
        IpAddr::V4(destination) => {
            (IPV4, Ipv4 { destination, options: 8, ..Ipv4::from(SOURCE_V4) }.carrying(protocol, payload))
        }
        IpAddr::V6(destination) => {
            (IPV6, Ipv6 { destination, ..Ipv6::from(SOURCE_V6) }.carrying(protocol, payload))
        }
    }
}

fn dns(to: &str) -> Vec<u8> {
    let (ether_type, packet) = packet(to, UDP, &udp(8));
    ethernet(ether_type, &packet)
}

/// Packets that each service has counted, and first those of none.
fn by_service(maps: &KernelMaps) -> Vec<u64> {
    let mut sums = Vec::new();
    for count in maps.counts().unwrap() {
        sums.resize(sums.len().max(count.service as usize + 1), 0);
        sums[count.service as usize] += count.counter.packets;
    }
    sums
}

/// The service that a frame is counted for; they are numbered by their names.
fn service(loaded: &mut Loaded, frame: &[u8]) -> &'static str {
    let before = by_service(&loaded.maps);
    loaded.run(frame);
    let after = by_service(&loaded.maps);
    let moved: Vec<usize> = (0..after.len()).filter(|n| before[*n] != after[*n]).collect();
    assert_eq!(moved.len(), 1, "{before:?} {after:?}");
    ["none", "narrow", "one", "rest", "web", "wide"][moved[0]]
}

#[test]
fn the_longest_destination_decides_and_a_service_without_takes_what_is_left() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    for (to, expected) in [
        ("192.0.2.7", "one"),
        ("192.0.2.8", "narrow"),
        ("192.0.3.1", "wide"),
        ("192.0.255.255", "wide"),
        ("192.1.0.0", "rest"),
        ("191.255.255.255", "rest"),
        ("0.0.0.0", "rest"),
        ("2001:db8:1::7", "one"),
        ("2001:db8:1::8", "narrow"),
        ("2001:db8:2::7", "wide"),
        ("::1", "wide"),
        ("ff02::1", "wide"),
    ] {
        assert_eq!(service(&mut loaded, &dns(to)), expected, "{to}");
    }
}

#[test]
fn tags_options_and_extension_headers_in_front_are_no_matter() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    for (to, expected) in [("192.0.2.7", "one"), ("192.0.3.1", "wide"), ("2001:db8:1::8", "narrow")] {
        let (kind, packet) = packet(to, UDP, &udp(8));
        for frame in [ethernet(VLAN, &tag(kind, &packet)), ethernet(QINQ, &tag(VLAN, &tag(kind, &packet)))] {
            assert_eq!(service(&mut loaded, &frame), expected, "{to}");
        }
    }
    let chain = [extension(60, 2), extension(UDP, 1), udp(8)].concat();
    let (_, chained) = packet("2001:db8:1::7", 0, &chain);
    assert_eq!(service(&mut loaded, &ethernet(IPV6, &chained)), "one");
    assert_eq!(service(&mut loaded, &ethernet(VLAN, &tag(IPV6, &chained))), "one");
}

#[test]
fn other_ports_and_protocols_are_divided_by_their_own_services() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    let to_port = |to: &str, port: u8| {
        let mut header = udp(8);
        header[3] = port;
        let (kind, packet) = packet(to, UDP, &header);
        ethernet(kind, &packet)
    };
    assert_eq!(service(&mut loaded, &to_port("192.0.2.7", 54)), "narrow", "nobody else is at port 54");
    assert_eq!(service(&mut loaded, &to_port("192.0.3.1", 54)), "none");
    assert_eq!(service(&mut loaded, &to_port("192.0.2.7", 61)), "none");
    let web = |to: &str| ethernet(IPV4, &packet(to, TCP, &tcp(ACK)).1);
    assert_eq!(service(&mut loaded, &web("192.0.2.1")), "web");
    assert_eq!(service(&mut loaded, &web("192.0.3.1")), "none", "nobody takes what is left");
    assert_eq!(loaded.run(&web("192.0.3.1")), Verdict::Pass);
    for _ in 0..20 {
        loaded.run(&web("192.0.2.1"));
    }
    assert_eq!(loaded.run(&web("192.0.2.1")), Verdict::Drop, "its total is spent");
    assert_eq!(loaded.run(&web("192.0.3.1")), Verdict::Pass, "and that is no matter to others");
}

#[test]
fn a_fragment_without_a_port_is_for_no_service() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    let to = Ipv4 { destination: [192, 0, 2, 7].into(), ..Ipv4::from(SOURCE_V4) };
    let first = Ipv4 { fragment: 0x2000, ..to.clone() }.udp_frame(64);
    let later = Ipv4 { fragment: 0x0010, ..to }.udp_frame(64);
    assert_eq!(service(&mut loaded, &first), "one");
    assert_eq!(service(&mut loaded, &later), "none");
    let piece = |offset| [fragment(UDP, offset, true), udp(64)].concat();
    let frame = |offset| ethernet(IPV6, &packet("2001:db8:1::7", 44, &piece(offset)).1);
    assert_eq!(service(&mut loaded, &frame(0)), "one");
    assert_eq!(service(&mut loaded, &frame(8)), "none");
}

/// Two services that have two prefixes between them, one way round or the other.
fn turned(first: &str, second: &str) -> String {
    let service = |name: &str, to: &str| {
        format!(
            "[[service]]\nname = {name:?}\nmatch = {{ protocol = \"udp\", ports = [53], destinations = [{to:?}] }}\n"
        )
    };
    format!(
        "[source]\nlimits = [\"50000000 packets/s\"]\nladder = false\n{}{}",
        service("a", first),
        service("b", second)
    )
}

fn follow(before: &Desired, text: &str) -> Desired {
    let in_force =
        Before { policy: &before.policy, names: &before.names, users: &[], desired: None, now_q8: 0 };
    let next = config::parse(text, "p.toml").unwrap().policy;
    compile::desired(&next, &policies::FACTS, before.policy.generation + 1, Some(in_force))
}

#[test]
fn destinations_that_change_leave_no_packet_without_a_service_in_between() {
    const CHANGES: usize = 60;
    let (one, other) = ("192.0.2.0/24", "198.51.100.0/24");
    let mut in_force = policies::policy(&turned(one, other));
    let mut loaded = Loaded::new(&in_force);
    let frame = dns("192.0.2.7");
    let (xdp, maps) = loaded.parts();
    let done = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0_u64;
            while !done.load(Ordering::Relaxed) {
                run(xdp, &frame, 1000);
                sent += 1000;
            }
            sent
        });
        for change in 0..CHANGES {
            // Every other policy has the services turned round, and every third gives the number of their class to port 52.
            let text = if change % 2 == 0 { turned(other, one) } else { turned(one, other) };
            let text = if change % 3 == 0 { text.replacen("[53]", "[52, 53]", 1) } else { text };
            in_force = follow(&in_force, &text);
            maps.set_policy(&in_force).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    let counted = by_service(&loaded.maps);
    assert_eq!(counted[0], 0, "packets for no service: {counted:?} of {sent}");
    assert_eq!(counted[1] + counted[2], sent);
    assert!(counted[1] > 0 && counted[2] > 0, "{counted:?}");
    // A destination that the policy no longer has counts for no service.
    let frame = dns("198.51.100.7");
    let none = follow(&in_force, &turned("192.0.2.0/25", "192.0.2.128/25"));
    loaded.maps.set_policy(&none).unwrap();
    let before = by_service(&loaded.maps);
    loaded.run(&frame);
    assert_eq!(by_service(&loaded.maps)[0], before[0] + 1);
}

#[test]
fn a_policy_without_destinations_after_one_with_them_asks_for_none() {
    let first = policies::policy(&turned("192.0.2.0/24", "198.51.100.0/24"));
    let mut loaded = Loaded::new(&first);
    let plain = turned("0.0.0.0/0", "::/0").replace(", destinations = [\"0.0.0.0/0\"]", "");
    let plain = plain.split("[[service]]\nname = \"b\"").next().unwrap().to_owned();
    let second = follow(&first, &plain);
    assert_eq!(second.destinations, []);
    loaded.maps.set_policy(&second).unwrap();
    let before = by_service(&loaded.maps);
    loaded.run(&dns("203.0.113.1"));
    assert_eq!(by_service(&loaded.maps)[1], before[1] + 1);
}

#[test]
fn the_map_holds_as_many_destinations_as_a_policy_may_have() {
    let prefixes: Vec<String> =
        (0..MAX_DESTINATIONS).map(|n| Ipv4Addr::from_bits(0xc000_0000 + n * 3).to_string()).collect();
    let text = turned("192.0.0.0", "::/0");
    let text = text.replace("[\"192.0.0.0\"]", &format!("{:?}", &prefixes[..prefixes.len() - 1]));
    let desired = policies::policy(&text);
    assert_eq!(desired.destinations.len(), MAX_DESTINATIONS as usize);
    let mut loaded = Loaded::new(&desired);
    let host = Memory::new(&desired, Default::default());
    for to in [&prefixes[0], &prefixes[777], &prefixes[prefixes.len() - 2]] {
        let before = by_service(&loaded.maps);
        assert_eq!(loaded.run(&dns(to)), host.run(&dns(to)));
        assert_eq!(by_service(&loaded.maps)[1], before[1] + 1, "{to}");
    }
}
