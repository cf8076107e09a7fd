//! Known clients while a total is spent, on the packet path with time as a number: beside a host without the express lane, packet by packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::{
    abi::{Reason, Verdict},
    limit::clients,
};
use ratelimit_tests::{
    bpffs::Scratch,
    clients::{remember, remember_in},
    frames::{Ipv4, Ipv6},
    loaded::Loaded,
    memory::Memory,
    policies,
};
use ratelimit_user::dataplane::{clients::ForeignClient, pin::PinDir, probe};

const SECOND_MS: u64 = 1_000;
/// A little longer than a step of the memory.
const STEP_MS: u64 = 70 * SECOND_MS;
/// The total of the service.
const RATE: u64 = 2_000;

/// Two hosts that get the same packets: one with the express lane, one without.
struct Hosts {
    hosts: [Memory; 2],
    random: u64,
}

impl Hosts {
    fn new(policy: &str) -> Self {
        let host = |lane: bool| {
            let memory = Memory::new(&policies::policy(policy), Default::default());
            memory.express.set(lane);
            memory
        };
        Self { hosts: [false, true].map(host), random: 1 }
    }

    fn wait_ms(&self, ms: u64) {
        for host in &self.hosts {
            host.now_ns.set(host.now_ns.get() + ms * 1_000_000);
        }
    }

    /// Whether both hosts pass a frame.
    fn passes(&self, frame: &[u8]) -> bool {
        let [plain, lane] = self.hosts.each_ref().map(|host| host.run(frame));
        assert_eq!(
            plain,
            lane,
            "with the lane {lane:?}, without {plain:?}, at {} ns",
            self.hosts[0].now_ns.get()
        );
        plain == Verdict::Pass
    }

    /// Whether both hosts pass a frame of a random source.
    fn passes_forged(&mut self) -> bool {
        let frame = Ipv4::from(self.forged()).udp_frame(8);
        self.passes(&frame)
    }

    fn forged(&mut self) -> Ipv4Addr {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Ipv4Addr::from_bits((self.random >> 16) as u32 | 0x1000_0000)
    }

    /// A calm time of some steps: every client sends so many packets each second, spread evenly.
    fn calm(&self, clients: &[Vec<u8>], per_sec: u64, steps: u64) {
        for _ in 0..steps * STEP_MS * per_sec / SECOND_MS {
            assert!(clients.iter().all(|client| self.passes(client)), "a calm time");
            self.wait_ms(SECOND_MS / per_sec);
        }
    }

    /// Forged packets in every millisecond, and packets of clients: returns how many of the clients' were sent and passed, and how many forged ones passed.
    fn flood(&mut self, clients: &[Vec<u8>], per_sec: u64, forged: &[Vec<u8>], seconds: u64) -> [u64; 3] {
        let [mut sent, mut passed, mut newcomers] = [0; 3];
        let every_ms = SECOND_MS / per_sec;
        for ms in 0..seconds * SECOND_MS {
            for n in 0..20 {
                newcomers += u64::from(match forged {
                    [] => self.passes_forged(),
                    _ => self.passes(&forged[(ms * 20 + n) as usize % forged.len()]),
                });
            }
            // Each client at a moment of its own.
            for client in
                clients.iter().enumerate().filter(|(n, _)| (ms + *n as u64).is_multiple_of(every_ms))
            {
                sent += 1;
                passed += u64::from(self.passes(client.1));
            }
            self.wait_ms(1);
        }
        [sent, passed, newcomers]
    }
}

fn clients(count: u8) -> Vec<Vec<u8>> {
    (1..=count).map(|last| Ipv4::from(Ipv4Addr::new(192, 0, 2, last)).udp_frame(8)).collect()
}

fn service(lines: &str) -> String {
    format!(
        "[source]\nlimits = [\"1000 packets/s burst 2000\"]\n\
         [[service]]\nname = \"echo\"\nmatch = {{ protocol = \"udp\", ports = [\"1-65535\"] }}\n{lines}\n"
    )
}

fn with_total() -> String {
    service(&format!("total = [\"{RATE} packets/s\"]"))
}

#[test]
fn known_clients_lose_nothing_in_a_spoofed_flood() {
    for per_sec in [5, 20] {
        let mut hosts = Hosts::new(&with_total());
        let clients = clients(20);
        hosts.calm(&clients, per_sec, 4);
        let [sent, passed, newcomers] = hosts.flood(&clients, per_sec, &[], 10);
        assert!(passed * 100 >= sent * 99, "{per_sec} packets/s: {passed} of {sent}");
        let floor = RATE * 10 / 8;
        assert!(newcomers >= floor * 98 / 100, "{newcomers} forged packets, {floor} are the least");
        let most = RATE + RATE * 10;
        assert!(passed + newcomers <= most, "{} of {most}", passed + newcomers);
    }
}

