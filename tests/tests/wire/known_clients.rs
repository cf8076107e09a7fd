//! Known clients beside a forged flood on a real wire: clients of each kind, and all that may happen to the daemon meanwhile.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    answer::{stderr, stdout},
    clients::{EchoClients, EchoServer, QUESTION, QuestionCarrier, remember},
    daemon::{Daemon, Edge, binary},
    netns::{EDGE, EDGE_V4, EDGE_V6},
    traffic::{PORT, socket_address},
};
use ratelimit_user::dataplane::pin::PinDir;

/// The port without a limit.
const CONTROL: u16 = PORT + 1;
/// What each client sends in a second.
const PER_SEC: u32 = 20;
/// What is forged in a second, and for how long if no test ends it.
const FORGED: u64 = 30_000;
const FLOOD_SECONDS: u64 = 120;

fn clients() -> impl Iterator<Item = Ipv4Addr> {
    (1..=20).map(|last| Ipv4Addr::new(10, 99, 7, last))
}

fn policy(other: &str, total: u32) -> String {
    format!(
        "[source]\nlimits = [\"1000 packets/s burst 2000\"]\n{other}[[service]]\nname = \"echo\"\n\
         match = {{ protocol = \"udp\", ports = [{PORT}] }}\ntotal = [\"{total} packets/s\"]\n"
    )
}

/// A service that gets the place of the one before.
const ANOTHER: &str = "[[service]]\nname = \"another\"\nmatch = { protocol = \"tcp\", ports = [1] }\n";

/// Datagrams from other sources each time, to an address of the edge host.
fn forge(edge: &Edge, to: &str, per_sec: u64) -> Child {
    edge.wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &socket_address(to), "--within", "16.0.0.0/4"])
        .args(["--pps", &per_sec.to_string(), "--for", &FLOOD_SECONDS.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ends a flood, which is to go on until then.
fn end(mut flood: Child) {
    assert!(flood.try_wait().unwrap().is_none(), "the clients asked for longer than a flood lasted");
    flood.kill().unwrap();
    flood.wait().unwrap();
}

/// Waits until a total is spent.
fn wait_until_spent(edge: &Edge, reason: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while edge.dropped(reason) < FORGED / 4 {
        assert!(Instant::now() < deadline, "the total was never spent");
    }
}

fn succeeds(edge: &Edge, words: &[&str]) {
    let output = edge.cli(words);
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
}

/// What may happen to the daemon while clients ask.
fn happenings(edge: &Edge, daemon: Daemon) -> Daemon {
    daemon.kill_9();
    let daemon = edge.start_again();
    let path = edge.dir().join("next.toml");
    fs::write(&path, policy(ANOTHER, 1_500)).unwrap();
    succeeds(edge, &["apply", path.to_str().unwrap()]);
    for verb in ["add", "del"] {
        succeeds(edge, &["block", verb, "198.51.100.0/24"]);
        succeeds(edge, &["allow", verb, "203.0.113.0/24"]);
    }
    // An upgrade: the old build is asked to stop, and another one takes over.
    assert!(daemon.terminate().0.success());
    let build = edge.dir().join("another-build");
    fs::copy(binary("ratelimit"), &build).unwrap();
    let mut upgraded = edge.run_command_with(&build);
    upgraded.args(["--iface", EDGE]);
    Daemon::start(upgraded)
}

/// The total is spent by forged packets, of which nearly all are refused. What is lost to a CPU that is short is lost at the other port too.
#[test]
fn known_clients_are_served_through_restart_and_change() {
    let edge = Edge::new();
    clients().for_each(|client| edge.wire.add_source(client.into()));
    edge.start(&policy("", 2_000)).kill_9();
    remember(&PinDir::new(edge.pin()), clients().map(|client| (client, f64::from(PER_SEC))));
    let daemon = edge.start_again();
    let server: IpAddr = EDGE_V4.parse().unwrap();
    let ports = [PORT, CONTROL];
    let _echo = edge
        .wire
        .as_edge(|| EchoServer::start(QuestionCarrier::Udp, &ports.map(|port| (server, port).into())));
    let asking = edge.wire.as_net(|| EchoClients::bind(QuestionCarrier::Udp, clients()));

    let flood = forge(&edge, EDGE_V4, FORGED);
    wait_until_spent(&edge, "service_total");
    let has_happened = AtomicBool::new(false);
    let (echoed, _daemon) = thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut all = [0; 3];
            // The last round begins after all that happened.
            let mut is_last = false;
            while !is_last {
                is_last = has_happened.load(Ordering::Relaxed);
                let echoed = asking.ask(server, ports, QUESTION, PER_SEC, Duration::from_secs(2));
                let [answered, without_limit] = echoed.answered;
                all = [all[0] + echoed.sent, all[1] + answered, all[2] + without_limit];
            }
            all
        });
        thread::sleep(Duration::from_secs(1));
        let daemon = happenings(&edge, daemon);
        has_happened.store(true, Ordering::Relaxed);
        (asked.join().unwrap(), daemon)
    });
    end(flood);
    let refused = edge.dropped("service_total");
    let [sent, answered, without_limit] = echoed;
    println!("of {sent} {answered}, without a limit {without_limit}; {refused} forged packets were refused");
    assert!(without_limit * 10 >= sent * 9, "the rig loses too much: {without_limit} of {sent}");
    assert!(answered * 100 >= without_limit * 98, "{answered} of {without_limit}");
    assert!(refused > FORGED, "{refused} forged packets were refused");
}

