//! What the host pipeline shows by itself, with time as a number. No kernel is asked.

use std::time::Duration;

use fastrand::Rng;
use ratelimit_common::abi::Verdict;
use ratelimit_ebpf::{
    frame::{Frame, Link},
    origin::Origin,
    packet::Family,
    parse,
};
use ratelimit_tests::{memory::Memory, policies};
use ratelimit_user::compile::lists;

use crate::differential::{
    AT_MOST, CAPPED, CROWDED, DIVIDED, PACKETS, POLICY, SMALL, listed, mutate, random_frame, random_packet,
};

/// Frames whose verdicts are compared at several speeds: enough for every prefix to be used up.
const COMPARED: usize = 30_000;

/// Reads of a frame what the express lane needs, and finds that the parser of the limiter reads the frame so too.
fn read_briefly(link: Link, bytes: &[u8]) -> bool {
    let frame = Frame::new(link, bytes);
    let brief = parse::network(&frame).and_then(|(family, at)| match family {
        Family::V4 => parse::brief_v4(&frame, at).map(|brief| brief.with(Origin::address)),
        Family::V6 => parse::brief_v6(&frame, at).map(|brief| brief.with(Origin::address)),
    });
    let Some(brief) = brief else { return false };
    let whole = parse::parse(&frame).unwrap_or_else(|reason| panic!("{reason:?}: {bytes:02x?}"));
    let same = (whole.source, whole.protocol, whole.port) == (brief.source, brief.protocol, brief.port)
        && whole.transport.is_tcp() == brief.is_tcp()
        && whole.port_slot() == brief.port_slot()
        && !whole.fragment;
    assert!(same, "{whole:?}, {brief:?}: {bytes:02x?}");
    true
}

#[test]
fn what_the_short_parser_reads_the_long_one_reads_too() {
    for (link, make) in [(Link::Ethernet, random_frame as fn(&mut Rng) -> Vec<u8>), (Link::Ip, random_packet)]
    {
        let mut rng = Rng::with_seed(0xb61ef);
        let read = (0..200_000).filter(|_| read_briefly(link, &mutate(&mut rng, make))).count();
        assert!(read > 10_000, "{link:?}: {read}");
    }
}

/// Totals that refuse sources with an entry and sources without one.
const TOTALS: &str = r#"
[host]
link = false
total = ["20000 packets/day"]
[source]
limits = ["80 packets/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
total = ["1500 packets/day", "1000000 bytes/day"]
"#;

/// Frames of a flood: few sources and services, so that most are refused. The clock goes on meanwhile.
#[test]
fn the_limiter_behind_the_express_lane_is_the_limiter_alone() {
    for (name, policy) in
        [("ports", POLICY), ("totals", TOTALS), ("prefixes", CROWDED), ("destinations", DIVIDED)]
    {
        let policy = policies::policy(policy);
        let [alone, behind] = [false, true].map(|express| {
            let host = Memory::new(&policy, lists::effective(listed()));
            host.express.set(express);
            host.lag_ns.set(3_000_000);
            host
        });
        let mut rng = Rng::with_seed(0x1a9e);
        for number in 0..PACKETS {
            let frame = mutate(&mut rng, random_frame);
            assert_eq!(alone.run(&frame), behind.run(&frame), "{name}, packet {number}: {frame:02x?}");
            assert_eq!(alone.counted(), behind.counted(), "{name}, packet {number}: {frame:02x?}");
            if rng.u8(..64) == 0 {
                let later_ns = alone.now_ns.get() + rng.u64(..4_000_000);
                alone.now_ns.set(later_ns);
                behind.now_ns.set(later_ns);
            }
        }
        assert_eq!(alone.counters(), behind.counters(), "{name}");
        assert_eq!(alone.told.borrow().len(), behind.told.borrow().len(), "{name}: what the daemon is told");
        // Of these frames few are plain enough for the lane.
        println!("{name}: {} of {PACKETS} in the lane", behind.lane_drops.get());
        assert!(behind.lane_drops.get() > 20, "{name}: {}", behind.lane_drops.get());
        assert_eq!(alone.lane_drops.get(), 0);
    }
}

/// The frames of a run that is compared with the kernel, and what becomes of them if the clock stands still until one of them, and then is as late as
/// it may become.
fn verdicts(policy: &str, link: Link, late_from: usize) -> Vec<Verdict> {
    let host = Memory::new(&policies::policy(policy), lists::effective(listed()));
    host.link.set(link);
    let make = if link == Link::Ip { random_packet } else { random_frame };
    let began_ns = host.now_ns.get();
    let mut rng = Rng::with_seed(0x5eed);
    let verdict = |number| {
        if number == late_from {
            host.now_ns.set(began_ns + (AT_MOST + Duration::from_secs(1)).as_nanos() as u64);
        }
        host.run(&mutate(&mut rng, make))
    };
    (0..COMPARED).map(verdict).collect()
}

/// In `differential.rs` the kernel's clock goes on while the host's stands still. A machine that is slow must not be taken for a kernel that is wrong.
#[test]
fn no_verdict_that_is_compared_with_the_kernels_depends_on_how_slow_the_machine_is() {
    for (name, policy, link) in [
        ("ports", POLICY, Link::Ethernet),
        ("prefixes", CROWDED, Link::Ethernet),
        ("caps", CAPPED, Link::Ethernet),
        ("small", SMALL, Link::Ethernet),
        ("small", SMALL, Link::Ip),
        ("destinations", DIVIDED, Link::Ethernet),
        ("destinations", DIVIDED, Link::Ip),
    ] {
        let still = verdicts(policy, link, COMPARED);
        for late_from in (0..COMPARED).step_by(COMPARED / 6).skip(1) {
            let late = verdicts(policy, link, late_from);
            let differs = still.iter().zip(&late).position(|(still, late)| still != late);
            assert_eq!(differs, None, "{name} on {link:?} links, late from packet {late_from} on");
        }
    }
}
