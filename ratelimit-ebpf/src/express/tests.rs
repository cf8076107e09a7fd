//! The lane, held against a host without one, and what it may not take.

extern crate std;

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
    tables::Successor,
    testbed::{FrameEnd, IpFrame, TestHost, aggregated, empty, prefiltered, tcp, total, udp},
};

const SERVED: u16 = 80;
/// Packets of one comparison.
const PACKETS: u32 = 10_000;

/// Sources have 80 packets a second, behind a prefilter.
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

/// Has the service at the port do something else with refused packets than drop them.
fn on_limit(policy: &mut Policy, on_limit: OnLimit) {
    policy.lenient = 1;
    policy.services[0].on_limit = on_limit as u32;
}

/// A host with the lane.
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
    // This one ends while packets come.
    host.list(key([9, 3]), ListEntry { blocked_until_ns: 102 * 1_000_000_000, ..ListEntry::EMPTY });
}

/// How a frame ends, and whether it ends in the lane.
fn taken(host: &TestHost, frame: &[u8]) -> (Reason, bool) {
    let before = host.expressed.get();
    let reason = host.reason(frame);
    (reason, host.expressed.get() > before)
}

/// A few numbers after each other, always the same ones.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// A frame of somebody: of few who send much, of those on the lists, or of somebody who is never seen again.
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

/// Frames of a crowded neighbourhood: more sources than entries and cells tell apart, some with an account, some who are over their own limit, and some who
/// showed a connection.
fn neighbour(dice: &mut Dice) -> Vec<u8> {
    let source = match dice.below(8) {
        0 => [30, 1],
        1..3 => [30, dice.below(8) as u8],
        3..5 => [30 + dice.below(2) as u8, dice.below(256) as u8],
        _ => [30 + dice.below(16) as u8, dice.below(256) as u8],
    };
    match dice.below(16) {
        0 => tcp(source, 53, 0x10),
        1 => IpFrame { source, is_v6: false, protocol: 17, fragment: 7, payload: [0; 8].to_vec() }.frame(),
        2 => {
            let payload = udp(source, 53, 8)[34..].to_vec();
            IpFrame { source, is_v6: true, protocol: 17, fragment: 0, payload }.frame()
        }
        _ => udp(source, 53, 8),
    }
}

/// What [`alike`] counts frames as that were refused at first look.
const FIRST_LOOK: &str = "first look";

/// Sends one and the same traffic to a host with the lane and to one without. How many frames ended in the lane, by reason.
fn alike(what: &str, make: impl Fn() -> TestHost) -> BTreeMap<String, u32> {
    alike_for(what, make, Dice::frame, 400_000)
}

/// [`alike`], for frames of some kind that come at most so many nanoseconds after each other.
fn alike_for(
    what: &str,
    make: impl Fn() -> TestHost,
    next_frame: impl Fn(&mut Dice) -> Vec<u8>,
    apart_ns: u64,
) -> BTreeMap<String, u32> {
    let (with, without) = (make(), make());
    without.express.set(false);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut ended = BTreeMap::new();
    let mut first_looks = 0;
    for number in 0..PACKETS {
        let frame = next_frame(&mut dice);
        first_looks += u32::from(looked_at_once(&with, &frame));
        let expected: FrameEnd = without.end(&frame);
        let before = with.expressed.get();
        let end = with.end(&frame);
        assert_eq!(end, expected, "{what}: packet {number}, {frame:x?}");
        if end.reason == Reason::LimitPrefix {
            // Both are asked, because whoever is asked remembers the answer.
            for host in [&with, &without] {
                assert!(!admitted_by_limits_alone(host, &frame), "{what}: packet {number}, {frame:x?}");
            }
        }
        if with.expressed.get() > before {
            *ended.entry(std::format!("{:?}", end.reason)).or_insert(0) += 1;
        }
        let ns = dice.below(apart_ns);
        for host in [&with, &without] {
            host.now_ns.set(host.now_ns.get() + ns);
        }
    }
    ended.insert(FIRST_LOOK.into(), first_looks);
    ended
}

/// Whether limits would admit a frame if they were asked themselves, not what is remembered of prefixes.
fn admitted_by_limits_alone(host: &TestHost, frame: &[u8]) -> bool {
    let crowded = host.lane_word(crate::tables::LaneWord::CrowdedUntil).unwrap();
    let (until_ns, express) = (host.load(crowded), host.express.replace(false));
    host.store(crowded, 0);
    let admitted = host.reason(frame).admits();
    host.store(crowded, until_ns);
    host.express.set(express);
    admitted
}

