//! Every algorithm and every throttle, through the loaded program and through the same code with a clock of our own.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{Reason, Verdict, counter::Fate};
use ratelimit_tests::{
    frames::{Ipv4, Ipv6, SYN},
    loaded::Loaded,
    memory::Memory,
    policies,
};

const SECOND: u64 = 1_000_000_000;

fn source(limits: &str) -> String {
    format!("[source]\nladder = false\nlimits = [{limits}]\n")
}

fn frame(host: u8) -> Vec<u8> {
    Ipv4::from(Ipv4Addr::new(10, 0, 0, host)).udp_frame(8)
}

fn passed(loaded: &mut Loaded, frame: &[u8], times: u32) -> u32 {
    (0..times).filter(|_| loaded.run(frame) == Verdict::Pass).count() as u32
}

fn memory(policy: &str) -> Memory {
    let memory = Memory::new(&policies::policy(policy), Default::default());
    // At the beginning of a day, an hour, a minute.
    memory.now_ns.set(86_400 * SECOND * 3);
    memory
}

fn admitted(memory: &Memory, frame: &[u8], times: u32) -> u32 {
    (0..times).filter(|_| memory.run(frame) == Verdict::Pass).count() as u32
}

fn wait(memory: &Memory, ns: u64) {
    memory.now_ns.set(memory.now_ns.get() + ns);
}

#[test]
fn the_kernel_counts_by_every_algorithm() {
    for algorithm in
        ["token-bucket", "leaky-bucket", "fixed-window", "sliding-window", "sliding-window-weighted"]
    {
        let mut loaded = Loaded::new(&policies::policy(&source(&format!("\"25 packets/day {algorithm}\""))));
        assert_eq!(passed(&mut loaded, &frame(1), 40), 25, "{algorithm}");
        assert_eq!(loaded.count(Reason::LimitPackets), 15, "{algorithm}");
        assert_eq!(passed(&mut loaded, &frame(2), 40), 25, "{algorithm}: another source has its own");
        let v6 = |subnet| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0, subnet, 0, 0, 0, 1)).udp_frame(8);
        assert_eq!(passed(&mut loaded, &v6(1), 40), 25, "{algorithm}");
        assert_eq!(passed(&mut loaded, &v6(2), 40), 25, "{algorithm}");
    }
}

#[test]
fn windows_count_bytes_and_syns_too_and_a_packet_obeys_all_limits_at_once() {
    let policy =
        source("\"3000 bytes/day fixed-window\", \"4 syns/day sliding-window\", \"1000 packets/day\"");
    let mut loaded = Loaded::new(&policies::policy(&policy));
    let syn = Ipv4::from([10, 0, 0, 1]).tcp_frame(SYN);
    assert_eq!(passed(&mut loaded, &syn, 10), 4);
    assert_eq!(loaded.count(Reason::LimitSyns), 6);
    // What the limit on SYNs refused has cost no bytes.
    let frame = frame(1);
    let rest = (3000 - 4 * syn.len()) / frame.len();
    assert_eq!(passed(&mut loaded, &frame, 100), rest as u32);
    assert_eq!(loaded.count(Reason::LimitBytes), 100 - rest as u64);
}

#[test]
fn services_and_users_have_windows_of_their_own() {
    let policy = r#"
[source]
limits = ["1000 packets/day fixed-window"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["6 packets/day sliding-window"]
[[user]]
name = "acme"
sources = ["192.0.2.0/24"]
network = ["10 packets/day fixed-window"]
"#;
    let mut loaded = Loaded::new(&policies::policy(policy));
    let to_port = |source: [u8; 4], port: u16| {
        let mut frame = Ipv4::from(Ipv4Addr::from(source)).udp_frame(8);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    };
    let to_dns = |source| to_port(source, 53);
    assert_eq!(passed(&mut loaded, &to_dns([10, 0, 0, 1]), 20), 6, "of the service");
    assert_eq!(passed(&mut loaded, &to_port([10, 0, 0, 1], 1234), 20), 20, "elsewhere there is more");
    let of_user: u32 = (1..=5).map(|host| passed(&mut loaded, &to_dns([192, 0, 2, host]), 4)).sum();
    assert_eq!(of_user, 10, "all addresses of a user together");
    assert_eq!(loaded.count(Reason::LimitUser), 10);
}

#[test]
fn a_fixed_window_begins_with_the_clock_and_lets_twice_the_limit_through_across_its_edge() {
    let memory = memory(&source("\"3 packets/min fixed-window\""));
    wait(&memory, 59 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 10), 3);
    wait(&memory, SECOND);
    assert_eq!(admitted(&memory, &frame(1), 10), 3, "the next minute has begun");
    wait(&memory, 59 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 10), 0);
}

