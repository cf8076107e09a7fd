//! The same random and mutated packets through the host pipeline and through the loaded program: same verdicts, same
//! counters.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::Path,
    time::{Duration, Instant},
};

use fastrand::Rng;
use ratelimit_common::abi::{ListEntry, Reason, Verdict, counter::Fate, list};
use ratelimit_ebpf::frame::Link;
use ratelimit_tests::{
    cpus,
    frames::{
        ACK, ARP, ICMP, ICMPV6, IPV4, IPV6, Ipv4, Ipv6, QINQ, SYN, TCP, UDP, VLAN, ethernet, extension,
        fragment, icmp, tag, tcp, udp,
    },
    fuzz::{
        answers::{self, Input},
        packets,
    },
    loaded::Loaded,
    memory::Memory,
    policies,
};
use ratelimit_user::{
    compile::lists::{self, Lists},
    dataplane::framing::Framing,
};

pub(crate) const PACKETS: u64 = 150_000;
/// Sources, few enough that limits are reached again and again.
const SOURCES: u64 = 400;

/// Packets are compared for so long at most. Nothing that decides refills meanwhile, so the two clocks, a number here and the kernel's there, agree:
/// `host_pipeline.rs` holds every policy here to that.
pub(crate) const AT_MOST: Duration = Duration::from_secs(5);

/// Limits that sources reach. The cap on frames without a source refills within milliseconds, so there is none here.
pub(crate) const POLICY: &str = r#"
[host]
link = false
[source]
limits = ["72 packets/day", "8 syns/day", "13000 bytes/day burst 13000", "8 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["66 packets/day"]
total = ["4000 packets/day"]
[[user]]
name = "acme"
sources = ["10.0.1.0/27", "2001:db8:0:40::/59"]
network = ["900 packets/day"]
"#;

/// Prefixes that are used up long before their sources are. All packets cost the same: of what adds up over sources and lengths, a second would
/// matter. One packet takes a prefix 39 s and more to refill, and after none does a prefix owe what decides or a few seconds more: an eighth of its burst,
/// three quarters of it, and where squeezing begins, 9 s above half of it.
pub(crate) const CROWDED: &str = r#"
[host]
link = false
[source]
limits = ["71 packets/day"]
new_sources_per_cpu = 10000000
ladder = { ipv4 = ["/27 x7", "/24 x31"], ipv6 = ["/60 x5", "/56 x21"] }
"#;

/// Services that share ports. Nothing of packets of different length adds up over sources: then a second would matter.
pub(crate) const DIVIDED: &str = r#"
[host]
link = false
[source]
limits = ["72 packets/day", "8 syns/day", "13000 bytes/day burst 13000", "8 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["66 packets/day"]
total = ["2000 packets/day"]
[[service]]
name = "anycast"
match = { protocol = "udp", ports = [53], destinations = ["192.0.2.0/24", "2001:db8:f::/48", "::/3"] }
total = ["1000 packets/day"]
[[service]]
name = "one"
match = { protocol = "udp", ports = [53], destinations = ["192.0.2.128/25", "2001:db8:f::1"] }
total = ["500 packets/day"]
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80], destinations = ["192.0.2.0/25", "2001:db8:f::/49"] }
total = ["900 packets/day"]
"#;

/// In `anycast` by each of its prefixes, in `one`, in IPv4's form, and in none.
const DESTINATIONS_V6: [Ipv6Addr; 5] = [
    Ipv6Addr::LOCALHOST,
    Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0x8000, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0281),
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
];

/// A policy with limits so small that the prefilter cannot help.
pub(crate) const SMALL: &str = r#"
[host]
link = false
[source]
limits = ["60 packets/day", "2 syns/day", "5100 bytes/day burst 10000", "3 fragments/day"]
ladder = false
new_sources_per_cpu = 10000000
"#;

#[test]
fn host_and_kernel_agree_on_random_and_mutated_packets() {
    let never = ["unlimited", "contended", "table_full", "new_source_budget", "limit_prefix"];
    agree(POLICY, Framing::Ethernet, &[&never[..], &["host_total", "link_cap"]].concat());
}

#[test]
fn host_and_kernel_agree_where_sources_share_what_their_prefixes_may_have() {
    let never = ["unlimited", "contended", "table_full", "new_source_budget", "host_total", "link_cap"];
    let unset =
        ["service_total", "limit_user", "limit_packets", "limit_bytes", "limit_syns", "limit_fragments"];
    agree(CROWDED, Framing::Ethernet, &[&never[..], &unset].concat());
}

