//! Services with SYN cookies on a host that forwards their packets, or translates their destination.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use aya::Ebpf;
use ratelimit_tests::{
    cookie_site::at,
    daemon::{Daemon, Edge, binary},
    netns::{BEHIND_V4, BEHIND_V6, EDGE_V4, EDGE_V6, HostBehind, Wire, run},
    redis::wait_for,
};
use ratelimit_user::dataplane::netfilter;

const PORT: u16 = 4711;
/// Where a redirect leads to.
const OTHER_PORT: u16 = 4799;
const CLIENTS: [&str; 2] = ["10.99.0.2", "fd00:99:1::2"];

const POLICY: &str = r#"
[source]
limits = ["100000 packets/s burst 200000"]

[[service]]
name = "web"
match = { protocol = "tcp", ports = [4711] }
syn_cookies = "100 syns/s burst 100"
"#;

const DNAT: &str = "tcp dport 4711 dnat ip to 10.98.0.2:4711";
const REDIRECT: &str = "tcp dport { 80, 4711 } redirect to :4799";

/// A host whose packets for the service go elsewhere, and where clients find the service.
struct Detour {
    edge: Edge,
    daemon: Daemon,
    server: SocketAddr,
    _behind: HostBehind,
    _shadowed: Option<TcpListener>,
    _replies: Ebpf,
}

impl Detour {
    /// Starts a host with a rule in its nat table, if any. `shadowed` is where the host listens at the service's port itself.
    fn new(rule: Option<&str>, server: &str, shadowed: Option<&str>) -> Self {
        let edge = Edge::new();
        for client in CLIENTS {
            edge.wire.add_source(client.parse::<IpAddr>().unwrap());
        }
        let replies = edge.wire.receive_replies();
        let behind = HostBehind::new(&edge.wire);
        for setting in ["tcp_syncookies=2", "tcp_timestamps=2"] {
            run(edge.wire.on_edge("sysctl").args(["-w", &format!("net.ipv4.{setting}")]));
        }
        let shadowed =
            shadowed.map(|address| edge.wire.as_edge(|| TcpListener::bind(at(address, PORT)).unwrap()));
        match rule {
            Some(REDIRECT) => echo(edge.wire.as_edge(|| TcpListener::bind(at(EDGE_V4, OTHER_PORT)).unwrap())),
            _ => {
                let address = if server.contains(':') { BEHIND_V6 } else { BEHIND_V4 };
                echo(behind.as_host(|| TcpListener::bind(at(address, PORT)).unwrap()));
            }
        }
        if let Some(rule) = rule {
            translate(&edge.wire, rule, "");
        }
        let daemon = edge.start(POLICY);
        Self {
            edge,
            daemon,
            server: at(server, PORT),
            _behind: behind,
            _shadowed: shadowed,
            _replies: replies,
        }
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = self
            .edge
            .wire
            .as_net(|| TcpStream::connect_timeout(&self.server, Duration::from_secs(3)))
            .ok()?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        Some(stream)
    }

    fn warnings(&self) -> String {
        self.edge.json(&["status"])["warnings"].to_string()
    }

    /// Waits until `status` warns with these words, or until it warns of nothing.
    fn wait_for_warning(&self, words: Option<&str>) {
        let is_there = |warnings: &str| words.map_or(warnings == "[]", |words| warnings.contains(words));
        wait_for("the warning", || is_there(&self.warnings()).then_some(()));
    }

    /// Frames that were let pass or answered so far.
    fn handled(&self) -> u64 {
        let stats = self.edge.json(&["stats"]);
        let passed = stats["passes_by_reason"]["conforming"].as_u64().unwrap();
        passed + stats["replies_by_reason"]["cookie_sent"].as_u64().unwrap()
    }

