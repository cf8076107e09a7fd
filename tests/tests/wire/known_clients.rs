//! Known clients beside a forged flood on a real wire, while the daemon is killed and the policy changes.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use ratelimit_tests::{
    clients::{UdpClients, UdpEcho, remember},
    daemon::{Edge, binary},
    netns::EDGE_V4,
    traffic::{PORT, sent},
};
use ratelimit_user::dataplane::pin::PinDir;

/// The port without a limit.
const CONTROL: u16 = PORT + 1;
/// What each client sends in a second.
const PER_SEC: u32 = 20;
/// What is forged in a second, and for how long.
const FORGED: u64 = 30_000;
const FLOOD_SECONDS: u64 = 9;

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

/// The total is spent by forged packets, of which nearly all are refused. What is lost to a CPU that is short is lost at the other port too.
#[test]
fn known_clients_are_served_through_restart_and_change() {
    let edge = Edge::new();
    clients().for_each(|client| edge.wire.add_source(client.into()));
    edge.start(&policy("", 2_000)).kill_9();
    remember(&PinDir::new(edge.pin()), clients().map(|client| (client, f64::from(PER_SEC))));
    let daemon = edge.start_again();
    let server: IpAddr = EDGE_V4.parse().unwrap();
    let _echo = edge.wire.as_edge(|| UdpEcho::start(&[PORT, CONTROL].map(|port| (server, port).into())));
    let asking = edge.wire.as_net(|| UdpClients::bind(clients()));

    let flood = edge
        .wire
        .in_net(binary("traffic"))
        .args(["forge", "--kind", "udp", "--to", &format!("{EDGE_V4}:{PORT}"), "--within", "16.0.0.0/4"])
        .args(["--pps", &FORGED.to_string(), "--for", &FLOOD_SECONDS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while edge.dropped("service_total") < FORGED / 4 {
        assert!(Instant::now() < deadline, "the total was never spent");
    }
    let (echoed, _daemon) = thread::scope(|scope| {
        let lasts = Duration::from_secs(FLOOD_SECONDS - 3);
        let asked = scope.spawn(move || asking.ask(server, [PORT, CONTROL], PER_SEC, lasts));
        thread::sleep(Duration::from_secs(1));
        daemon.kill_9();
        let daemon = edge.start_again();
        let path = edge.dir().join("next.toml");
        fs::write(&path, policy(ANOTHER, 1_500)).unwrap();
        let applied = edge.cli(&["apply", path.to_str().unwrap()]);
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        assert!(!asked.is_finished(), "both changes took longer than the clients asked");
        (asked.join().unwrap(), daemon)
    });
    let forged = sent(flood);
    let refused = edge.dropped("service_total");
    println!("{echoed:?}, {refused} of {forged} forged packets were refused");
    let [answered, without_limit] = echoed.answered;
    assert!(without_limit * 10 >= echoed.sent * 9, "the rig loses too much: {echoed:?}");
    assert!(answered * 100 >= without_limit * 98, "{echoed:?}");
    assert!(refused * 2 > forged, "{refused} of {forged} forged packets were refused");
}