/// Services for what has no ports, and a total for everything.
pub(crate) const CAPPED: &str = r#"
[source]
limits = ["16 packets/day", "2 syns/day", "2 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[host]
total = ["11000 packets/day"]
link = false
[[service]]
name = "ping"
match = { protocol = "icmp" }
per_source = ["10 packets/day"]
[[service]]
name = "ping6"
match = { protocol = "icmpv6", destinations = ["::1"] }
total = ["1000 packets/day"]
[[service]]
name = "pieces"
match = { protocol = "fragments" }
total = ["300 packets/day"]
"#;

#[test]
fn host_and_kernel_agree_when_everything_has_a_cap() {
    agree(
        CAPPED,
        Framing::Ethernet,
        &[
            "unlimited",
            "contended",
            "table_full",
            "new_source_budget",
            "limit_prefix",
            "limit_user",
            "limit_bytes",
            "link_cap",
        ],
    );
}

/// What never happens to frames that are IP packets: Ethernet carries it, or no policy here asks for it.
const NEVER_IP: [&str; 10] = [
    "arp",
    "vlan_depth",
    "neighbour_discovery",
    "unlimited",
    "contended",
    "table_full",
    "new_source_budget",
    "limit_prefix",
    "limit_user",
    "host_total",
];

#[test]
fn host_and_kernel_agree_where_frames_are_ip_packets() {
    // Neighbours that are found so are limited like everything else.
    agree(SMALL, Framing::Ip, &[&NEVER_IP[..], &["service_total", "link_cap"]].concat());
}

#[test]
fn host_and_kernel_agree_where_frames_are_ip_packets_and_destinations_decide() {
    agree(DIVIDED, Framing::Ip, &[&NEVER_IP[..], &["link_cap"]].concat());
}

#[test]
fn host_and_kernel_agree_when_every_source_needs_an_entry() {
    agree(
        SMALL,
        Framing::Ethernet,
        &[
            "unlimited",
            "contended",
            "table_full",
            "new_source_budget",
            "service_total",
            "limit_prefix",
            "limit_user",
            "host_total",
            "link_cap",
        ],
    );
}

#[test]
fn host_and_kernel_agree_when_destinations_decide_which_service_a_packet_is_for() {
    agree(
        DIVIDED,
        Framing::Ethernet,
        &[
            "unlimited",
            "contended",
            "table_full",
            "new_source_budget",
            "limit_prefix",
            "limit_user",
            "host_total",
            "link_cap",
        ],
    );
}

/// The kernel's test facility takes no frame that is shorter.
const SHORTEST: usize = 14;

/// The inputs of a fuzz target; none in guests, which have executables only.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    if !corpus.exists() && std::env::var_os("RATELIMIT_GUEST").is_some() {
        return Vec::new();
    }
    let mut paths: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn host_and_kernel_agree_on_the_frames_of_the_fuzzers_corpus() {
    cpus::stay_on(0);
    let inputs = corpus("packets");
    for (number, policy) in packets::POLICIES.iter().enumerate().take(packets::TIMELESS) {
        for (link, framing) in [(Link::Ethernet, Framing::Ethernet), (Link::Ip, Framing::Ip)] {
            let host = Memory::new(policy, Lists::new());
            host.link.set(link);
            let mut kernel = Loaded::new(policy).for_framing(framing);
            kernel.set_lists(Lists::new());
            let inputs = inputs.iter().map(|input| packets::frames(input));
            let inputs = inputs.filter(|(one, policy, _)| (*one, *policy) == (link, number));
            for frame in inputs.flat_map(|(_, _, frames)| frames).filter(|frame| frame.len() >= SHORTEST) {
                assert_eq!(host.run(frame), kernel.run(frame), "policy {number}, {link:?}: {frame:02x?}");
            }
            assert_eq!(host.counters(), kernel.counters(), "policy {number}, {link:?}");
        }
    }
}

