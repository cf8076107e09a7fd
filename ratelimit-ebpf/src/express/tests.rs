//! The express lane compared with a host without one, and packets that the lane must leave to the limiter.

extern crate std;

mod crowded;
mod noted_refusal;

use std::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};

use ratelimit_common::abi::{
    ListEntry, Mode, OnLimit, Service, SourceKey, Squeeze, Total,
    list::ALLOWED,
    service::{Protocol, port_slot, protocol_slot},
};

use super::*;
use crate::{
    frame::Link,
    limit::Proof,
    origin::OriginV4,
    packet::Address,
    tables::{LaneWord, Successor},
    testbed::{FrameEnd, IpFrame, TestHost, aggregated, empty, prefiltered, tcp, total, udp},
};

const SERVED: u16 = 80;
/// Packets of one comparison.
const PACKETS: u32 = 10_000;

/// A policy of 80 packets a second for each source, with a prefilter.
fn policy() -> Box<Policy> {
    let mut policy = empty();
    policy.source.set = prefiltered(&["80 packets/s burst 80"]);
    policy
}

/// Gives a policy a service at a port of both protocols, and one for a protocol without ports.
fn with_services(policy: &mut Policy, rate: &str) {
    policy.service_count = 2;
    for service in policy.services.iter_mut().take(2) {
        *service = Service { total_count: 1, ..Service::UNUSED };
        service.totals[0] = total(rate);
    }
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        policy.ports[port_slot(protocol, SERVED) as usize] = 1;
    }
    policy.protocols[protocol_slot(47, false) as usize] = 2;
}

/// Sets what the service at the port does with refused packets.
fn on_limit(policy: &mut Policy, on_limit: OnLimit) {
    policy.lenient = 1;
    policy.services[0].on_limit = on_limit as u32;
}

/// A host with the express lane.
fn host(policy: Box<Policy>) -> TestHost {
    assert!(policy.serves_lane());
    let host = TestHost::new(policy);
    host.express.set(true);
    host
}

fn key(source: [u8; 2]) -> SourceKey {
    Address::v4(u32::from_ne_bytes([10, 0, source[0], source[1]])).key
}

fn list(host: &mut TestHost) {
    host.list(key([9, 1]), ListEntry { blocked_until_ns: u64::MAX, ..ListEntry::EMPTY });
    host.list(key([9, 2]), ListEntry { blocked_until_ns: u64::MAX, allowed: ALLOWED, ..ListEntry::EMPTY });
    // This block ends while packets come.
    host.list(key([9, 3]), ListEntry { blocked_until_ns: 102 * 1_000_000_000, ..ListEntry::EMPTY });
}

/// The reason that a frame ends with, and whether it ends in the lane.
fn taken(host: &TestHost, frame: &[u8]) -> (Reason, bool) {
    let before = host.expressed.get();
    let reason = host.reason(frame);
    (reason, host.expressed.get() > before)
}

/// A generator of random numbers with a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A frame of a random source: one of a few heavy ones, one on the lists, or one that is never seen again.
    fn frame(&mut self) -> Vec<u8> {
        let source = match self.below(10) {
            0..4 => [1, self.below(4) as u8],
            4..7 => [9, self.below(4) as u8],
            _ => [20 + self.below(3) as u8, self.below(256) as u8],
        };
        let port = if self.below(3) == 0 { 53 } else { SERVED };
        let len = if self.below(2) == 0 { 8 } else { 600 };
        match self.below(8) {
            0 => tcp(source, port, 0x10),
            1 => {
                IpFrame { source, is_v6: false, protocol: 47, fragment: 0, payload: [0; 8].to_vec() }.frame()
            }
            2 => {
                let payload = udp(source, port, len)[34..].to_vec();
                IpFrame { source, is_v6: true, protocol: 17, fragment: 0, payload }.frame()
            }
            _ => udp(source, port, len),
        }
    }
}

/// The key under which [`alike`] counts frames that were refused at first look.
const FIRST_LOOK: &str = "first look";

/// A tick of the coarse clock of most kernels, in nanoseconds.
const TICK_NS: u64 = 4_000_000;