/// Clients of one kind ask the edge host. Returns how many questions were sent and answered.
type Asking = fn(&Edge, &[IpAddr]) -> [u64; 2];

/// A kind of client: how it asks, and how many packets a question has.
struct ClientKind {
    name: &'static str,
    ask: Asking,
    packets: u32,
}

/// For how long clients of each kind ask.
const ASKS_FOR: Duration = Duration::from_secs(6);
/// A datagram of three fragments, of which only the first has ports.
const LARGE: [u8; 3_000] = [7; 3_000];

const KINDS: [ClientKind; 4] = [
    ClientKind {
        name: "UDP over IPv6",
        ask: |edge, clients| ask_over_udp(edge, clients, QUESTION),
        packets: 1,
    },
    ClientKind { name: "fragments", ask: |edge, clients| ask_over_udp(edge, clients, &LARGE), packets: 3 },
    ClientKind { name: "GRE", ask: ask_over_gre, packets: 1 },
    ClientKind { name: "ping", ask: ping, packets: 1 },
];

fn ask_over_udp(edge: &Edge, clients: &[IpAddr], question: &[u8]) -> [u64; 2] {
    let server = if clients[0].is_ipv4() { EDGE_V4 } else { EDGE_V6 }.parse().unwrap();
    let asking = edge.wire.as_net(|| EchoClients::bind(QuestionCarrier::Udp, clients.iter().copied()));
    let echoed = asking.ask(server, [PORT], question, PER_SEC, ASKS_FOR);
    [echoed.sent, echoed.answered[0]]
}

fn ask_over_gre(edge: &Edge, clients: &[IpAddr]) -> [u64; 2] {
    let asking = edge.wire.as_net(|| EchoClients::bind(QuestionCarrier::Gre, clients.iter().copied()));
    // A header of GRE for IPv4, and a packet that is not looked at.
    let question = [&[0, 0, 8, 0], QUESTION].concat();
    let echoed = asking.ask(EDGE_V4.parse().unwrap(), [0], &question, PER_SEC, ASKS_FOR);
    [echoed.sent, echoed.answered[0]]
}