#[test]
fn host_and_kernel_send_and_mark_the_same_for_the_fuzzers_corpus() {
    cpus::stay_on(0);
    let inputs = corpus("answers");
    let inputs: Vec<Input<'_>> = inputs.iter().filter_map(|input| Input::read(input)).collect();
    let (mut sent, mut marked) = (0, 0);
    for (number, policy) in answers::POLICIES.iter().enumerate().take(answers::TIMELESS) {
        // The budget of rejections refills within a second, and the host's clock stands still.
        let mut policy = policy.clone();
        policy.policy.prefilter.rejections = policy.policy.prefilter.new_sources;
        let policy = &policy;
        for (link, framing) in [(Link::Ethernet, Framing::Ethernet), (Link::Ip, Framing::Ip)] {
            let mut kernel = Loaded::new(policy).for_framing(framing);
            kernel.set_lists(answers::listed());
            let mut host = answers::host(policy, (0, false));
            let of_policy = |input: &&Input<'_>| (input.link, input.policy) == (link, number);
            // The kernel of a test has no sockets, and its interface has room and no tags outside of frames.
            for input in inputs.iter().filter(of_policy).map(Input::without_sockets) {
                answers::set(&mut host, &input);
                for frame in input.all_frames().filter(|frame| frame.len() >= SHORTEST) {
                    let end = host.end(frame);
                    let written = host.sent.take().pop().or(host.painted.take().pop());
                    let ours = (end.verdict, written.unwrap_or_else(|| frame.to_vec()));
                    assert_eq!(
                        ours,
                        kernel.rewrite(frame),
                        "policy {number}, {link:?}: {end:?}, {frame:02x?}"
                    );
                    sent += usize::from(end.verdict == Verdict::Reply);
                    marked += usize::from(end.fate == Fate::Marked);
                }
            }
        }
    }
    println!("{sent} replies, {marked} marked");
    assert!(inputs.is_empty() || (sent > 0 && marked > 0), "nothing was written");
}

fn agree(policy: &str, framing: Framing, unreachable: &[&str]) {
    let seed = from_environment("SEED").unwrap_or(0x5eed);
    let packets = from_environment("PACKETS").unwrap_or(PACKETS);
    println!("seed {seed}; SEED={seed} runs it again");
    // CPUs hold shares of a total by themselves, and the host's tables are those of one CPU.
    cpus::stay_on(0);
    let mut rng = Rng::with_seed(seed);
    let policy = policies::policy(policy);
    let lists = listed();
    let host = Memory::new(&policy, lists::effective(lists.clone()));
    let (link, make): (_, fn(&mut Rng) -> Vec<u8>) = match framing {
        Framing::Ethernet => (Link::Ethernet, random_frame),
        Framing::Ip => (Link::Ip, random_packet),
    };
    host.link.set(link);
    let mut kernel = Loaded::new(&policy).for_framing(framing);
    kernel.set_lists(lists);
    let began = Instant::now();
    let mut all = true;
    for number in 0..packets {
        if began.elapsed() > AT_MOST {
            // Too few for all that may happen to happen.
            println!("{number} of {packets} packets: this machine is slow");
            all = false;
            break;
        }
        let frame = mutate(&mut rng, make);
        let (ours, theirs) = (host.run(&frame), kernel.run(&frame));
        assert_eq!(ours, theirs, "seed {seed}, packet {number}: {frame:02x?}");
        if number % 5_000 == 0 {
            assert_eq!(host.counters(), kernel.counters(), "seed {seed}, packet {number}: {frame:02x?}");
        }
    }
    let counters = kernel.counters();
    assert_eq!(host.counters(), counters, "seed {seed}");
    let by_service = kernel.maps.counts().unwrap();
    for count in &by_service {
        assert_eq!(
            host.counter(count.service, count.reason, count.fate),
            count.counter,
            "seed {seed}, {count:?}"
        );
    }
    if !all {
        return;
    }
    for service in by_service.iter().map(|count| count.service) {
        let busy = by_service.iter().any(|count| count.service == service && count.counter.packets > 0);
        assert!(busy, "nothing was for service {service}");
    }
    // A differential test that never gets anywhere would agree too.
    for (reason, counter) in counters {
        // Cookies need sockets, which syn_ack.rs and syn_cookies.rs have; soft limits are in algorithms.rs.
        if reason.name().starts_with("cookie_") || reason == Reason::SoftMargin {
            assert_eq!(counter.packets, 0, "{}", reason.name());
            continue;
        }
        assert_eq!(
            counter.packets == 0,
            unreachable.contains(&reason.name()),
            "{} was hit {} times",
            reason.name(),
            counter.packets
        );
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

pub(crate) fn listed() -> Lists {
    let block = |until_ns| ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY };
    let allow = ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY };
    [
        ("10.0.0.0/28", block(list::FOREVER_NS)),
        ("10.0.0.2/32", allow),
        ("10.0.0.16/29", block(1)),
        ("2001:db8:0:1::/64", block(list::FOREVER_NS)),
        ("2001:db8:0:2::/64", allow),
    ]
    .map(|(prefix, entry)| (prefix.parse().unwrap(), entry))
    .into()
}