/// Whether a frame is refused at first look, which is what the rest of the lane must say too.
fn looked_at_once(host: &TestHost, frame: &[u8]) -> bool {
    let (frame, now_ns) = (Frame::new(Link::Ethernet, frame), host.now_ns(Clock::Coarse));
    let at_once = first_look::refusal(&frame, host, now_ns);
    assert!(at_once.is_none() || at_once == refusal(&frame, host, now_ns), "{at_once:?}");
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

/// Where nobody is on a list, a first look decides about sources without an entry too.
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
                    // A CPU takes a few packets' worth at a time, so it holds some where the bucket has none.
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

/// A short packet may still find something where a long one did not.
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
        let name = host.lane_word(crate::tables::LaneWord::SpentName).unwrap();
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

/// Which total it is depends on both: a host's total is asked before that of a service.
#[test]
fn a_total_that_refuses_a_source_with_an_entry_is_noted_down_if_it_is_the_first_that_is_asked() {
    for of_host in [false, true] {
        let mut policy = policy();
        policy.source.set = prefiltered(&["800 packets/s burst 800"]);
        with_services(&mut policy, "100 packets/s burst 100");
        if of_host {
            policy.host_total_count = 1;
            let whole = total("10000 packets/s burst 10000");
            // One CPU takes enough for all of these packets at a time.
            policy.host_totals[0] = Total { portion_q8: 1_000 * whole.limit.cost_fp, ..whole };
        }
        let host = host(policy);
        let [served, elsewhere] = [SERVED, 53].map(|port| udp([1, 1], port, 8));
        host.passed(&elsewhere, 200);
        host.passed(&served, 200);
        assert_eq!(taken(&host, &served), (Reason::ServiceTotal, true), "a total of the host: {of_host}");
        assert_eq!(looked_at_once(&host, &served), !of_host);
        // Its entry is full again, as far as the cell knows: it counts as a source without one.
        let hash = OriginV4(u32::from_ne_bytes([10, 0, 1, 1])).hash(&host.policy);
        host.track_until(prefilter::cell_index(hash), 1 << 32);
        assert!(!looked_at_once(&host, &served));
    }
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
    // The clock stands still for 4 ms, and 1000 packets/s have their next packet due a moment after it moves or a moment before that.
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
            // The first refusal of a tick is the limiter's.
            if clock == Clock::Coarse {
                assert!(in_limiter <= 1_000, "{tick_ns} ns: {in_limiter} of 16000 were looked up");
            }
        }
    }
}

#[test]
fn who_is_in_a_prefix_that_is_used_up_is_refused_at_first_look_unless_a_total_comes_before_it() {
    for (lengths, totals) in [([24, 16], 0), ([28, 24], 0), ([24, 16], 1)] {
        let ended = alike(&std::format!("{lengths:?}, {totals} totals"), || {
            let mut policy = policy();
            policy.aggregation = aggregated(&policy.source.set, lengths[0], 2);
            policy.aggregation.prefix_levels[0][1] =
                aggregated(&policy.source.set, lengths[1], 3).prefix_levels[0][0];
            policy.host_total_count = totals;
            policy.host_totals[0] = total("1000000 packets/s");
            host(policy)
        });
        let in_prefixes = ended["LimitPrefix"];
        let at_first_look = ended[FIRST_LOOK] - ended["LimitPackets"].min(ended[FIRST_LOOK]);
        assert!(in_prefixes > 300, "{lengths:?}: {ended:?}");
        if totals == 0 {
            assert!(at_first_look * 3 > in_prefixes, "{lengths:?}: {ended:?}");
        } else {
            assert_eq!(at_first_look, 0, "{lengths:?}: {ended:?}");
        }
    }
}