/// Sends the same traffic to a host with the lane and to one without. Returns how many frames ended in the lane, by reason, with a clock that moves in ticks.
fn alike(what: &str, make: impl Fn() -> TestHost) -> BTreeMap<String, u32> {
    alike_for(what, make, Dice::frame, 400_000)
}

/// [`alike`] for frames of a given kind, which come at most `apart_ns` nanoseconds after each other.
fn alike_for(
    what: &str,
    make: impl Fn() -> TestHost,
    next_frame: impl Fn(&mut Dice) -> Vec<u8>,
    apart_ns: u64,
) -> BTreeMap<String, u32> {
    alike_by_clock(what, &make, &next_frame, apart_ns, 1);
    alike_by_clock(what, &make, &next_frame, apart_ns, TICK_NS)
}

/// [`alike_for`] with a clock that moves in ticks of a given length.
fn alike_by_clock(
    what: &str,
    make: &impl Fn() -> TestHost,
    next_frame: &impl Fn(&mut Dice) -> Vec<u8>,
    apart_ns: u64,
    tick_ns: u64,
) -> BTreeMap<String, u32> {
    let (with, without) = (make(), make());
    without.express.set(false);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut ended = BTreeMap::new();
    let mut first_looks = 0;
    let mut now_ns = with.now_ns.get();
    for number in 0..PACKETS {
        let frame = next_frame(&mut dice);
        first_looks += u32::from(looked_at_once(&with, &frame));
        let expected: FrameEnd = without.end(&frame);
        let before = with.expressed.get();
        let end = with.end(&frame);
        assert_eq!(end, expected, "{what}: packet {number}, {frame:x?}");
        if end.reason == Reason::LimitPrefix {
            // Both hosts are asked, because a host that is asked remembers the answer.
            for host in [&with, &without] {
                assert!(!admitted_by_limits_alone(host, &frame), "{what}: packet {number}, {frame:x?}");
            }
        }
        if with.expressed.get() > before {
            *ended.entry(std::format!("{:?}", end.reason)).or_insert(0) += 1;
        }
        now_ns += dice.below(apart_ns);
        for host in [&with, &without] {
            host.now_ns.set(now_ns - now_ns % tick_ns);
        }
    }
    ended.insert(FIRST_LOOK.into(), first_looks);
    ended
}

/// Whether limits would admit a frame if nothing were remembered about prefixes.
fn admitted_by_limits_alone(host: &TestHost, frame: &[u8]) -> bool {
    let crowded = host.lane_word(LaneWord::CrowdedUntil).unwrap();
    let (until_ns, express) = (host.load(crowded), host.express.replace(false));
    host.store(crowded, 0);
    let admitted = host.reason(frame).admits();
    host.store(crowded, until_ns);
    host.express.set(express);
    admitted
}

/// Whether a frame is refused at first look. The rest of the lane must then refuse it for the same reason.
fn looked_at_once(host: &TestHost, frame: &[u8]) -> bool {
    let (frame, now_ns) = (Frame::new(Link::Ethernet, frame), host.now_ns(Clock::Coarse));
    let at_once = first_look::refusal(&frame, host, now_ns);
    let again = refusal(&frame, host, now_ns).map(|(service, reason)| slot(service, reason, Fate::Decided));
    assert!(at_once.is_none() || at_once == again, "{at_once:?}, {again:?}");
    at_once.is_some()
}