fn ping(edge: &Edge, clients: &[IpAddr]) -> [u64; 2] {
    let interval = (1.0 / f64::from(PER_SEC)).to_string();
    let count = (ASKS_FOR.as_secs() * u64::from(PER_SEC)).to_string();
    let pinging = clients.iter().map(|client| {
        let mut ping = edge.wire.in_net("ping");
        ping.args(["-n", "-q", "-W", "1", "-i", &interval, "-c", &count, "-I", &client.to_string(), EDGE_V4]);
        ping.stdout(Stdio::piped()).spawn().expect("these tests need iputils-ping")
    });
    let pinging: Vec<Child> = pinging.collect();
    let counts = pinging.into_iter().map(|ping| {
        let told = stdout(&ping.wait_with_output().unwrap());
        let line = told.lines().find(|line| line.contains("packets transmitted")).expect("a line of counts");
        let mut numbers = line.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    });
    counts.fold([0; 2], |sum: [u64; 2], one: [u64; 2]| [sum[0] + one[0], sum[1] + one[1]])
}

/// The clients of a kind in one of three networks, of which the last one is on the allow list: what it loses is lost on the wire.
fn clients_of(kind: usize, network: u8) -> [IpAddr; 3] {
    [1, 2, 3].map(|client| match kind {
        0 => Ipv6Addr::new(0xfd00, 0x99, network.into(), client.into(), 0, 0, 0, 1).into(),
        _ => Ipv4Addr::new(10, 99, network * 64 + kind as u8, client).into(),
    })
}

/// All clients have sent at the same time, of each kind those that are known and those that were never seen, beside one flood over IPv4 and one over IPv6.
#[test]
fn known_clients_of_every_kind_come_first() {
    let [known, unseen, allowed] = [1, 2, 3];
    let edge = Edge::new();
    for (kind, network) in (0..KINDS.len()).flat_map(|kind| [known, unseen, allowed].map(|n| (kind, n))) {
        clients_of(kind, network).into_iter().for_each(|client| edge.wire.add_source(client));
    }
    let _daemon = edge
        .start("[source]\nlimits = [\"1000 packets/s burst 2000\"]\n[host]\ntotal = [\"2000 packets/s\"]\n");
    for prefix in ["10.99.192.0/18", "fd00:99:3::/48"] {
        succeeds(&edge, &["allow", "add", prefix]);
    }
    let lines = KINDS.iter().enumerate().flat_map(|(at, kind)| {
        clients_of(at, known).map(|client| format!("- {client} {} 0\n", PER_SEC * kind.packets))
    });
    let file = edge.dir().join("clients.txt");
    fs::write(&file, lines.collect::<String>()).unwrap();
    succeeds(&edge, &["known", "import", file.to_str().unwrap()]);
    let _echo = edge.wire.as_edge(|| {
        let udp = [EDGE_V4, EDGE_V6].map(|address| (address.parse::<IpAddr>().unwrap(), PORT).into());
        let gre = [(EDGE_V4.parse::<IpAddr>().unwrap(), 0).into()];
        [EchoServer::start(QuestionCarrier::Udp, &udp), EchoServer::start(QuestionCarrier::Gre, &gre)]
    });

    let floods = [EDGE_V4, EDGE_V6].map(|to| forge(&edge, to, FORGED / 2));
    wait_until_spent(&edge, "host_total");
    let edge = &edge;
    let outcomes = thread::scope(|scope| {
        let asking: Vec<_> = (0..KINDS.len())
            .map(|kind| {
                [known, unseen, allowed]
                    .map(|network| scope.spawn(move || (KINDS[kind].ask)(edge, &clients_of(kind, network))))
            })
            .collect();
        asking.into_iter().map(|asked| asked.map(|one| one.join().unwrap())).collect::<Vec<_>>()
    });
    floods.into_iter().for_each(end);
    for (kind, [[_, known], [sent, unseen], [all, allowed]]) in KINDS.iter().zip(outcomes) {
        let counts = format!(
            "{}: of {all} questions, {allowed} from allowed clients were answered, {known} from known ones, {unseen} from others",
            kind.name
        );
        println!("{counts}");
        assert!(allowed * 10 >= all * 9, "the rig loses too much: {counts}");
        assert!(known * 100 >= allowed * 98, "{counts}");
        assert!(unseen * 2 <= sent, "{counts}");
    }
}
