//! Interfaces of every kind, and interfaces that come, go and change their names, with a real daemon.

use std::{
    net::UdpSocket,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use aya::programs::links::PinnedLink;
use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{
    answer::{assert_refused, stdout},
    daemon::{Daemon, Edge},
    frames::{ACK, Ipv4, Ipv6, SYN, TCP, UDP, tcp},
    loaded::Loaded,
    netns::{EDGE, EDGE_V4, run},
    policies,
    tun::Tun,
};
use ratelimit_user::dataplane::{features, framing::Framing};
use serde_json::Value;

const TUN: &str = "tun0";
const TUN_V4: [u8; 4] = [10, 98, 0, 1];

/// Ten packets a day: no token comes back while a test runs.
const TEN: &str = "[source]\nlimits = [\"10 packets/day burst 10\"]\nladder = false\n";

fn start(edge: &Edge, interfaces: &[&str], policy: &str) -> Daemon {
    edge.write_policy(policy);
    start_again(edge, interfaces)
}

fn start_again(edge: &Edge, interfaces: &[&str]) -> Daemon {
    start_by(edge.run_command(), interfaces)
}

fn start_by(mut command: Command, interfaces: &[&str]) -> Daemon {
    for name in interfaces {
        command.args(["--iface", name]);
    }
    Daemon::start(command)
}

/// UDP to the tun interface's port 4000.
fn datagram(from: [u8; 4]) -> Vec<u8> {
    let packet = Ipv4 { destination: TUN_V4.into(), ..Ipv4::from(from) };
    let mut udp = vec![0x30, 0x39, 0x0f, 0xa0, 0, 12, 0, 0];
    udp.extend([0x5a; 4]);
    let mut packet = packet.carrying(UDP, &udp);
    let check = !ratelimit_tests::frames::folded(&packet[..20]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// Datagrams that are waiting.
fn received(socket: &UdpSocket) -> usize {
    socket.set_nonblocking(true).unwrap();
    std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count()
}

fn interfaces(edge: &Edge) -> Vec<(String, String, String)> {
    let status = edge.json(&["status"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |value: &Value| (text(&value["name"]), text(&value["mode"]), text(&value["link"]));
    let mut all: Vec<_> = status["interfaces"].as_array().unwrap().iter().map(one).collect();
    all.sort();
    all
}

fn names(edge: &Edge) -> Vec<String> {
    let protected = interfaces(edge).into_iter().filter(|(_, mode, _)| mode == "native" || mode == "generic");
    protected.map(|(name, ..)| name).collect()
}

fn on_edge(edge: &Edge, words: &[&str]) -> Output {
    run(edge.wire.on_edge("ip").args(words))
}

fn has_program(edge: &Edge, name: &str) -> bool {
    let output = edge.wire.on_edge("ip").args(["link", "show", "dev", name]).output().unwrap();
    stdout(&output).contains("xdp")
}

fn wait_until(what: &str, daemon: &Daemon, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}; {}", daemon.log());
    }
}

#[test]
fn packets_that_come_in_by_a_tunnel_are_limited_by_their_source() {
    let edge = Edge::new();
    let mut tun = Tun::new(&edge.wire, TUN, "10.98.0.1/8");
    let daemon = start(&edge, &[TUN], TEN);
    daemon.wait_for_log("tun0: attached, generic mode, frames are IP packets");
    let socket = edge.wire.as_edge(|| UdpSocket::bind("0.0.0.0:4000").unwrap());
    tun.send(&datagram([10, 98, 0, 2]), 500);
    assert_eq!(edge.passed("conforming"), 10, "of the first source");
    assert_eq!(edge.dropped("limit_packets"), 490);
    assert_eq!(received(&socket), 10, "what got through is what the socket has");
    // As an EtherType, the first half of these addresses would be IPv4 and IPv6.
    for source in [[8, 0, 0, 1], [134, 221, 0, 1]] {
        tun.send(&datagram(source), 20);
    }
    assert_eq!(edge.passed("conforming"), 30);
    assert_eq!(edge.dropped("limit_packets"), 510);
    let v6 = Ipv6::from("2001:db8::1".parse().unwrap());
    tun.send(&v6.carrying(UDP, &[0x30, 0x39, 0x0f, 0xa0, 0, 12, 0, 0, 1, 2, 3, 4]), 30);
    // Neighbours do not look for each other on such links, so this is no way around a limit.
    let hops = Ipv6 { hop_limit: 255, ..v6 };
    tun.send(&hops.carrying(58, &[135, 0, 0, 0, 0, 0, 0, 0]), 5);
    assert_eq!((edge.passed("conforming"), edge.dropped("limit_packets")), (40, 535));
    // Bytes are those of IP packets.
    tun.send(&datagram([192, 0, 2, 1]), 1);
    let bytes = |edge: &Edge| {
        let stats = edge.json(&["stats"]);
        stats["totals"]["passed_bytes"].as_u64().unwrap_or_else(|| panic!("{stats}"))
    };
    let before = bytes(&edge);
    tun.send(&datagram([192, 0, 2, 1]), 1);
    assert_eq!(bytes(&edge) - before, 32, "twenty of IP, eight of UDP, four of data");
    assert_eq!(edge.passed("not_ip"), 0);
}

#[test]
fn a_tunnel_and_an_ethernet_interface_share_one_policy_and_survive_a_killed_daemon() {
    let edge = Edge::new();
    edge.wire.add_source("10.99.0.2".parse().unwrap());
    let mut tun = Tun::new(&edge.wire, TUN, "10.98.0.1/16");
    start(&edge, &[EDGE, TUN], TEN).kill_9();
    let guarded = |name: &str, mode: &str, link: &str| (name.to_owned(), mode.to_owned(), link.to_owned());
    let both = [guarded(EDGE, "native", "ethernet"), guarded(TUN, "generic", "ip")];
    // Only the one is asked for; the other stays guarded, by the program for its kind.
    let daemon = start_again(&edge, &[EDGE]);
    daemon.wait_for_log("tun0 was guarded before and stays so");
    assert_eq!(interfaces(&edge), both);
    assert!(stdout(&edge.cli(&["status"])).contains("tun0: generic, frames are IP packets"));
    // Six of the ten that this source has come in by one interface, and four by the other.
    tun.send(&datagram([10, 99, 0, 2]), 6);
    edge.wire.as_net(|| {
        let socket = UdpSocket::bind("10.99.0.2:0").unwrap();
        for _ in 0..10 {
            socket.send_to(&[1; 4], (EDGE_V4, 4000)).unwrap();
        }
    });
    wait_until("all have been counted", &daemon, || {
        edge.passed("conforming") + edge.dropped("limit_packets") >= 16
    });
    let of_source = edge.json(&["explain", "10.99.0.2"]);
    assert!(edge.dropped("limit_packets") >= 6, "{of_source}");
    drop(tun);
    wait_until("its end is seen", &daemon, || daemon.log().contains("tun0 is gone"));
    // The interface comes back as one of another kind.
    on_edge(&edge, &["link", "add", TUN, "type", "veth", "peer", "name", "peer0"]);
    wait_until("it is guarded again", &daemon, || names(&edge).len() == 2);
    assert_eq!(interfaces(&edge), [both[0].clone(), guarded(TUN, "native", "ethernet")]);
}

/// Of an interface in another network namespace nothing can be asked, and the name of the program on it is told to CAP_SYS_ADMIN alone.
#[test]
fn a_tunnel_that_has_moved_to_another_network_namespace_is_read_as_one_by_every_later_daemon() {
    for (who, command) in
        [("root", Edge::run_command as fn(&Edge) -> Command), ("the unit", Edge::run_command_of_the_unit)]
    {
        let edge = Edge::new();
        let mut tun = Tun::new(&edge.wire, TUN, "10.98.0.1/8");
        edge.write_policy(TEN);
        start_by(command(&edge), &[EDGE, TUN]).kill_9();
        on_edge(&edge, &["link", "set", TUN, "netns", &edge.wire.net_file()]);
        run(edge.wire.in_net("ip").args(["link", "set", TUN, "up"]));
        for source in 2..5 {
            let daemon = start_by(command(&edge), &[EDGE]);
            daemon.wait_for_log("the link of tun0 is on an interface that is not visible here");
            let before = (edge.passed("conforming"), edge.dropped("limit_packets"));
            tun.send(&datagram([10, 98, 0, source]), 15);
            let after = (edge.passed("conforming"), edge.dropped("limit_packets"));
            // The kernel of the other end announces itself on edge0 whenever it likes, which conforms too.
            assert!(after.0 - before.0 >= 10, "{who}: {before:?}, {after:?}, {}", daemon.log());
            assert_eq!(after.1 - before.1, 5, "{who}: {}", daemon.log());
            daemon.kill_9();
        }
    }
}

#[test]
fn links_that_cannot_be_read_are_refused_with_the_reason() {
    for (link_type, reason) in [(32, "INFINIBAND"), (280, "CAN"), (778, "GRE"), (512, ""), (519, "")] {
        let edge = Edge::new();
        let _tun = Tun::of_type(&edge.wire, TUN, link_type);
        edge.write_policy(TEN);
        if reason.is_empty() {
            let _daemon = start_again(&edge, &[TUN]);
            assert_eq!(interfaces(&edge)[0].2, "ip", "{link_type}");
            continue;
        }
        let output = edge.run_command().args(["--iface", EDGE, "--iface", TUN]).output().unwrap();
        assert_refused(&output, 5, &["interface \"tun0\" cannot be guarded", reason]);
        assert!(!has_program(&edge, TUN) && !has_program(&edge, EDGE), "nothing is left behind");
    }
}

#[test]
fn nobody_is_answered_on_a_tunnel_and_refused_packets_are_marked_or_dropped() {
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
name = "bulk"
match = { protocol = "udp", ports = [4000] }
per_source = ["1 packet/day"]
on_limit = "mark"
dscp = "cs1"
[[service]]
name = "shop"
match = { protocol = "tcp", ports = [443] }
total = ["3 packets/day"]
syn_cookies = "1 syn/s burst 1"
"#;
    let mut kernel = Loaded::new(&policies::policy(POLICY)).for_framing(Framing::Ip);
    let (_, first) = kernel.rewrite(&datagram([192, 0, 2, 1]));
    assert_eq!(first, datagram([192, 0, 2, 1]), "a packet that conforms is left alone");
    let (verdict, second) = kernel.rewrite(&datagram([192, 0, 2, 1]));
    assert_eq!((verdict, second[1]), (Verdict::Pass, 8 << 2), "class selector 1");
    assert_eq!(ratelimit_tests::frames::folded(&second[..20]), 0xffff, "the checksum is right");
    assert_eq!(second[12..], first[12..]);
    let web = Ipv4::from([192, 0, 2, 1]).carrying(TCP, &tcp(ACK));
    assert_eq!(kernel.run(&web), Verdict::Pass);
    assert_eq!(kernel.rewrite(&web), (Verdict::Drop, web.clone()), "no reset is sent");
    // SYNs above the threshold are not answered and cost the service what every packet does.
    let mut shop = Ipv4::from([192, 0, 2, 9]).carrying(TCP, &tcp(SYN));
    shop[22..24].copy_from_slice(&443_u16.to_be_bytes());
    let verdicts: Vec<Verdict> = (0..6).map(|_| kernel.run(&shop)).collect();
    let passed = verdicts.iter().filter(|verdict| **verdict == Verdict::Pass).count();
    assert!((1..=3).contains(&passed), "three at most: {verdicts:?}");
    assert_eq!(kernel.count(Reason::ServiceTotal), 6 - passed as u64);
    assert_eq!(kernel.count(Reason::CookieSent), 0);
    // The operator is told.
    let edge = Edge::new();
    let _tun = Tun::new(&edge.wire, TUN, "10.98.0.1/16");
    let daemon = start(&edge, &[EDGE, TUN], POLICY);
    let warning = "tun0: no packet is answered here (SYN cookies and on_limit = \"reject\")";
    daemon.wait_for_log(warning);
    assert!(edge.json(&["status"])["warnings"].to_string().contains("tun0: no packet is answered here"));
}

#[test]
fn where_answers_would_lose_their_vlan_tags_there_are_none() {
    const POLICY: &str = r#"
[source]
limits = ["100000 packets/s"]
ladder = false
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
per_source = ["1 packet/day"]
on_limit = "reject"
"#;
    let mut kernel = Loaded::new(&policies::policy(POLICY));
    let frame = Ipv4::from([192, 0, 2, 1]).tcp_frame(ACK);
    assert_eq!(kernel.run(&frame), Verdict::Pass);
    assert_eq!(kernel.run(&frame), Verdict::Reply, "a reset");
    // The kernel's test facility has packets come in by the loopback interface, which is the first.
    kernel.program.set_silent(1, true).unwrap();
    assert_eq!(kernel.run(&frame), Verdict::Drop);
    kernel.program.set_silent(2, true).unwrap();
    kernel.program.set_silent(1, false).unwrap();
    assert_eq!(kernel.run(&frame), Verdict::Reply, "another interface does not count");
    // Without VLANs nothing can be lost: nobody is warned, and everybody answered.
    let edge = Edge::new();
    let _replies = edge.wire.receive_replies();
    let daemon = edge.start(POLICY);
    assert!(!daemon.log().contains("no packet is answered"), "{}", daemon.log());
    let index: u32 = {
        let output = on_edge(&edge, &["-o", "link", "show", "dev", EDGE]);
        stdout(&output).split(':').next().unwrap().parse().unwrap()
    };
    let apart = |index| edge.wire.as_edge(|| features::keeps_tags_apart(index));
    assert!(apart(index), "veth does");
    assert!(!apart(1), "loopback does not");
    assert!(apart(9_999), "of an interface that is not there, the worse is assumed");
    // With one, everybody is told. Not every kernel has VLANs.
    let add = ["link", "add", "link", EDGE, "name", "edge0.5", "type", "vlan", "id", "5"];
    if !edge.wire.on_edge("ip").args(add).output().unwrap().status.success() {
        return println!("this kernel has no VLANs; skipped");
    }
    daemon.wait_for_log("edge0: no packet is answered here (on_limit = \"reject\")");
    daemon.wait_for_log("ethtool -K edge0 rxvlan off");
    on_edge(&edge, &["link", "del", "edge0.5"]);
    wait_until("it is over", &daemon, || edge.json(&["status"])["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn an_interface_that_comes_back_under_a_flood_is_guarded_before_packets_get_through() {
    /// Datagrams that got as far as UDP, whoever took them.
    fn behind(edge: &Edge) -> u64 {
        let text = edge.wire.as_edge(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with("Udp:")).skip(1);
        let numbers = lines.next().unwrap().split_whitespace().skip(1);
        // Delivered, to a port that nobody has, and otherwise not taken.
        numbers.take(3).map(|word| word.parse::<u64>().unwrap()).sum()
    }
    let edge = Edge::new();
    let daemon = edge.start(TEN);
    let stop = AtomicBool::new(false);
    let passed = std::thread::scope(|scope| {
        let (stopped, wire) = (&stop, &edge.wire);
        let flood = move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // Sending fails while there is no interface.
                let _unsent = socket.send_to(&[0; 64], (EDGE_V4, 4000));
            }
        };
        let flooding = scope.spawn(move || wire.as_net(flood));
        let mut rounds = Vec::new();
        // A look once a second lets up to a second pass each time, by chance sometimes nothing; a machine that is busy otherwise may be
        // late sometimes. So the middle one of several rounds counts.
        for _ in 0..5 {
            edge.wire.cut();
            wait_until("its end is seen", &daemon, || names(&edge).is_empty());
            let before = behind(&edge);
            edge.wire.add_wire();
            edge.wire.add_source("10.99.0.2".parse().unwrap());
            let dropped = edge.dropped("limit_packets");
            wait_until("the flood is refused", &daemon, || edge.dropped("limit_packets") > dropped + 20_000);
            let passed = behind(&edge) - before;
            println!("{passed} packets got through");
            rounds.push(passed);
        }
        stop.store(true, Ordering::Relaxed);
        flooding.join().unwrap();
        rounds.sort_unstable();
        rounds[rounds.len() / 2]
    });
    assert!(passed < 1_000, "{passed} is more than what comes in until a message has been read");
}

#[test]
fn an_interface_that_is_down_is_guarded_already() {
    let edge = Edge::new();
    let daemon = edge.start(TEN);
    edge.wire.cut();
    on_edge(&edge, &["link", "add", EDGE, "type", "veth", "peer", "name", "net1"]);
    wait_until("it has the program", &daemon, || has_program(&edge, EDGE));
    assert!(stdout(&on_edge(&edge, &["link", "show", "dev", EDGE])).contains("state DOWN"));
    daemon.wait_for_log("edge0: it is there again; attaching it again");
}

#[test]
fn an_interface_that_comes_back_is_guarded_at_once_also_while_the_daemon_waits_for_something_else() {
    let edge = Edge::new();
    on_edge(&edge, &["link", "add", "second0", "type", "veth", "peer", "name", "second1"]);
    let daemon = start(&edge, &[EDGE, "second0"], TEN);
    // While somebody has its link open the kernel does not let go of it, and an order to detach is answered after two seconds.
    let held = PinnedLink::from_pin(edge.pin().join("links/second0")).unwrap();
    let mut order =
        edge.cli_command(&["detach", "--iface", "second0"]).stderr(Stdio::null()).spawn().unwrap();
    daemon.wait_for_log("detached from second0");
    edge.wire.cut();
    on_edge(&edge, &["link", "add", EDGE, "type", "veth", "peer", "name", "net1"]);
    wait_until("it has the program", &daemon, || has_program(&edge, EDGE));
    let was_waiting = order.try_wait().unwrap().is_none();
    let answered = order.wait().unwrap();
    assert!(was_waiting, "the interface was guarded after the order had been answered");
    assert_eq!(answered.code(), Some(5), "the order was answered before its time was over");
    drop(held);
}

#[test]
fn a_renamed_interface_stays_guarded_and_a_new_one_with_its_name_is_guarded_too() {
    let edge = Edge::new();
    let daemon = edge.start(TEN);
    let rename = |from: &str, to: &str| {
        on_edge(&edge, &["link", "set", from, "down"]);
        on_edge(&edge, &["link", "set", from, "name", to]);
        on_edge(&edge, &["link", "set", to, "up"]);
    };
    rename(EDGE, "wan0");
    daemon.wait_for_log("edge0 is called wan0 now, and stays guarded");
    assert_eq!(names(&edge), ["wan0"]);
    assert!(!daemon.log().contains("edge0 is gone"), "{}", daemon.log());
    on_edge(&edge, &["link", "add", EDGE, "type", "veth", "peer", "name", "other0"]);
    wait_until("both are guarded", &daemon, || names(&edge) == [EDGE, "wan0"]);
    // Both change their names between two looks.
    daemon.signal("STOP");
    rename("wan0", "tmp0");
    rename(EDGE, "wan0");
    rename("tmp0", EDGE);
    daemon.signal("CONT");
    wait_until("both are known by their new names", &daemon, || {
        daemon.log().contains("wan0 is called edge0") && daemon.log().contains("edge0 is called wan0 now")
    });
    wait_until("both are guarded", &daemon, || names(&edge) == [EDGE, "wan0"]);
    // The names change once more while there is no daemon.
    daemon.kill_9();
    rename("wan0", "lan0");
    let daemon = edge.start_again();
    daemon.wait_for_log("wan0 is called lan0 now, and was guarded all the time");
    assert_eq!(names(&edge), [EDGE, "lan0"]);
    // An interface that was detached is not taken up again.
    assert!(edge.cli(&["detach", "--iface", EDGE]).status.success());
    rename("lan0", "dmz0");
    daemon.wait_for_log("lan0 is called dmz0 now");
    assert_eq!(names(&edge), ["dmz0"]);
    assert!(!has_program(&edge, EDGE));
    assert!(edge.cli(&["detach"]).status.success());
    assert!(!has_program(&edge, "dmz0"));
}
