//! Limits of a source: what they count, and what stays through a change.

use std::net::Ipv6Addr;

use ratelimit_common::abi::{Counter, Reason};
use ratelimit_tests::{
    frames::{ACK, IPV4, IPV6, Ipv4, Ipv6, SYN, UDP, ethernet, fragment, udp},
    loaded::Loaded,
    policies,
};
use ratelimit_user::compile::Desired;

use super::{FRAGMENT, GENEROUS, v4, v6};

#[test]
fn without_a_limit_everything_passes_as_unlimited() {
    let mut policy = policies::limits(GENEROUS);
    policy.policy.source.set.limit_count = 0;
    let frame = v4().udp_frame(8);
    let moved = Loaded::new(&policy).outcome(&frame).moved;
    assert_eq!(moved, [(Reason::Unlimited, Counter { packets: 1, bytes: frame.len() as u64 })]);
}

#[test]
fn each_meter_counts_what_it_says_and_refuses_by_its_own_name() {
    let syn = v4().tcp_frame(SYN);
    let syn_ack = v4().tcp_frame(SYN | ACK);
    let small = v4().udp_frame(8);
    let table: &[(&str, &Vec<u8>, usize, Reason)] = &[
        ("3 packets/day", &small, 3, Reason::LimitPackets),
        ("3 packets/day", &syn, 3, Reason::LimitPackets),
        ("2 syns/day", &syn, 2, Reason::LimitSyns),
        ("6000 bytes/day burst 1514", &small, 1514 / small.len(), Reason::LimitBytes),
    ];
    for (limit, frame, admitted, reason) in table {
        let mut loaded = Loaded::new(&policies::limits(&[limit]));
        for _ in 0..*admitted {
            assert_eq!(loaded.outcome(frame).moved[0].0, Reason::Conforming, "{limit}");
        }
        assert_eq!(loaded.outcome(frame).moved[0].0, *reason, "{limit}");
    }
    let mut loaded = Loaded::new(&policies::limits(&["1 syns/day"]));
    for _ in 0..10 {
        assert_eq!(loaded.outcome(&syn_ack).moved[0].0, Reason::Conforming, "an answer opens nothing");
    }
}

#[test]
fn a_packet_that_one_limit_refuses_costs_the_others_nothing() {
    let mut loaded = Loaded::new(&policies::limits(&["4 packets/day", "1 syns/day"]));
    let (syn, ack) = (v4().tcp_frame(SYN), v4().tcp_frame(ACK));
    let reasons: Vec<_> = [&syn, &syn, &syn, &ack, &ack, &ack, &ack]
        .iter()
        .map(|frame| loaded.outcome(frame).moved[0].0)
        .collect();
    use Reason::{Conforming, LimitPackets, LimitSyns};
    let expected = [Conforming, LimitSyns, LimitSyns, Conforming, Conforming, Conforming, LimitPackets];
    assert_eq!(reasons, expected);
}

#[test]
fn four_limits_hold_at_once() {
    let limits = ["6 packets/hour", "9 packets/day", "2 syns/day", "100 kB/day"];
    let mut loaded = Loaded::new(&policies::limits(&limits));
    for _ in 0..2 {
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::LimitSyns);
    for _ in 0..4 {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::LimitPackets);
}

#[test]
fn a_source_is_an_ipv4_address_or_an_ipv6_slash_64_unless_configured() {
    let admitted = |policy, frames: &[Vec<u8>]| {
        let mut loaded = Loaded::new(&policy);
        frames.iter().filter(|frame| loaded.outcome(frame).moved[0].0 == Reason::Conforming).count()
    };
    let v4_frames: Vec<_> = (1..=6).map(|host| Ipv4::from([192, 0, 2, host]).udp_frame(8)).collect();
    let v6_frames: Vec<_> = (1..=6)
        .map(|host| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, host * 0x1111, 0, 0, host)).udp_frame(8))
        .collect();
    let one = "limits = [\"1 packets/day\"]\nladder = false";
    assert_eq!(admitted(policies::source(one), &v4_frames), 6);
    assert_eq!(admitted(policies::source(one), &v6_frames), 1, "one /64 is one source");
    assert_eq!(admitted(policies::source(&format!("{one}\nipv4_prefix = 24")), &v4_frames), 1);
    assert_eq!(admitted(policies::source(&format!("{one}\nipv4_prefix = 31")), &v4_frames), 4);
    assert_eq!(admitted(policies::source(&format!("{one}\nipv6_prefix = 128")), &v6_frames), 6);
}

#[test]
fn ipv4_and_ipv6_sources_never_share_a_bucket() {
    // 192.0.2.1 as the last bytes of an IPv6 address, with everything around it zero.
    let compatible: Ipv6Addr = "::192.0.2.1".parse().unwrap();
    let mut loaded = Loaded::new(&policies::source("limits = [\"1 packets/day\"]\nipv6_prefix = 128"));
    for frame in [v4().udp_frame(8), Ipv6::from(compatible).udp_frame(8)] {
        assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::Conforming);
        assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::LimitPackets);
    }
}