#[test]
fn a_sliding_window_never_lets_more_than_the_limit_through_in_any_minute() {
    let memory = memory(&source("\"3 packets/min sliding-window\""));
    wait(&memory, 59 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 10), 3);
    for _ in 0..59 {
        wait(&memory, SECOND);
        assert_eq!(admitted(&memory, &frame(1), 1), 0);
    }
    // Eight sub-windows of a seventh of a minute, at most, after the first.
    wait(&memory, 10 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 10), 3);
}

#[test]
fn a_weighted_window_counts_what_is_left_of_the_one_before() {
    let memory = memory(&source("\"100 packets/min sliding-window-weighted\""));
    wait(&memory, 59 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 200), 100);
    // A quarter into the next minute three quarters of them still count, rounded up.
    wait(&memory, 16 * SECOND);
    assert_eq!(admitted(&memory, &frame(1), 200), 24);
}

#[test]
fn what_a_soft_limit_admits_above_itself_is_counted_apart() {
    // 55 of 50. (From 64 on the coarse clock decides, and its lag costs a packet.)
    for limit in [
        "\"50 packets/day soft 10%\"",
        "\"50 packets/day leaky-bucket soft 10%\"",
        "\"50 packets/day fixed-window soft 10%\"",
        "\"50 packets/day sliding-window soft 10%\"",
    ] {
        let mut loaded =
            Loaded::new(&policies::source(&format!("gate = false\nladder = false\nlimits = [{limit}]")));
        assert_eq!(passed(&mut loaded, &frame(1), 95), 55, "{limit}");
        assert_eq!(loaded.count(Reason::Conforming), 50, "{limit}");
        assert_eq!(loaded.count(Reason::SoftMargin), 5, "{limit}");
        assert_eq!(loaded.count(Reason::LimitPackets), 40, "{limit}");
    }
}

#[test]
fn a_soft_limit_behind_the_prefilter_keeps_its_bounds() {
    let mut loaded = Loaded::new(&policies::policy(&source("\"800 packets/day burst 800 soft 10%\"")));
    // The cell's eighth is spent at the price of the limit itself, and so are the hundredths that are kept back for the clock.
    let admitted = passed(&mut loaded, &frame(1), 2_000);
    assert!((860..=880).contains(&admitted), "{admitted}");
    let (within, above) = (loaded.count(Reason::Conforming), loaded.count(Reason::SoftMargin));
    assert!((790..=800).contains(&within) && within + above == u64::from(admitted), "{within} and {above}");
}

#[test]
fn an_elastic_limit_is_soft_with_headroom_and_hard_without() {
    let text = "[source]\ngate = false\nladder = false\nlimits = [\"50 packets/day elastic 50%\"]\n";
    let policy = policies::parsed(text);
    for (headroom, expected) in [(true, 75), (false, 50)] {
        let facts = ratelimit_user::compile::HostFacts { headroom, ..policies::FACTS };
        let desired = ratelimit_user::compile::desired(&policy, &facts, 1, None);
        let memory = Memory::new(&desired, Default::default());
        assert_eq!(admitted(&memory, &frame(1), 300), expected, "headroom {headroom}");
        assert_eq!(u64::from(expected) - 50, memory.sum(Reason::SoftMargin, Fate::Decided).packets);
    }
}