    /// Starts 2000 forged SYNs a second, and returns when cookies would be the answer to them.
    fn flood(&self) -> Child {
        let before = self.handled();
        let mut command = self.edge.wire.in_net(binary("traffic"));
        command.args(["forge", "--to", &self.server.to_string(), "--for", "60", "--pps", "2000"]);
        let flood = command.stdout(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while self.handled() < before + 1_000 {
            assert!(started.elapsed() < Duration::from_secs(10), "the flood does not arrive");
        }
        flood
    }

    /// Connections of 40 that are made and answer, while ten that are there answer too; and how often one of those ten did not.
    fn new_connections(&self, established: &mut [TcpStream]) -> (usize, usize) {
        let (mut made, mut silent) = (0, 0);
        for _ in 0..40 {
            made += usize::from(self.connect().is_some_and(|mut stream| answers(&mut stream)));
            silent += established.iter_mut().filter_map(|stream| (!answers(stream)).then_some(())).count();
            if made + 5 < silent {
                break;
            }
        }
        (made, silent)
    }

    /// Nothing is cut and everything connects, with and without a flood.
    fn is_left_alone(&self) {
        let mut established: Vec<TcpStream> =
            (0..10).map(|_| self.connect().expect("a connection")).collect();
        assert_eq!(self.new_connections(&mut established), (40, 0), "without a flood");
        let mut flood = self.flood();
        let during = self.new_connections(&mut established);
        flood.kill().unwrap();
        flood.wait().unwrap();
        assert_eq!(during, (40, 0), "new connections, and answers missing, in a flood");
        assert_eq!(self.edge.json(&["stats"])["replies_by_reason"]["cookie_sent"], 0);
        assert_eq!(self.edge.dropped("cookie_invalid"), 0);
    }
}

/// Puts a rule into a nat table, with another chain beside it.
fn translate(wire: &Wire, rule: &str, other: &str) {
    let table = format!(
        "table inet detour {{ chain other {{ {other}; }}; chain prerouting {{ type nat hook prerouting priority dstnat; {rule}; }}; }}"
    );
    run(wire.on_edge("nft").arg(table));
}

fn forget_rules(wire: &Wire) {
    run(wire.on_edge("nft").args(["flush", "ruleset"]));
}

fn answers(stream: &mut TcpStream) -> bool {
    let mut heard = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut heard).is_ok() && &heard == b"hello"
}

/// Answers every connection of a listener with what it sends.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
}

#[test]
fn connections_that_are_routed_through_are_left_alone() {
    let detour = Detour::new(None, BEHIND_V4, None);
    detour.is_left_alone();
    assert_eq!(detour.warnings(), "[]", "nothing is wrong");
}

#[test]
fn routed_connections_are_not_for_a_wildcard_listener() {
    for (server, any) in [(BEHIND_V4, "0.0.0.0"), (BEHIND_V6, "::")] {
        Detour::new(None, server, Some(any)).is_left_alone();
    }
}

#[test]
fn connections_through_dnat_are_left_alone() {
    Detour::new(Some(DNAT), EDGE_V4, None).is_left_alone();
}

#[test]
fn a_listener_shadowed_by_dnat_sends_no_cookies() {
    let detour = Detour::new(Some(DNAT), EDGE_V4, Some("0.0.0.0"));
    detour.is_left_alone();
    let off = "SYN cookies are off for web, SYN limits still hold: rules of nftables send packets to port 4711 elsewhere";
    assert!(detour.warnings().contains(off), "{}", detour.warnings());
    assert!(detour.daemon.log().contains(off), "{}", detour.daemon.log());
    let policy = detour.edge.policy();
    let findings = detour.edge.json(&["doctor", "--policy", policy.to_str().unwrap()])["findings"].clone();
    let finding = findings.as_array().unwrap().iter().find(|one| one["check"] == "syn_cookies").unwrap();
    assert_eq!(finding["grade"], "warn");
    assert!(finding.to_string().contains("no cookies are sent for web"), "{finding}");
}

#[test]
fn a_listener_shadowed_by_redirect_sends_no_cookies() {
    Detour::new(Some(REDIRECT), EDGE_V4, Some("0.0.0.0")).is_left_alone();
}

#[test]
fn cookies_follow_a_change_of_the_rules() {
    let detour = Detour::new(None, EDGE_V4, Some("0.0.0.0"));
    assert_eq!(detour.warnings(), "[]");
    translate(&detour.edge.wire, DNAT, "");
    detour.wait_for_warning(Some("SYN cookies are off for web"));
    detour.is_left_alone();
}

#[test]
fn cookies_come_back_when_a_rule_has_gone() {
    let detour = Detour::new(Some("tcp dport 4711 redirect to :4799"), EDGE_V4, Some("0.0.0.0"));
    detour.wait_for_warning(Some("SYN cookies are off for web"));
    forget_rules(&detour.edge.wire);
    detour.wait_for_warning(None);
    detour.daemon.wait_for_log("they are sent again");
    let mut flood = detour.flood();
    wait_for("cookies", || {
        (detour.edge.json(&["stats"])["replies_by_reason"]["cookie_sent"].as_u64() > Some(100)).then_some(())
    });
    flood.kill().unwrap();
    flood.wait().unwrap();
}

