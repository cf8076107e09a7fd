//! Captures that tcpdump makes of real packets, on links of every kind, and what `replay` says of them.

use std::{
    io::{BufRead as _, BufReader},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use ratelimit_tests::{
    daemon::{Edge, binary},
    frames::{IPV4, Ipv4, UDP, VLAN, ethernet, folded, tag, udp},
    netns::{EDGE, NET, run},
    redis::wait_for,
    tun::Tun,
};
use serde_json::Value;

/// Ten packets a day: no token comes back while a test runs.
const POLICY: &str = "[host]\nlink = false\n[source]\nlimits = [\"10 packets/day burst 10\"]\nladder = false\n\
    [[service]]\nname = \"game\"\nmatch = { protocol = \"udp\", ports = [4000] }\ntotal = [\"1000000 packets/s\"]\n";

/// Sends a frame as it is, from an interface, so many times. Python, because the address of a packet socket needs unsafe code in Rust.
const SEND: &str = "import socket, sys\n\
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
    out.bind((sys.argv[1], 0))\n\
    for _ in range(int(sys.argv[3])): out.send(bytes.fromhex(sys.argv[2]))\n";

/// A UDP header to a port, and so many bytes.
fn udp_to(port: u16, len: usize) -> Vec<u8> {
    let mut datagram = udp(len);
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram
}

/// tcpdump that writes a file until it is ended.
struct Tcpdump {
    child: Child,
    file: PathBuf,
}

impl Tcpdump {
    fn start(edge: &Edge, name: &str, words: &[&str]) -> Self {
        let file = edge.dir().join(name);
        let mut command = edge.wire.on_edge("tcpdump");
        // Without privileges it could not write into this directory. Words have a snap length: by default tcpdump has room for few packets at once.
        command
            .args(words)
            .args(["-n", "-U", "--immediate-mode", "-Z", "root", "-w"])
            .arg(&file)
            .arg(if words.contains(&EDGE) { "udp or (vlan and udp)" } else { "udp" });
        let mut child = command.stderr(Stdio::piped()).spawn().expect("start tcpdump");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains("listening on")) {
            let line = lines.next().unwrap_or_else(|| panic!("tcpdump does not listen: {said:?}"));
            said.push(line.expect("text"));
        }
        // A thread reads everything else that tcpdump says, so that it never waits for its pipe.
        std::thread::spawn(move || lines.count());
        Self { child, file }
    }

    /// Ends it once it has written so many packets.
    fn end_with(mut self, packets: usize) -> PathBuf {
        let file = self.file.clone();
        wait_for("all packets", || (written(&file) >= packets).then_some(()));
        run(Command::new("kill").arg("-INT").arg(self.child.id().to_string()));
        self.child.wait().expect("wait");
        file
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Packets in a file, as tcpdump itself counts them.
fn written(file: &Path) -> usize {
    let output = Command::new("tcpdump").args(["-n", "-r"]).arg(file).output().expect("run tcpdump");
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn replay(edge: &Edge, file: &Path) -> Value {
    let output = Command::new(binary("ratelimit"))
        .arg("replay")
        .arg(file)
        .arg("--policy")
        .arg(edge.policy())
        .args(["--output", "json"])
        .output()
        .expect("run the command line");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn source<'v>(answer: &'v Value, address: &str) -> &'v Value {
    let sources = answer["policy"]["sources"].as_array().expect("a list");
    sources.iter().find(|row| row["source"] == address).unwrap_or_else(|| panic!("{address}: {answer}"))
}

fn counts(row: &Value) -> [u64; 3] {
    ["offered_packets", "passed_packets", "dropped_packets"].map(|key| row[key].as_u64().expect("a number"))
}

#[test]
fn captures_of_ethernet_vlan_raw_ip_and_cooked_are_replayed_with_the_lengths_that_packets_had() {
    let edge = Edge::new();
    edge.write_policy(POLICY);
    edge.wire.add_source([10, 99, 0, 5].into());
    let mut tun = Tun::new(&edge.wire, "tun0", "10.98.0.1/24");
    let on_ethernet = Tcpdump::start(&edge, "ethernet.pcap", &["-i", EDGE, "-s", "64"]);
    let raw = Tcpdump::start(&edge, "raw.pcap", &["-i", "tun0", "--nano", "-s", "600"]);
    let cooked = Tcpdump::start(&edge, "cooked.pcap", &["-i", "any", "-y", "LINUX_SLL", "-s", "600"]);
    let cooked2 = Tcpdump::start(&edge, "cooked2.pcap", &["-i", "any", "-y", "LINUX_SLL2", "-s", "96"]);

    edge.wire.as_net(|| {
        let socket = UdpSocket::bind(("10.99.0.5", 0)).unwrap();
        (0..30).for_each(|_| assert_eq!(socket.send_to(&[0x5a; 500], "10.99.0.1:4000").unwrap(), 500));
    });
    let tagged = Ipv4::from([10, 97, 0, 5]).carrying(UDP, &udp_to(4000, 500));
    let hex: String = ethernet(VLAN, &tag(IPV4, &tagged)).iter().map(|byte| format!("{byte:02x}")).collect();
    run(edge.wire.in_net("python3").args(["-c", SEND, NET, &hex, "30"]));
    // An answer of the host: what it sends is not limited.
    edge.wire.as_edge(|| {
        let socket = UdpSocket::bind(("10.99.0.1", 4000)).unwrap();
        assert_eq!(socket.send_to(&[0; 20], "10.99.0.5:9").unwrap(), 20);
    });
    let packet = Ipv4 { destination: [10, 98, 0, 1].into(), ..Ipv4::from([10, 98, 0, 5]) };
    let mut packet = packet.carrying(UDP, &udp_to(4000, 4));
    let check = !folded(&packet[..20]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    tun.send(&packet, 30);

    let on_ethernet = replay(&edge, &on_ethernet.end_with(61));
    assert_eq!(on_ethernet["capture"]["link_types"], serde_json::json!(["Ethernet"]));
    assert_eq!(counts(source(&on_ethernet, "10.99.0.5")), [30, 10, 20]);
    assert_eq!(counts(source(&on_ethernet, "10.97.0.5")), [30, 10, 20]);
    // An Ethernet header, IP, UDP and 500 bytes each, whatever was captured of them; a tag has four bytes more.
    assert_eq!(source(&on_ethernet, "10.99.0.5")["offered_bytes"], 30 * 542);
    assert_eq!(source(&on_ethernet, "10.97.0.5")["offered_bytes"], 30 * 546);
    assert_eq!(source(&on_ethernet, "10.97.0.5")["service"], "game");
    // Only the host's own address says that this one went out.
    assert_eq!(counts(source(&on_ethernet, "10.99.0.1")), [1, 1, 0]);
    assert_eq!(on_ethernet["policy"]["refusals"][0]["limit"], "source.packets");

    let raw = replay(&edge, &raw.end_with(30));
    assert_eq!(raw["capture"]["link_types"], serde_json::json!(["raw IP"]));
    assert_eq!(counts(source(&raw, "10.98.0.5")), [30, 10, 20]);
    assert_eq!(source(&raw, "10.98.0.5")["offered_bytes"], 30 * 32);

    for (file, name, cut) in [(cooked, "Linux cooked v1", 0), (cooked2, "Linux cooked v2", 60)] {
        let answer = replay(&edge, &file.end_with(91));
        assert_eq!(answer["capture"]["link_types"], serde_json::json!([name]));
        assert_eq!(answer["capture"]["outgoing_packets"], 1, "{answer}");
        assert_eq!(counts(source(&answer, "10.99.0.5")), [30, 10, 20]);
        assert_eq!(counts(source(&answer, "10.98.0.5")), [30, 10, 20]);
        assert_eq!(counts(source(&answer, "10.97.0.5")), [30, 10, 20]);
        // As on the wire: Ethernet has its header again, the tunnel has none.
        assert_eq!(source(&answer, "10.99.0.5")["offered_bytes"], 30 * 542);
        assert_eq!(source(&answer, "10.98.0.5")["offered_bytes"], 30 * 32);
        assert_eq!(answer["capture"]["cut_packets"], cut, "{answer}");
    }
}
