//! Packets like one that a CPU has refused and noted down.

use super::*;
use crate::express::noted_refusal;

#[test]
fn a_packet_like_a_noted_one_is_refused_without_a_look_at_its_source_until_the_clock_moves() {
    let host = host(policy());
    let frame = udp([1, 1], SERVED, 8);
    host.passed(&frame, 200);
    assert_eq!(taken(&host, &frame), (Reason::LimitPackets, true));
    // Every negative entry is gone; only the CPU's note is left.
    for place in 0..prefilter::NEGATIVE_PLACES as u32 {
        host.store(host.negative_entry(place).unwrap(), 0);
    }
    assert!(looked_at_by_note(&host, &frame), "the same packet");
    assert!(looked_at_by_note(&host, &udp([1, 1], SERVED, 600)), "a longer one");
    // An IPv6 address whose first word is that of the source, and whose second word is zero.
    let mut v6 = IpFrame {
        source: [1, 1],
        is_v6: true,
        protocol: 17,
        fragment: 0,
        payload: udp([1, 1], SERVED, 8)[34..].to_vec(),
    }
    .frame();
    v6[22..38].copy_from_slice(&[10, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (what, other) in [
        ("another source", udp([1, 2], SERVED, 8)),
        ("another port", udp([1, 1], 53, 8)),
        ("another protocol", tcp([1, 1], SERVED, 0x10)),
        ("another family", v6),
        (
            "a fragment",
            IpFrame { source: [1, 1], is_v6: false, protocol: 17, fragment: 7, payload: [0; 8].to_vec() }
                .frame(),
        ),
    ] {
        assert!(!looked_at_by_note(&host, &other), "{what}");
    }
    host.wait_ms(1);
    assert!(!looked_at_by_note(&host, &frame), "the clock has moved");
}

#[test]
fn what_was_refused_under_another_policy_is_looked_at_again() {
    let mut host = host(policy());
    let frame = udp([1, 1], SERVED, 8);
    host.passed(&frame, 200);
    assert_eq!(taken(&host, &frame), (Reason::LimitPackets, true));
    assert!(looked_at_by_note(&host, &frame));
    host.policy.generation += 1;
    assert!(!looked_at_by_note(&host, &frame));
}

#[test]
fn what_a_total_in_bytes_or_a_prefix_refuses_is_not_noted_down() {
    let mut of_bytes = policy();
    with_services(&mut of_bytes, "4 kB/s burst 4000 bytes");
    let mut of_prefixes = policy();
    of_prefixes.source.set = prefiltered(&["800 packets/s burst 800"]);
    of_prefixes.aggregation = aggregated(&of_prefixes.source.set, 24, 1);
    for (policy, reason) in [(of_bytes, Reason::ServiceTotal), (of_prefixes, Reason::LimitPrefix)] {
        let host = host(policy);
        for last in 0..250 {
            host.passed(&udp([20, last], SERVED, 8), 8);
        }
        let frame = udp([20, 1], SERVED, 8);
        host.wait_ms(1);
        assert_eq!(taken(&host, &frame), (reason, true));
        assert!(!looked_at_by_note(&host, &frame), "{reason:?}");
    }
}

/// The source's own limits may refuse it next.
#[test]
fn whoever_is_admitted_elsewhere_is_no_longer_refused_by_what_was_noted_down_of_a_total() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["800 packets/s burst 800"]);
    with_services(&mut policy, "100 packets/s burst 100");
    let host = host(policy);
    let [served, elsewhere] = [SERVED, 53].map(|port| udp([1, 1], port, 8));
    host.passed(&elsewhere, 200);
    host.passed(&served, 200);
    assert_eq!(taken(&host, &served), (Reason::ServiceTotal, true));
    assert!(looked_at_by_note(&host, &served));
    assert!(host.reason(&elsewhere).admits());
    assert!(!looked_at_by_note(&host, &served));
}

/// Whether a frame is refused by the note.
fn looked_at_by_note(host: &TestHost, frame: &[u8]) -> bool {
    let (frame, now_ns) = (Frame::new(Link::Ethernet, frame), host.now_ns.get());
    let Some((family, at)) = network(&frame) else { return false };
    match family {
        Family::V4 => brief_v4(&frame, at)
            .is_some_and(|packet| noted_refusal::counter_of(host, &host.policy, &packet, now_ns).is_some()),
        Family::V6 => brief_v6(&frame, at)
            .is_some_and(|packet| noted_refusal::counter_of(host, &host.policy, &packet, now_ns).is_some()),
    }
}

/// Otherwise the first look would leave each packet of the flood to the rest of the lane.
#[test]
fn a_packet_that_passes_beside_a_flood_costs_the_flood_no_second_look() {
    let host = host(policy());
    let (flood, honest) = (udp([1, 1], SERVED, 8), udp([1, 2], SERVED, 8));
    host.passed(&honest, 20);
    host.passed(&flood, 200);
    assert_eq!(taken(&host, &flood), (Reason::LimitPackets, true));
    for _ in 0..20 {
        assert!(host.reason(&honest).admits());
        assert!(looked_at_by_note(&host, &flood));
    }
}

#[test]
fn a_neighbour_in_the_same_ipv6_network_is_told_apart_where_each_address_is_a_source() {
    let mut policy = policy();
    policy.source.v6_mask_lo = u64::MAX;
    let host = host(policy);
    let from = |last: u8| {
        let payload = udp([1, 1], SERVED, 8)[34..].to_vec();
        let mut frame = IpFrame { source: [1, 1], is_v6: true, protocol: 17, fragment: 0, payload }.frame();
        frame[22..38].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        frame
    };
    host.passed(&from(1), 200);
    assert_eq!(taken(&host, &from(1)), (Reason::LimitPackets, true));
    assert_eq!(taken(&host, &from(2)), (Reason::Conforming, false));
}