#[test]
fn what_only_connections_show_turns_cookies_off_too() {
    let detour = Detour::new(Some(DNAT), EDGE_V4, Some("0.0.0.0"));
    let mut established: Vec<TcpStream> = (0..10).map(|_| detour.connect().expect("a connection")).collect();
    assert!(established.iter_mut().all(answers));
    // The daemon sees no rule any more, as with iptables-legacy, and connection tracking still has the connections.
    run(detour.edge.wire.on_edge("nft").args(["flush", "chain", "inet", "detour", "prerouting"]));
    detour.wait_for_warning(Some("tracked connections to port 4711 were sent elsewhere"));
    let mut flood = detour.flood();
    flood.kill().unwrap();
    flood.wait().unwrap();
    assert_eq!(detour.edge.json(&["stats"])["replies_by_reason"]["cookie_sent"], 0);
}

#[test]
fn rules_tell_which_ports_they_send_elsewhere() {
    let wire = Wire::new();
    let own: Vec<IpAddr> = [EDGE_V4, EDGE_V6].map(|address| address.parse().unwrap()).to_vec();
    for (rule, other, expected) in [
        ("tcp dport 80 dnat ip to 192.0.2.9", "", vec![80..=80]),
        ("tcp dport { 80, 443, 8000-8100 } redirect to :9000", "", vec![80..=80, 443..=443, 8000..=8100]),
        ("tcp dport 8000-8100 redirect to :9000", "", vec![8000..=8100]),
        ("tcp dport > 9000 redirect to :9000", "", vec![9001..=65535]),
        ("tcp dport != 22 redirect to :9000", "", vec![0..=21, 23..=65535]),
        ("tcp dport != { 22, 80 } redirect to :9000", "", vec![0..=21, 23..=79, 81..=65535]),
        ("udp dport 53 redirect to :5353", "", vec![]),
        ("meta l4proto { tcp, udp } th dport 53 redirect to :5353", "", vec![53..=53]),
        ("ip protocol udp redirect", "", vec![]),
        ("tcp dport 80 counter accept", "tcp dport 81 redirect to :9000", vec![]),
        ("ip daddr 192.0.2.7 tcp dport 80 dnat ip to 192.0.2.9", "", vec![]),
        ("ip daddr 10.99.0.0/16 tcp dport 80 dnat ip to 192.0.2.9", "", vec![80..=80]),
        ("ip daddr 10.99.0.0/17 tcp dport 80 dnat ip to 192.0.2.9", "", vec![80..=80]),
        ("ip daddr 10.99.128.0/17 tcp dport 80 dnat ip to 192.0.2.9", "", vec![]),
        ("ip daddr != 10.99.0.1 tcp dport 80 dnat ip to 192.0.2.9", "", vec![]),
        ("ip daddr { 10.99.0.1, 192.0.2.0/24 } tcp dport 80 dnat ip to 192.0.2.9", "", vec![80..=80]),
        ("ip daddr { 192.0.2.0/24 } tcp dport 80 dnat ip to 192.0.2.9", "", vec![]),
        ("ip6 daddr fd00:99::/32 tcp dport 80 dnat ip6 to fd00:7::9", "", vec![80..=80]),
        ("ip6 daddr fd00:98::/33 tcp dport 80 dnat ip6 to fd00:7::9", "", vec![]),
        ("ip daddr . tcp dport { 192.0.2.7 . 80 } dnat ip to 192.0.2.9", "", vec![0..=65535]),
        ("dnat ip to tcp dport map { 80 : 192.0.2.9, 90 : 192.0.2.8 }", "", vec![80..=80, 90..=90]),
        ("tcp dport vmap { 80 : jump other, 81 : accept }", "dnat ip to 192.0.2.9", vec![80..=80]),
        ("tcp dport vmap { 80-89 : goto other }", "tcp dport 85-99 redirect to :9000", vec![85..=89]),
        ("ip daddr vmap { 192.0.2.7 : jump other }", "tcp dport 80 redirect to :9000", vec![]),
        ("ip daddr vmap { 10.99.0.1 : jump other }", "tcp dport 80 redirect to :9000", vec![80..=80]),
        ("iifname \"elsewhere0\" jump other", "tcp dport 443 redirect to :9000", vec![443..=443]),
        ("tcp dport 443 jump other", "ip saddr 192.0.2.1 redirect", vec![443..=443]),
    ] {
        translate(&wire, rule, other);
        let generation = wire.as_edge(|| netfilter::generation().unwrap());
        assert_eq!(wire.as_edge(|| netfilter::ports_of_rules(&own).unwrap()), expected, "{rule}");
        forget_rules(&wire);
        assert_ne!(wire.as_edge(|| netfilter::generation().unwrap()), generation);
        assert_eq!(wire.as_edge(|| netfilter::ports_of_rules(&own).unwrap()), [], "{rule}");
    }
}