#[test]
fn fragments_have_a_budget_of_their_own_and_whole_packets_do_not_touch_it() {
    let mut loaded = Loaded::new(&policies::limits(&["1000 packets/day", "4 fragments/day"]));
    let pieces = [
        ethernet(IPV4, &Ipv4 { fragment: 0x2000, ..v4() }.carrying(UDP, &udp(32))),
        ethernet(IPV4, &Ipv4 { fragment: 0x2010, ..v4() }.carrying(UDP, &[0; 32])),
        ethernet(IPV4, &Ipv4 { fragment: 0x0020, ..v4() }.carrying(UDP, &[0; 32])),
        ethernet(IPV4, &Ipv4 { fragment: 0x2000, ..v4() }.carrying(UDP, &udp(32))),
    ];
    for piece in &pieces {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
        assert_eq!(loaded.outcome(piece).moved[0].0, Reason::Conforming);
    }
    for piece in &pieces {
        assert_eq!(loaded.outcome(piece).moved[0].0, Reason::LimitFragments);
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    let v6_piece = |offset, more| {
        let payload = [&fragment(UDP, offset, more)[..], &udp(16)].concat();
        ethernet(IPV6, &v6().carrying(FRAGMENT, &payload))
    };
    for piece in [v6_piece(0, true), v6_piece(2, true), v6_piece(4, false), v6_piece(0, true)] {
        assert_eq!(loaded.outcome(&piece).moved[0].0, Reason::Conforming);
    }
    assert_eq!(loaded.outcome(&v6_piece(2, true)).moved[0].0, Reason::LimitFragments);
    let atomic = v6_piece(0, false);
    assert_eq!(
        loaded.outcome(&atomic).moved[0].0,
        Reason::Conforming,
        "a fragment header alone makes no fragment"
    );
}

/// A burst of 80, less the packet that the coarse clock's lag may cost, which comes back within milliseconds.
const NEARLY_80: std::ops::RangeInclusive<u64> = 79..=80;

#[test]
fn a_changed_limit_takes_effect_on_the_next_packet_without_a_fresh_burst() {
    let mut loaded = Loaded::new(&policies::limits(&["80 packets/day"]));
    let frame = v4().udp_frame(8);
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(NEARLY_80.contains(&loaded.count(Reason::Conforming)));
    // Twice as many a day: what was spent is a whole day's worth, and so is the new burst.
    loaded.maps.set_policy(&next(policies::limits(&["160 packets/day"]), 2)).unwrap();
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(
        loaded.count(Reason::Conforming) <= 82,
        "at most the packet of before that was left, at half the price"
    );
    // A much faster limit does not wait for the slow one's debt: the bucket is empty, not overdrawn for a day.
    loaded.maps.set_policy(&next(policies::limits(&["1000000 packets/s burst 1"]), 3)).unwrap();
    assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::LimitPackets, "this one settles the debt");
    assert_eq!(loaded.outcome(&frame).moved[0].0, Reason::Conforming);
}

#[test]
fn a_limit_keeps_what_was_spent_when_the_file_is_reordered() {
    let before = policies::limits(&["1000 packets/s", "5 syns/day"]);
    let mut loaded = Loaded::new(&before);
    for _ in 0..5 {
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming);
    }
    for (generation, limits) in [
        (2, &["5 syns/day", "1000 packets/s"][..]),
        (3, &["100 MB/s", "5 syns/day", "1000 packets/s"]),
        (4, &["5 syns/day"]),
    ] {
        let now = loaded.maps.policy();
        loaded.maps.set_policy(&policies::after(limits, generation, now.as_deref())).unwrap();
        assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::LimitSyns, "{limits:?}");
        assert_eq!(loaded.outcome(&v4().tcp_frame(ACK)).moved[0].0, Reason::Conforming, "{limits:?}");
    }
}

/// A policy with another generation.
fn next(mut desired: Desired, generation: u64) -> Desired {
    desired.policy.generation = generation;
    desired
}

#[test]
fn a_negative_entry_ends_with_the_policy_that_made_it() {
    let mut loaded = Loaded::new(&policies::limits(&["80 packets/day"]));
    let frame = v4().udp_frame(8);
    for _ in 0..200 {
        loaded.run(&frame);
    }
    assert!(NEARLY_80.contains(&loaded.count(Reason::Conforming)), "denied for the rest of the day");
    loaded.maps.set_policy(&next(policies::limits(&["1000000 packets/s burst 100"]), 2)).unwrap();
    for _ in 0..10 {
        loaded.run(&frame);
    }
    assert!(loaded.count(Reason::Conforming) > 80, "the new limit counts, not the old negative entry");
}

#[test]
fn a_denied_source_is_counted_for_the_limit_that_refused_it() {
    // Bytes run out first, although packets come first in the file.
    let mut loaded = Loaded::new(&policies::limits(&["100000 packets/day", "200 kB/day"]));
    let frame = v4().udp_frame(1_000);
    for _ in 0..1_000 {
        loaded.run(&frame);
    }
    let admitted = loaded.count(Reason::Conforming);
    assert!((190..=192).contains(&admitted), "{admitted}");
    assert_eq!(loaded.count(Reason::LimitBytes), 1_000 - admitted);
    assert_eq!(loaded.count(Reason::LimitPackets), 0);
}