#[test]
fn a_packet_ends_in_the_lane_as_it_would_have_ended_without_one() {
    let listed = |mut host: TestHost| {
        list(&mut host);
        host
    };
    let of_sources = alike("sources", || listed(host(policy())));
    assert!(of_sources["LimitPackets"] > 1_000 && of_sources["Blocked"] > 500, "{of_sources:?}");
    assert!(of_sources[FIRST_LOOK] > 1_500, "{of_sources:?}");
    let of_totals = alike("totals", || {
        let mut policy = policy();
        with_services(&mut policy, "100 packets/s burst 100");
        listed(host(policy))
    });
    assert!(of_totals["ServiceTotal"] > 500, "{of_totals:?}");
    let of_bytes = alike("totals in bytes", || {
        let mut policy = policy();
        with_services(&mut policy, "40 kB/s burst 4000 bytes");
        listed(host(policy))
    });
    assert!(of_bytes["ServiceTotal"] > 500, "{of_bytes:?}");
    let of_host = alike("the host", || {
        let mut policy = policy();
        policy.host_total_count = 1;
        policy.host_totals[0] = total("200 packets/s burst 200");
        with_services(&mut policy, "1000 packets/s burst 1000");
        listed(host(policy))
    });
    assert!(of_host["HostTotal"] > 300, "{of_host:?}");
    let of_trial = alike("a service on trial, a host", || {
        let mut policy = policy();
        policy.host_total_count = 1;
        policy.host_totals[0] = total("200 packets/s burst 200");
        with_services(&mut policy, "100 packets/s burst 100");
        on_limit(&mut policy, OnLimit::Monitor);
        listed(host(policy))
    });
    assert!(of_trial["HostTotal"] > 100, "{of_trial:?}");
    let of_prefixes = alike("prefixes", || {
        let mut policy = policy();
        policy.aggregation = aggregated(&policy.source.set, 24, 2);
        host(policy)
    });
    assert!(of_prefixes["LimitPrefix"] > 100, "{of_prefixes:?}");
}

/// Without entries in the lists, a first look decides about sources without an entry too.
#[test]
fn a_packet_ends_in_the_lane_of_a_host_without_lists_as_it_would_have_ended_without_one() {
    for (what, service, of_host) in [
        ("totals", "100 packets/s burst 100", None),
        ("totals in bytes", "40 kB/s burst 4000 bytes", None),
        ("two totals", "150 packets/s burst 20", Some("200 packets/s burst 20")),
        ("two totals, the host's is the smaller", "400 packets/s burst 20", Some("150 packets/s burst 20")),
    ] {
        for own in ["80 packets/s burst 80", "300 packets/s burst 16", "5000 packets/s burst 500"] {
            let ended = alike(&std::format!("{what}, {own}"), || {
                let mut policy = policy();
                policy.source.set = prefiltered(&[own]);
                with_services(&mut policy, service);
                if let Some(rate) = of_host {
                    policy.host_total_count = 1;
                    policy.host_totals[0] = total(rate);
                    // A CPU takes a few packets' worth at a time, so it may hold some when the bucket has none.
                    policy.host_totals[0].portion_q8 = 4 * policy.host_totals[0].limit.cost_fp;
                }
                host(policy)
            });
            let by_totals = |reason: &str| ended.get(reason).copied().unwrap_or(0);
            assert!(what.ends_with("bytes") || ended[FIRST_LOOK] > 300, "{what}, {own}: {ended:?}");
            assert!(by_totals("ServiceTotal") + by_totals("HostTotal") > 300, "{what}, {own}: {ended:?}");
        }
    }
}

/// A short packet may find something left where a long one does not.
#[test]
fn a_total_in_bytes_is_not_noted_down() {
    for (rate, noted) in [("100 packets/s burst 100", true), ("4 kB/s burst 4000 bytes", false)] {
        let mut policy = policy();
        with_services(&mut policy, rate);
        let host = host(policy);
        for last in 0..250 {
            host.reason(&udp([20, last], SERVED, 8));
        }
        assert_eq!(taken(&host, &udp([21, 1], SERVED, 8)), (Reason::ServiceTotal, true), "{rate}");
        let name = host.lane_word(LaneWord::SpentName).unwrap();
        assert_eq!(host.load(name) != 0, noted, "{rate}");
    }
}

#[test]
fn a_segment_of_a_source_without_an_entry_is_for_the_limiter_even_if_nothing_is_left_for_such() {
    let mut policy = policy();
    with_services(&mut policy, "100 packets/s burst 100");
    let host = host(policy);
    for last in 0..250 {
        host.reason(&udp([20, last], SERVED, 8));
    }
    assert_eq!(taken(&host, &udp([21, 1], SERVED, 8)), (Reason::ServiceTotal, true));
    assert!(!taken(&host, &tcp([21, 2], SERVED, 0x02)).1, "it may be answered with a cookie");
}

