//! Prefix aggregation.

extern crate std;

use std::vec::Vec;

use ratelimit_common::abi::{PrefixLevel, Reason, Squeeze};

use crate::{
    lane,
    testbed::{IpFrame, TestHost, WordTable, aggregated, empty, prefiltered, set, udp},
};

/// A host whose sources may send ten packets at once and ten a second, and each /24 twice as much.
fn host() -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/s burst 10"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 2);
    TestHost::new(policy)
}

#[test]
fn a_prefix_that_is_in_use_never_begins_again_with_its_cell() {
    let host = host();
    let mut admitted = 0;
    // A minute of packets whose addresses change all the time.
    for round in 0..6_000_u32 {
        admitted += u32::from(host.reason(&udp([7, round as u8], 53, 8)) == Reason::Conforming);
        host.wait_ms(10);
    }
    assert_eq!(host.rows(WordTable::Prefix), 1);
    // Twice the rate for a minute, and three quarters of twice the burst for sources that are not proven.
    let bound = 60 * 20 + 15;
    assert!((1_190..=bound).contains(&admitted), "{admitted} of at most {bound}");
}

#[test]
fn a_cpu_looks_for_used_up_prefixes_for_six_tenths_of_a_second_after_it_has_met_one() {
    let mut policy = empty();
    policy.source.set = prefiltered(&["10 packets/s burst 10"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 2);
    let host = TestHost::new(policy);
    let now_ns = host.now_ns.get();
    let from = |last| host.reason(&udp([7, last], 53, 8));
    assert!((0..10).all(|last| from(last) == Reason::Conforming) && !lane::is_crowded(&host, now_ns));
    assert!((10..20).any(|last| from(last) == Reason::LimitPrefix));
    assert!(lane::is_crowded(&host, now_ns + 599_999_999));
    assert!(!lane::is_crowded(&host, now_ns + 600_000_000));
}

#[test]
fn without_a_budget_for_newcomers_a_prefix_still_has_what_its_cell_gives() {
    let mut policy = empty();
    policy.source.set = prefiltered(&["80 packets/s burst 80"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 2);
    policy.prefilter.new_sources.tolerance_q8 = 0;
    let host = TestHost::new(policy);
    let reasons: Vec<Reason> = (0..40).map(|last| host.reason(&udp([7, last], 53, 8))).collect();
    let admitted = reasons.iter().filter(|reason| **reason == Reason::Conforming).count();
    // An eighth of what the prefix may send, which is twice what a source may send.
    assert_eq!(admitted, 20, "{reasons:?}");
    assert!(reasons[20..].iter().all(|reason| *reason == Reason::LimitPrefix), "{reasons:?}");
}

#[test]
fn prefixes_of_both_families_have_names_of_their_own() {
    let mut host = host();
    let level = host.policy.aggregation.prefix_levels[0][0];
    // The /56 around an IPv6 source, with twice its limits.
    let mask_hi = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0]);
    host.policy.aggregation.prefix_levels[1][0] = PrefixLevel { mask_hi, mask_lo: 0, ..level };
    let payload = udp([0, 0], 53, 8)[34..].to_vec();
    let from = |net: u8| {
        IpFrame { source: [net, 1], is_v6: true, protocol: 17, fragment: 0, payload: payload.clone() }.frame()
    };
    let admitted = (0..200).filter(|net| host.reason(&from(*net)) == Reason::Conforming).count();
    assert!((14..=15).contains(&admitted), "{admitted}: three quarters of twice ten, and prices round up");
    let hi = u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0]);
    assert_eq!(host.keys(WordTable::Prefix), [[hi, 0, 3]], "the first level of IPv6 is the fourth of all");
    assert_eq!(host.reason(&udp([9, 9], 53, 8)), Reason::Conforming);
}

#[test]
fn a_prefix_without_room_for_an_account_has_what_its_cell_gives() {
    let host = host();
    host.full.set(true);
    // Without a prefilter, sources need entries too.
    assert_eq!(host.reason(&udp([7, 1], 53, 8)), Reason::TableFull);
    let mut policy = empty();
    policy.source.set = prefiltered(&["80 packets/s burst 80"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 1);
    let host = TestHost::new(policy);
    host.full.set(true);
    let reasons: Vec<Reason> = (0..30).map(|last| host.reason(&udp([7, last], 53, 8))).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == Reason::Conforming).count(), 10, "an eighth");
    assert_eq!(reasons[29], Reason::LimitPrefix);
}

#[test]
fn in_a_crowded_prefix_whoever_asks_for_little_gets_it_and_whoever_floods_does_not() {
    let mut policy = empty();
    policy.source.set = set(&["100 packets/s burst 100"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 2);
    policy.aggregation.squeeze =
        Squeeze::of(policy.aggregation.tolerance_q8, policy.source.set.limits[0].cost_fp);
    let host = TestHost::new(policy);
    let (mut quiet, mut loud) = (0, 0);
    for _ in 0..500 {
        host.wait_ms(10);
        // Nine neighbours send as much as they can, and one sends twice a second.
        for last in 1..10 {
            loud += host.passed(&udp([7, last], 53, 8), 3);
        }
        if (host.now_ns.get() / 10_000_000).is_multiple_of(50) {
            quiet += host.passed(&udp([7, 99], 53, 8), 1);
        }
    }
    assert_eq!(quiet, 10, "two a second, for five seconds");
    assert!((900..=1_200).contains(&loud), "{loud} of 200 a second and a burst of 150");
}