#[test]
fn who_is_in_a_crowded_prefix_ends_in_the_lane_as_it_would_have_ended_without_one() {
    for (what, own, squeezes, apart_ns) in [
        ("used up", "40 packets/s burst 40", false, 400_000),
        ("squeezed", "40 packets/s burst 40", true, 400_000),
        ("squeezed for long", "60 packets/min burst 30", true, 40_000_000),
        ("two limits", "60 packets/min burst 30", true, 400_000),
        ("fragments", "60 packets/min burst 30", true, 400_000),
        ("lists", "60 packets/min burst 30", true, 400_000),
    ] {
        let make = |totals: u64, proves: bool| {
            let mut policy = policy();
            policy.source.set = prefiltered(&[own]);
            match what {
                "two limits" => policy.source.set = prefiltered(&[own, "9 packets/s burst 9"]),
                "fragments" => policy.source.set = prefiltered(&[own, "9 fragments/min burst 9"]),
                _ => {}
            }
            policy.aggregation = aggregated(&policy.source.set, 24, 4);
            policy.aggregation.prefix_levels[0][1] =
                aggregated(&policy.source.set, 20, 12).prefix_levels[0][0];
            if squeezes {
                policy.price_packets();
                let dearest_q8 = policy.aggregation.packet_q8;
                policy.aggregation.squeeze = Squeeze::of(policy.aggregation.tolerance_q8, dearest_q8);
            }
            policy.host_total_count = totals;
            policy.host_totals[0] = total("1000000 packets/s");
            let mut host = host(policy);
            if what == "lists" {
                let allowed = ListEntry { allowed: ALLOWED, ..ListEntry::EMPTY };
                (0..32).for_each(|last| host.list(key([30, last * 8]), allowed));
            }
            if proves {
                host.programs = [Successor::Prove].to_vec();
                host.proof.set(Proof::Connection);
            }
            host
        };
        for (totals, proves) in [(0, false), (1, false), (0, true), (1, true)] {
            let ended = alike_for(
                &std::format!("{what}, {totals}, {proves}"),
                || make(totals, proves),
                neighbour,
                apart_ns,
            );
            let in_prefixes = ended.get("LimitPrefix").copied().unwrap_or(0);
            assert!(proves || in_prefixes > 500, "{what}, {totals}: {ended:?}");
            if totals == 0 && !proves && what != "lists" {
                assert!(ended[FIRST_LOOK] * 2 > in_prefixes, "{what}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_source_of_a_crowded_prefix_is_refused_before_it_is_looked_up_and_whoever_is_proven_is_not() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["60 packets/min burst 60"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 4);
    let mut host = host(policy);
    host.programs = [Successor::Prove].to_vec();
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&tcp([30, 1], 53, 0x10)), Reason::Conforming);
    let [real, other, segment] = [udp([30, 1], 53, 8), udp([30, 9], 53, 8), tcp([30, 1], 53, 0x10)];
    host.proof.set(Proof::Nothing);
    // Until nothing is left for whoever is not proven.
    let refused = (0..4_000_u32)
        .filter(|number| host.reason(&udp([30, *number as u8 | 2], 53, 8)) == Reason::LimitPrefix);
    assert!(refused.count() > 1_000);
    assert_eq!(taken(&host, &other), (Reason::LimitPrefix, true));
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&segment), Reason::Conforming, "its prefix keeps something back for it");
    assert_eq!(taken(&host, &real), (Reason::Conforming, false));
    assert_eq!(taken(&host, &other), (Reason::LimitPrefix, true));
    // Ten minutes later nobody remembers that it was real.
    host.wait_ms(700_000);
    let refused = (0..4_000_u32)
        .filter(|number| host.reason(&udp([30, *number as u8 | 2], 53, 8)) == Reason::LimitPrefix);
    assert!(refused.count() > 1_000);
    assert_eq!(taken(&host, &real), (Reason::LimitPrefix, true));
}

#[test]
fn who_is_allowed_passes_from_a_crowded_prefix_whoever_shares_its_cell() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["60 packets/min burst 60"]);
    policy.aggregation = aggregated(&policy.source.set, 20, 4);
    let mut host = host(policy);
    let cell = |host: &TestHost, [third, last]: [u8; 2]| {
        prefilter::cell_index(OriginV4(u32::from_ne_bytes([10, 0, third, last])).hash(&host.policy))
    };
    let sources = (32..48).flat_map(|third| (0..=255).map(move |last| [third, last]));
    let mut by_cell = BTreeMap::new();
    let pairs: Vec<_> = sources
        .filter_map(|source| Some((by_cell.insert(cell(&host, source), source)?, source)))
        .take(8)
        .collect();
    assert_eq!(pairs.len(), 8, "few, so that each gets an entry before the prefix is used up");
    for (_, allowed) in &pairs {
        host.list(key(*allowed), ListEntry { allowed: ALLOWED, ..ListEntry::EMPTY });
    }
    for _ in 0..40 {
        for (neighbour, _) in &pairs {
            host.reason(&udp(*neighbour, 53, 8));
        }
    }
    let ended: Vec<_> = pairs.iter().map(|(neighbour, _)| host.reason(&udp(*neighbour, 53, 8))).collect();
    assert!(ended.contains(&Reason::LimitPrefix), "{ended:?}");
    for (_, allowed) in pairs {
        assert_eq!(taken(&host, &udp(allowed, 53, 8)), (Reason::Allowed, false), "{allowed:?}");
    }
}