#[test]
fn the_lane_is_looked_at_for_six_tenths_of_a_second_after_a_refusal() {
    let host = host(policy());
    let now_ns = host.now_ns.get();
    assert!(!lane::is_open(&host, now_ns) && !lane::is_crowded(&host, now_ns), "nothing was refused yet");
    lane::open(&host, now_ns);
    assert!(lane::is_open(&host, now_ns + 599_999_999) && !lane::is_open(&host, now_ns + 600_000_000));
    assert!(!lane::is_crowded(&host, now_ns), "no prefix was used up");
    lane::crowd(&host, now_ns);
    assert!(lane::is_crowded(&host, now_ns + 599_999_999) && !lane::is_crowded(&host, now_ns + 600_000_000));
}

#[test]
fn who_is_over_a_limit_is_refused_in_the_lane_until_there_is_more() {
    for (rate, reason) in [
        ("80 packets/s burst 80", Reason::LimitPackets),
        ("4000 bytes/s burst 4000 bytes", Reason::LimitBytes),
    ] {
        let mut policy = policy();
        policy.source.set = prefiltered(&[rate]);
        let host = host(policy);
        let frame = udp([1, 1], 53, 8);
        assert!(host.passed(&frame, 200) >= 80);
        assert_eq!(taken(&host, &frame), (reason, true), "{rate}");
        assert_eq!(taken(&host, &udp([1, 2], 53, 8)), (Reason::Conforming, false), "another source");
        host.wait_ms(20);
        assert_eq!(taken(&host, &frame), (Reason::Conforming, false), "{rate}: there is one more");
    }
}

#[test]
fn who_is_blocked_is_refused_in_the_lane_once_the_daemon_was_told() {
    let mut host = host(policy());
    list(&mut host);
    for frame in [udp([9, 1], 53, 8), tcp([9, 1], 53, 0x10)] {
        host.wait_ms(1_000);
        let told = host.told.borrow().len();
        assert_eq!(taken(&host, &frame), (Reason::Blocked, false), "the first is told of");
        assert_eq!(host.told.borrow().len(), told + 1);
        assert_eq!(taken(&host, &frame), (Reason::Blocked, true));
        assert_eq!(host.told.borrow().len(), told + 1, "once in a tenth of a second");
    }
    host.wait_ms(1_000);
    assert_eq!(taken(&host, &udp([9, 2], 53, 8)), (Reason::Allowed, false), "the allow list wins");
    assert_eq!(taken(&host, &udp([9, 3], 53, 8)), (Reason::Conforming, false), "its block is over");
}

#[test]
fn who_keeps_to_its_limit_is_refused_in_the_lane_by_the_total_that_refused_it() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["800 packets/s burst 800"]);
    with_services(&mut policy, "100 packets/s burst 100");
    let host = host(policy);
    let [served, elsewhere] = [SERVED, 53].map(|port| udp([1, 1], port, 8));
    assert_eq!(host.passed(&elsewhere, 200), 200, "more than its cell gives: it has an entry");
    host.passed(&served, 200);
    assert_eq!(taken(&host, &served), (Reason::ServiceTotal, true));
    assert_eq!(taken(&host, &elsewhere), (Reason::Conforming, false), "it is the service that has nothing");
    assert!(!taken(&host, &tcp([1, 1], SERVED, 0x10)).1, "a segment may belong to a connection");
    host.wait_ms(20);
    assert_eq!(taken(&host, &served), (Reason::Conforming, false), "there is more");
}