pub(crate) fn random_frame(rng: &mut Rng) -> Vec<u8> {
    let (ether_type, packet) = match rng.u8(..20) {
        0 => (ARP, vec![0; 28]),
        1 => (rng.u16(..), vec![0x33; rng.usize(..60)]),
        2..=11 => (IPV4, ipv4(rng)),
        _ => (IPV6, ipv6(rng)),
    };
    match rng.u8(..10) {
        0..=6 => ethernet(ether_type, &packet),
        7 => ethernet(VLAN, &tag(ether_type, &packet)),
        8 => ethernet(QINQ, &tag(VLAN, &tag(ether_type, &packet))),
        _ => ethernet(QINQ, &tag(VLAN, &tag(VLAN, &tag(ether_type, &packet)))),
    }
}

/// What a tunnel carries: IP, and sometimes something else.
pub(crate) fn random_packet(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..20) {
        0 | 1 => [&[rng.u8(..)], &vec![0x33; rng.usize(14..60)][..]].concat(),
        2..=11 => ipv4(rng),
        _ => ipv6(rng),
    }
}

fn ipv4(rng: &mut Rng) -> Vec<u8> {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + rng.u64(..SOURCES) as u32);
    let (protocol, payload) = transport(rng, ICMP);
    let packet = Ipv4 {
        options: rng.usize(..=10) * 4,
        fragment: if rng.u8(..8) == 0 { rng.u16(..) & 0x3fff } else { 0 },
        destination: destination_v4(&mut rng.clone()),
        ..Ipv4::from(source)
    };
    packet.carrying(protocol, &payload)
}

fn destination_v4(rng: &mut Rng) -> Ipv4Addr {
    [[10, 0, 0, 1], [192, 0, 2, rng.u8(..)]][rng.usize(..2)].into()
}

fn ipv6(rng: &mut Rng) -> Vec<u8> {
    let mut source = [0_u8; 16];
    source[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    source[6..8].copy_from_slice(&(rng.u64(..SOURCES) as u16).to_be_bytes());
    rng.fill(&mut source[8..]);
    let (mut next, mut payload) = transport(rng, ICMPV6);
    let headers = if rng.bool() { 0 } else { rng.usize(..=9) };
    for _ in 0..headers {
        let (kind, mut header) = match rng.u8(..4) {
            0 => (44, fragment(next, if rng.bool() { 0 } else { rng.u16(..8192) }, rng.bool())),
            1 => (0, extension(next, rng.u8(1..4))),
            2 => (43, extension(next, rng.u8(1..4))),
            _ => (60, extension(next, rng.u8(1..4))),
        };
        header.extend(payload);
        (next, payload) = (kind, header);
    }
    let mapped = rng.u8(..50) == 0;
    let source =
        if mapped { Ipv4Addr::from_bits(rng.u32(..)).to_ipv6_mapped() } else { Ipv6Addr::from(source) };
    // A look ahead: the frames are the same ones wherever they go.
    let destination = *pick(&mut rng.clone(), &DESTINATIONS_V6);
    Ipv6 { hop_limit: *pick(rng, &[255, 64]), destination, ..Ipv6::from(source) }.carrying(next, &payload)
}

fn transport(rng: &mut Rng, icmp_protocol: u8) -> (u8, Vec<u8>) {
    match rng.u8(..5) {
        0 | 1 => (TCP, tcp(*pick(rng, &[SYN, SYN, SYN, SYN | ACK, ACK, 0, 0xff]))),
        2 => (UDP, udp(rng.usize(..1300))),
        3 => (icmp_protocol, icmp(rng.u8(125..140))),
        _ => (rng.u8(..), vec![0; rng.usize(..40)]),
    }
}

/// Half of the frames as they are; the others with bytes changed, cut off or added.
pub(crate) fn mutate(rng: &mut Rng, make: impl Fn(&mut Rng) -> Vec<u8>) -> Vec<u8> {
    let mut frame = make(rng);
    match rng.u8(..8) {
        0 => {
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(12..frame.len().min(80));
                frame[at] = rng.u8(..);
            }
        }
        1 => frame.truncate(rng.usize(14..=frame.len())),
        2 => frame.resize(frame.len() + rng.usize(1..64), rng.u8(..)),
        3 => {
            let at = rng.usize(12..frame.len().min(64));
            frame[at] ^= 1 << rng.u8(..8);
        }
        _ => {}
    }
    // The kernel's test facility wants a whole Ethernet header.
    frame.resize(frame.len().max(14), 0);
    frame
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}