/// A fragment costs its prefix more than other packets where fragments have a limit. The coarse clock is behind the precise one, which decides.
#[test]
fn a_prefix_with_too_little_for_a_fragment_admits_other_packets_by_either_clock() {
    for clock in [Clock::Coarse, Clock::Precise] {
        let mut policy = policy();
        policy.source.set = prefiltered(&["60 packets/min burst 30", "9 fragments/min burst 9"]);
        policy.aggregation = aggregated(&policy.source.set, 24, 4);
        policy.clock = clock as u32;
        let host = host(policy);
        host.lag_ns.set(3_000_000);
        assert!((0..=255).any(|last| host.reason(&udp([30, last], 53, 8)) == Reason::LimitPrefix));
        // Two packets of a quarter of a second each, and no fragment of one and two thirds.
        host.wait_ms(520);
        let payload = [0; 8].to_vec();
        let fragment =
            IpFrame { source: [30, 250], is_v6: false, protocol: 17, fragment: 7, payload }.frame();
        assert_eq!(host.reason(&fragment), Reason::LimitPrefix, "{clock:?}");
        assert_eq!(host.reason(&udp([30, 251], 53, 8)), Reason::Conforming, "{clock:?}");
    }
}

#[test]
fn who_sends_what_no_limit_counts_is_refused_for_no_prefix() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["9 fragments/min burst 9"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 1);
    let host = host(policy);
    for last in 0..64 {
        let payload = [0; 8].to_vec();
        host.reason(
            &IpFrame { source: [30, last], is_v6: false, protocol: 17, fragment: 7, payload }.frame(),
        );
    }
    assert_eq!(host.reason(&udp([30, 200], 53, 8)), Reason::Conforming);
}

#[test]
fn who_is_proven_and_was_refused_by_a_total_has_what_its_prefix_keeps_back_once_the_total_has_more() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["60 packets/min burst 60"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 4);
    with_services(&mut policy, "10 packets/s burst 5");
    let mut host = host(policy);
    host.programs = [Successor::Prove].to_vec();
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&tcp([30, 1], 53, 0x10)), Reason::Conforming);
    host.proof.set(Proof::Nothing);
    let refused = (0..2_000_u32)
        .filter(|number| host.reason(&udp([30, *number as u8 | 2], 53, 8)) == Reason::LimitPrefix);
    assert!(refused.count() > 500);
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&tcp([30, 1], 53, 0x10)), Reason::Conforming, "it shows its connection again");
    let frame = udp([30, 1], SERVED, 8);
    assert!((0..20).any(|_| host.reason(&frame) == Reason::ServiceTotal));
    host.wait_ms(150);
    assert_eq!(host.reason(&frame), Reason::Conforming);
}

#[test]
fn prefixes_without_a_price_of_packets_crowd_nobody_out() {
    for (own, crowded) in [("60 packets/min burst 60", true), ("60 fragments/min burst 60", false)] {
        let mut policy = policy();
        policy.source.set = prefiltered(&[own]);
        policy.aggregation = aggregated(&policy.source.set, 24, 4);
        let host = host(policy);
        let now_q8 = host.now_q8();
        let SourceKey { hi, lo } = key([30, 1]);
        let prefix = OriginV4(u32::from_ne_bytes([10, 0, 30, 0])).hash(&host.policy);
        let name = prefilter::negative_name(prefix, host.policy.generation);
        let cell =
            host.prefix_level_cell(ratelimit_common::limit::aggregation::cell_index(0, prefix)).unwrap();
        let entry = prefilter::negative_entry(name, now_q8, now_q8 + (1 << 34), NegativeCause::Packets);
        host.store(host.prefix_level_negative_entry(cell), entry);
        let level = limit::crowded_level(&host, &host.policy, hi, lo, 0, now_q8);
        assert_eq!(level != limit::NO_LEVEL, crowded, "{own}");
    }
}