#[test]
fn clients_of_a_total_of_the_host_are_known() {
    for lines in ["", "per_source = [\"500 packets/s\"]"] {
        let policy = format!("[host]\ntotal = [\"{RATE} packets/s\"]\n{}", service(lines));
        let mut hosts = Hosts::new(&policy);
        let clients = clients(20);
        hosts.calm(&clients, 5, 4);
        let [sent, passed, _] = hosts.flood(&clients, 5, &[], 10);
        assert!(passed * 100 >= sent * 99, "{lines}: {passed} of {sent}");
    }
}

#[test]
fn clients_over_ipv6_are_known_by_their_64() {
    let mut hosts = Hosts::new(&with_total());
    let site = |host: u16| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 7, 1, 0, 0, 0, host)).udp_frame(8);
    for host in 0..4 * 70 * 5 {
        assert!(hosts.passes(&site(host)));
        hosts.wait_ms(200);
    }
    let [sent, passed, _] = hosts.flood(&[site(9_999)], 5, &[], 10);
    assert!(passed * 100 >= sent * 99, "{passed} of {sent}");
}

#[test]
fn a_source_that_was_never_seen_has_no_precedence() {
    let mut hosts = Hosts::new(&with_total());
    hosts.calm(&clients(1), 5, 4);
    let newcomer = vec![Ipv4::from(Ipv4Addr::new(198, 51, 100, 1)).udp_frame(8)];
    let [sent, passed, _] = hosts.flood(&newcomer, 5, &[], 10);
    assert!(passed * 100 <= sent * 60, "{passed} of {sent}");
}

/// An attacker that forges addresses of known clients takes what those have, and nothing of the others.
#[test]
fn forged_packets_of_known_clients_cost_the_others_nothing() {
    let mut hosts = Hosts::new(&with_total());
    let clients = clients(30);
    hosts.calm(&clients, 5, 4);
    let (forged, others) = clients.split_at(10);
    let [sent, passed, _] = hosts.flood(others, 5, forged, 10);
    assert!(passed * 100 >= sent * 97, "{passed} of {sent}");
}

/// Clients that send 5 packets/s each, beside random addresses and as many packets of addresses that an attacker has had served before, 500 of each second together. Returns how
/// many of the clients' packets were sent and passed, and how many random ones passed, in ten seconds.
fn beside_prepared_addresses(prepared: u32) -> [u64; 3] {
    let mut hosts = Hosts::new(&with_total());
    // Hours after the clock began: what was never claimed is not saved up since then.
    hosts.wait_ms(30_000 * SECOND_MS);
    // All over a 16th of the addresses: prefixes have limits of their own.
    let address = |n: u32| Ipv4Addr::from_bits(0x4000_0000 | n.wrapping_mul(0x9e37_79b1) & 0x0fff_ffff);
    for host in &hosts.hosts {
        remember_in(host, (1..=20).map(|last| (Ipv4Addr::new(192, 0, 2, last), 5.0)));
        remember_in(host, (0..prepared).map(|n| (address(n), 500.0 / f64::from(prepared))));
    }
    let clients = clients(20);
    let mut counts = [0; 3];
    for ms in 0..12 * SECOND_MS {
        if ms == 2 * SECOND_MS {
            // The burst is spent.
            counts = [0; 3];
        }
        for n in 0..10 {
            counts[2] += u64::from(hosts.passes_forged());
            hosts.passes(&Ipv4::from(address((ms * 10 + n) as u32 % prepared)).udp_frame(8));
        }
        if ms % 10 == 0 {
            counts[0] += 1;
            counts[1] += u64::from(hosts.passes(&clients[ms as usize / 10 % clients.len()]));
        }
        hosts.wait_ms(1);
    }
    counts
}

/// The simulation of the same attack has the clients lose nothing (`limit::clients::tests`).
#[test]
fn prepared_addresses_take_nothing_of_clients_and_newcomers() {
    let floor = RATE * 10 / 8;
    for prepared in [1_000, 100_000] {
        let [sent, passed, newcomers] = beside_prepared_addresses(prepared);
        println!("{prepared} addresses: {passed} of {sent}, {newcomers} newcomers");
        assert!(passed * 100 >= sent * 97, "{prepared} addresses: {passed} of {sent}");
        assert!(newcomers * 100 >= floor * 98, "{prepared} addresses: {newcomers}, {floor} are the least");
    }
}