/// The noted total depends on both: a host's total is charged before that of a service.
#[test]
fn a_total_that_refuses_a_source_with_an_entry_is_noted_down_if_it_is_the_first_that_is_asked() {
    for of_host in [false, true] {
        let mut policy = policy();
        policy.source.set = prefiltered(&["800 packets/s burst 800"]);
        with_services(&mut policy, "100 packets/s burst 100");
        if of_host {
            policy.host_total_count = 1;
            let whole = total("10000 packets/s burst 10000");
            // One CPU takes enough for all of these packets at once.
            policy.host_totals[0] = Total { portion_q8: 1_000 * whole.limit.cost_fp, ..whole };
        }
        let host = host(policy);
        let [served, elsewhere] = [SERVED, 53].map(|port| udp([1, 1], port, 8));
        host.passed(&elsewhere, 200);
        host.passed(&served, 200);
        assert_eq!(taken(&host, &served), (Reason::ServiceTotal, true), "a total of the host: {of_host}");
        host.wait_ms(1);
        note_another(&host);
        assert_eq!(looked_at_once(&host, &served), !of_host);
        // By the cell, the entry is full again: the source counts as one without an entry.
        let hash = OriginV4(u32::from_ne_bytes([10, 0, 1, 1])).hash(&host.policy);
        host.track_until(prefilter::cell_index(hash), 1 << 32);
        assert!(!looked_at_once(&host, &served));
    }
}

/// Makes a host hold a note of this moment about a refusal of no real source.
fn note_another(host: &TestHost) {
    let at = host.lane_word(LaneWord::RefusedAt).unwrap();
    host.store(at, host.now_ns.get());
    host.store(host.lane_word(LaneWord::RefusedSource).unwrap(), u64::MAX);
}

#[test]
fn services_that_share_a_port_are_not_told_apart_in_the_lane() {
    let mut policy = policy();
    with_services(&mut policy, "1000000 packets/s");
    policy.ports[port_slot(Protocol::Udp, SERVED) as usize] = (BY_DESTINATION | 5) as u16;
    let host = host(policy);
    let frames = [SERVED, 53].map(|port| udp([1, 1], port, 8));
    host.passed(&frames[1], 200);
    assert_eq!(taken(&host, &frames[1]), (Reason::LimitPackets, true));
    assert_eq!(taken(&host, &frames[0]), (Reason::LimitPackets, false));
}

#[test]
fn packets_for_a_service_that_does_not_drop_are_left_to_the_limiter() {
    for on_limit in [OnLimit::Monitor, OnLimit::Mark, OnLimit::Reject] {
        let mut policy = policy();
        with_services(&mut policy, "1000000 packets/s");
        self::on_limit(&mut policy, on_limit);
        let host = host(policy);
        let frames = [SERVED, 53].map(|port| udp([1, 1], port, 8));
        host.passed(&frames[1], 200);
        assert_eq!(taken(&host, &frames[1]), (Reason::LimitPackets, true), "{on_limit:?}: for no service");
        assert_eq!(taken(&host, &frames[0]), (Reason::LimitPackets, false), "{on_limit:?}");
    }
    let mut policy = policy();
    policy.mode = Mode::Monitor as u32;
    assert!(!policy.serves_lane(), "on trial as a whole");
}

#[test]
fn a_limit_in_step_with_the_clock_is_refused_in_the_lane_tick_after_tick() {
    // The clock stands still for 4 ms; at 1000 packets/s the next packet is due a moment after it moves or a moment before.
    for tick_ns in [3_999_990, 4_000_000, 4_000_010] {
        for clock in [Clock::Coarse, Clock::Precise] {
            let mut policy = empty();
            policy.source.set = prefiltered(&["1000 packets/s burst 1000"]);
            policy.clock = clock as u32;
            let host = host(policy);
            let frame = udp([1, 1], 53, 8);
            host.passed(&frame, 2_000);
            let (mut passed, mut in_limiter) = (0, 0);
            for _ in 0..1_000 {
                host.now_ns.set(host.now_ns.get() + tick_ns);
                for _ in 0..20 {
                    let (reason, in_lane) = taken(&host, &frame);
                    passed += u32::from(reason == Reason::Conforming);
                    in_limiter += u32::from(reason != Reason::Conforming && !in_lane);
                }
            }
            assert!((3_998..=4_001).contains(&passed), "{clock:?}, {tick_ns} ns: {passed} passed in 4 s");
            // The first refusal of a tick is decided by the limiter.
            if clock == Clock::Coarse {
                assert!(in_limiter <= 1_000, "{tick_ns} ns: {in_limiter} of 16000 were looked up");
            }
        }
    }
}
