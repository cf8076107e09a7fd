//! Packets of sources whose prefix is used up or squeezes them.

use ratelimit_common::limit::aggregation;

use super::*;

/// A random frame of a crowded prefix: more sources than entries and cells can tell apart, some of them tracked, some over their own limit, and some
/// proven.
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
    // Until nothing is left for sources that are not proven.
    let refused = (0..4_000_u32)
        .filter(|number| host.reason(&udp([30, *number as u8 | 2], 53, 8)) == Reason::LimitPrefix);
    assert!(refused.count() > 1_000);
    assert_eq!(taken(&host, &other), (Reason::LimitPrefix, true));
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&segment), Reason::Conforming, "its prefix keeps something back for it");
    assert_eq!(taken(&host, &real), (Reason::Conforming, false));
    assert_eq!(taken(&host, &other), (Reason::LimitPrefix, true));
    // Ten minutes later, nothing shows that the source was proven.
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

#[test]
fn two_squeezed_prefixes_that_share_a_cell_are_both_remembered() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["60 packets/min burst 30"]);
    policy.aggregation = aggregated(&policy.source.set, 28, 4);
    policy.price_packets();
    let dearest_q8 = policy.aggregation.packet_q8;
    policy.aggregation.squeeze = Squeeze::of(policy.aggregation.tolerance_q8, dearest_q8);
    let host = host(policy);
    let cell = |[third, last]: [u8; 2]| {
        let prefix = u32::from_ne_bytes([10, 0, third, last]);
        aggregation::cell_index(0, prefilter::hash_v4(prefix, host.policy.prefilter.secret))
    };
    let prefixes = (0..=255).flat_map(|third| (0..16).map(move |last| [third, last << 4]));
    let mut by_cell = BTreeMap::new();
    let pair =
        prefixes.filter_map(|prefix| Some([by_cell.insert(cell(prefix), prefix)?, prefix])).next().unwrap();
    let mut dice = Dice(7);
    let mut behind_the_lane = || {
        let [third, last] = pair[dice.below(2) as usize];
        let frame = udp([third, last | dice.below(16) as u8], 53, 8);
        host.wait_ms(u64::from(dice.below(8) == 0) * 4);
        !taken(&host, &frame).1
    };
    // Until both prefixes squeeze their sources.
    let _used_up: Vec<_> = (0..2_000).map(|_| behind_the_lane()).collect();
    let behind = (0..2_000).filter(|_| behind_the_lane()).count();
    assert!(behind < 200, "{behind} of 2000 took the long way: {pair:?}");
}

/// A fragment costs its prefix more than other packets if fragments have a limit. The coarse clock is behind the precise one, which decides.
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
        // Room for two packets of a quarter of a second each, but not for a fragment of one and two thirds.
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

/// Another CPU writes the note of a refusal after the source has shown its connection, and with it after such notes were forgotten.
#[test]
fn a_late_note_does_not_refuse_a_proven_source() {
    let mut policy = policy();
    policy.source.set = prefiltered(&["60 packets/min burst 60"]);
    policy.aggregation = aggregated(&policy.source.set, 24, 4);
    with_services(&mut policy, "1000000 packets/s");
    let mut host = host(policy);
    host.programs = [Successor::Prove].to_vec();
    let refused = (0..2_000_u32)
        .filter(|number| host.reason(&udp([30, *number as u8 | 2], 53, 8)) == Reason::LimitPrefix);
    assert!(refused.count() > 500);
    host.proof.set(Proof::Connection);
    assert_eq!(host.reason(&tcp([30, 1], 53, 0x10)), Reason::Conforming);
    let hash = OriginV4(u32::from_ne_bytes([10, 0, 30, 1])).hash(&host.policy);
    let name = prefilter::negative_name(hash, host.policy.generation);
    let (now_q8, until_q8) = (host.now_q8(), host.now_q8() + (1 << 34));
    let late = prefilter::negative_entry(name, now_q8, until_q8, NegativeCause::Shared);
    for port in [53, SERVED] {
        host.store(host.negative_entry(prefilter::negative_place(hash)).unwrap(), late);
        assert_eq!(taken(&host, &udp([30, 1], port, 8)), (Reason::Conforming, false), "port {port}");
    }
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
        let cell = host.prefix_level_cell(aggregation::cell_index(0, prefix)).unwrap();
        let entry = prefilter::negative_entry(name, now_q8, now_q8 + (1 << 34), NegativeCause::Packets);
        host.store(host.prefix_level_negative_entry(cell), entry);
        let level = limit::crowded_level(&host, &host.policy, hi, lo, 0, now_q8);
        assert_eq!(level != limit::NO_LEVEL, crowded, "{own}");
    }
}