/// A change of policy may give a service another index, and clients are known by its name.
#[test]
fn clients_stay_known_when_services_change_places() {
    let mut hosts = Hosts::new(&with_total());
    let clients = clients(20);
    hosts.calm(&clients, 5, 4);
    let policy = with_total().replace(
        "[[service]]",
        "[[service]]\nname = \"another\"\nmatch = { protocol = \"tcp\", ports = [1] }\n[[service]]",
    );
    let desired = policies::policy(&policy);
    for host in &mut hosts.hosts {
        host.enforce(&desired);
    }
    let [sent, passed, _] = hosts.flood(&clients, 5, &[], 10);
    assert!(passed * 100 >= sent * 99, "{passed} of {sent}");
}

/// Nothing is learned while the total is spent: a long flood earns no claim by it.
#[test]
fn a_flood_earns_no_claim() {
    let mut hosts = Hosts::new(&with_total());
    let loud = clients(40);
    for _ in 0..4 {
        hosts.flood(&[], 1, &loud, 5);
        // A moment of the next step, within the time for which nothing is learned.
        hosts.wait_ms(STEP_MS - 5 * SECOND_MS - 100);
        hosts.flood(&[], 1, &[], 1);
    }
    let [sent, passed, _] = hosts.flood(&loud, 20, &[], 10);
    assert!(passed * 100 <= sent * 60, "{passed} of {sent}");
}

/// A step has 16 bits: 52 days after a client was last met it would look young again.
#[test]
fn clients_not_met_for_thirty_days_are_removed() {
    const DAY_NS: u64 = 86_400 * 1_000_000_000;
    let scratch = Scratch::new();
    let loaded = Loaded::pinned(&PinDir::new(scratch.pin()), &policies::policy(&with_total()), 65_536);
    let (memory, now_ns) = (loaded.maps.clients(), probe::now_ns());
    let foreign = |tag, days: u64| ForeignClient {
        hash: clients::hash_of(5, tag),
        seconds: days * 86_400,
        average: 1_000,
    };
    assert_eq!(memory.import(vec![foreign(1, 0), foreign(2, 20), foreign(3, 9)], now_ns).unwrap(), 3);
    assert_eq!(memory.refresh(now_ns).unwrap().clients, 3);
    assert_eq!(memory.refresh(now_ns + 15 * DAY_NS).unwrap().clients, 2);
    let known = |days| {
        let known = memory.known_in(0..clients::SETS, now_ns + days * DAY_NS).unwrap();
        known.iter().map(|client| clients::tag(client.hash)).collect::<Vec<_>>()
    };
    assert_eq!(known(33), [0; 0], "steps of the second one are counted from 0 again");
    assert_eq!(known(15), [1, 3], "others of the set stay");
}

/// Clients that stand in the kernel's memory are found after the daemon has filled the filter, as it does when it starts.
#[test]
fn the_kernel_serves_known_clients_first() {
    let scratch = Scratch::new();
    let pins = PinDir::new(scratch.pin());
    let desired = policies::policy(&with_total());
    let mut loaded = Loaded::pinned(&pins, &desired, 65_536);
    remember(&pins, (1..=20).map(|last| (Ipv4Addr::new(192, 0, 2, last), 20.0)));
    let known = loaded.maps.clients().refresh(probe::now_ns()).unwrap();
    assert_eq!((known.clients, known.in_filter), (20, 20));
    assert!((390.0..=410.0).contains(&known.packets_per_sec), "{known:?}");
    let (clients, mut hosts) = (clients(20), Hosts::new(&with_total()));
    let (mut passed, mut newcomers) = (0, 0);
    const ROUNDS: u64 = 200;
    for round in 0..ROUNDS {
        let begun_ns = probe::now_ns();
        // Five packets/s of each client, beside 500 forged ones for each of them.
        for client in clients.iter().skip((round % 10) as usize).step_by(10) {
            for _ in 0..500 {
                let forged = Ipv4::from(hosts.forged()).udp_frame(8);
                newcomers += u64::from(loaded.run(&forged) == Verdict::Pass);
            }
            passed += u64::from(loaded.run(client) == Verdict::Pass);
        }
        while probe::now_ns() < begun_ns + 10_000_000 {
            std::thread::yield_now();
        }
    }
    assert!(loaded.count(Reason::ServiceTotal) > 100_000, "the total is spent");
    assert!(passed >= 2 * ROUNDS * 98 / 100, "{passed} of {}", 2 * ROUNDS);
    assert!(newcomers > 0);
}
