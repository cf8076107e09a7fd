//! Everything has a cap: the total of the host, services for protocols without ports, frames without a source.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{
    ListEntry, Reason, Verdict,
    counter::Fate,
    link::LINK_NEIGHBOURS,
    list::{ALLOWED, FOREVER_NS},
};
use ratelimit_ebpf::tables::Tables as _;
use ratelimit_tests::{
    frames::{ACK, ARP, ICMP, ICMPV6, IPV4, IPV6, Ipv4, Ipv6, UDP, VLAN, ethernet, fragment, icmp, tag, udp},
    loaded::Loaded,
    memory::Memory,
    policies,
};
use ratelimit_user::compile::lists::{self, Lists};

const GRE: u8 = 47;
const OSPF: u8 = 89;
const SECOND_NS: u64 = 1_000_000_000;
const LLDP: u16 = 0x88cc;

fn memory(policy: &str) -> Memory {
    Memory::new(&policies::policy(policy), Lists::new())
}

fn listed(policy: &str, entries: &[(&str, ListEntry)]) -> Memory {
    let lists = entries.iter().map(|(prefix, entry)| (prefix.parse().unwrap(), *entry)).collect();
    Memory::new(&policies::policy(policy), lists::effective(lists))
}

/// The reason that a frame was counted under, and whether that was its fate.
fn reason(memory: &Memory, frame: &[u8]) -> Reason {
    let before = memory.counters();
    memory.run(frame);
    let moved = before.iter().zip(memory.counters()).find(|(old, new)| *old != new);
    moved.expect("every frame is counted").1.0
}

/// A new source for each number.
fn spoofed(number: u32) -> Ipv4 {
    Ipv4::from(Ipv4Addr::from_bits(0x0b00_0000 + number))
}

/// What a flood from forged sources is made of that no port can be blamed for.
fn portless(number: u32) -> Vec<u8> {
    let from = spoofed(number);
    let packet = match number % 4 {
        0 => from.carrying(ICMP, &icmp(8)),
        1 => from.carrying(GRE, &[0; 24]),
        2 => Ipv4 { fragment: 0x0010, ..from }.carrying(UDP, &udp(8)),
        _ => {
            let source = Ipv6Addr::new(0x2001, 0xdb8, 0xb, number as u16, (number >> 16) as u16, 0, 0, 1);
            let piece = [fragment(UDP, 9, false), udp(8)].concat();
            return ethernet(IPV6, &Ipv6::from(source).carrying(44, &piece));
        }
    };
    ethernet(IPV4, &packet)
}

const BESIDE_A_SERVICE: &str = r#"
[source]
limits = ["1000000 packets/s"]
ladder = false
[host]
total = ["1000 packets/day"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
total = ["100 packets/day"]
"#;

#[test]
fn spoofed_icmp_gre_and_later_fragments_are_held_to_the_total_of_the_host_beside_a_service() {
    let mut loaded = Loaded::new(&policies::policy(BESIDE_A_SERVICE));
    for number in 0..4_000 {
        loaded.run(&portless(number));
    }
    let admitted = loaded.count(Reason::Conforming);
    // Untracked sources stop at three quarters, and CPUs may hold a sixteenth unspent.
    assert!((650..=750).contains(&admitted), "{admitted} admitted");
    assert_eq!(loaded.count(Reason::HostTotal), 4_000 - admitted);
    let tcp = spoofed(7).tcp_frame(ACK);
    assert_eq!(loaded.outcome(&tcp).moved[0].0, Reason::HostTotal, "whatever it is");
}

#[test]
fn tracked_sources_still_find_tokens_when_untracked_sources_have_used_their_part_of_the_host() {
    let mut loaded = Loaded::new(&policies::policy(
        "[source]\nlimits = [\"160 packets/day\"]\nladder = false\n[host]\ntotal = [\"4000 packets/day\"]\n",
    ));
    let known = Ipv4::from([10, 0, 0, 1]).udp_frame(8);
    for _ in 0..30 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
    for number in 0..10_000 {
        loaded.run(&portless(number));
    }
    assert_eq!(loaded.outcome(&portless(99_999)).moved[0].0, Reason::HostTotal);
    for _ in 0..100 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
}

#[test]
fn a_packet_that_its_service_refuses_costs_the_host_nothing_and_the_other_way_round() {
    let memory = memory(BESIDE_A_SERVICE);
    let mut to_dns = 0;
    for number in 0..5_000 {
        to_dns += u32::from(reason(&memory, &spoofed(number).udp_frame(8)) == Reason::Conforming);
    }
    assert!((60..=75).contains(&to_dns), "{to_dns} for the service");
    let others = (0..5_000).filter(|n| reason(&memory, &portless(*n)) == Reason::Conforming).count() as u32;
    assert!((650..=750).contains(&(to_dns + others)), "{to_dns} + {others}");
    // The host is spent now. What it refuses leaves the service as it is.
    let dns = memory.total(0, 0).map(|word| memory.load(word));
    assert_eq!(reason(&memory, &Ipv4::from([10, 9, 8, 7]).udp_frame(8)), Reason::ServiceTotal);
    memory.now_ns.set(memory.now_ns.get() + 1800 * SECOND_NS);
    let host = memory.total(256, 0).map(|word| memory.load(word));
    for number in 0..200 {
        memory.run(&spoofed(number).udp_frame(8));
    }
    assert_ne!(memory.total(0, 0).map(|word| memory.load(word)), dns, "two for the service are back");
    assert_ne!(memory.total(256, 0).map(|word| memory.load(word)), host, "and for the host more");
}

#[test]
fn a_total_of_the_host_in_bytes_counts_bytes() {
    let memory = memory(
        "[source]\nlimits = [\"1000000 packets/s\"]\nladder = false\n[host]\ntotal = [\"200000 bytes/day burst 200000\"]\n",
    );
    let frame = |number: u32| ethernet(IPV4, &spoofed(number).carrying(GRE, &[0; 966]));
    let admitted = (0..1_000).filter(|n| reason(&memory, &frame(*n)) == Reason::Conforming).count();
    assert!((120..=150).contains(&admitted), "{admitted} of 1000 bytes each, three quarters of 200 kB");
}

#[test]
fn on_trial_the_total_of_the_host_drops_nothing_and_is_counted() {
    let memory = memory(&format!("mode = \"monitor\"\n{BESIDE_A_SERVICE}"));
    for number in 0..4_000 {
        assert_eq!(memory.run(&portless(number)), Verdict::Pass);
    }
    assert!(memory.sum(Reason::HostTotal, Fate::Waived).packets > 3_000);
}

#[test]
fn the_allow_list_is_not_held_to_the_total_of_the_host() {
    let allow = ListEntry { own_allowed: ALLOWED, ..ListEntry::EMPTY };
    let memory = listed(BESIDE_A_SERVICE, &[("10.0.0.0/24", allow)]);
    for number in 0..4_000 {
        memory.run(&portless(number));
    }
    assert_eq!(reason(&memory, &Ipv4::from([10, 0, 0, 7]).udp_frame(8)), Reason::Allowed);
}

#[test]
fn a_service_that_lets_pass_what_is_above_its_limits_does_not_open_the_host() {
    for on_limit in ["monitor", "mark"] {
        let memory = memory(&format!(
            "[source]\nlimits = [\"1000000 packets/s\"]\nladder = false\n[host]\ntotal = [\"1000 packets/day\"]\n\
             [[service]]\nname = \"dns\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\non_limit = \"{on_limit}\"\n\
             total = [\"100 packets/day\"]\n"
        ));
        for number in 0..4_000 {
            memory.run(&spoofed(number).udp_frame(8));
        }
        let dropped = memory.sum(Reason::HostTotal, Fate::Decided).packets;
        assert!((3_250..=3_350).contains(&dropped), "{on_limit}: {dropped} dropped");
    }
}

#[test]
fn a_host_without_a_total_takes_whatever_its_limits_take() {
    let memory = memory(&BESIDE_A_SERVICE.replace("[host]\ntotal = [\"1000 packets/day\"]\n", ""));
    for number in 0..4_000 {
        assert_eq!(reason(&memory, &portless(number)), Reason::Conforming);
    }
}

const PROTOCOLS: &str = r#"
[source]
limits = ["1000000 packets/s"]
ladder = false
[[service]]
name = "ping"
match = { protocol = "icmp" }
per_source = ["70 packets/day"]
[[service]]
name = "ping6"
match = { protocol = "icmpv6" }
[[service]]
name = "tunnel"
match = { protocol = "gre" }
total = ["1000 packets/day"]
[[service]]
name = "routing"
match = { protocol = 89, destinations = ["224.0.0.5"] }
[[service]]
name = "pieces"
match = { protocol = "fragments" }
total = ["1000 packets/day"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
"#;

#[test]
fn packets_without_ports_are_for_the_service_of_their_protocol() {
    let v4 = |protocol: u8| ethernet(IPV4, &spoofed(1).carrying(protocol, &[0; 24]));
    let later =
        |protocol: u8| ethernet(IPV4, &Ipv4 { fragment: 0x0010, ..spoofed(1) }.carrying(protocol, &[0; 24]));
    let v6 = |next: u8, payload: Vec<u8>| {
        ethernet(IPV6, &Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)).carrying(next, &payload))
    };
    let later_v6 = |next: u8| v6(44, [fragment(next, 3, true), vec![0; 24]].concat());
    let ospf = Ipv4 { destination: Ipv4Addr::new(224, 0, 0, 5), ..spoofed(1) };
    let names = policies::policy(PROTOCOLS).names.services;
    let number = |name: &str| names.of(name).map_or(0, |index| index as u32 + 1);
    for (what, frame, service) in [
        ("ICMP", v4(ICMP), "ping"),
        ("ICMPv6", v6(ICMPV6, icmp(128)), "ping6"),
        ("GRE", v4(GRE), "tunnel"),
        ("a later piece of GRE", later(GRE), "tunnel"),
        ("GRE in IPv6", v6(GRE, vec![0; 24]), "tunnel"),
        ("a later piece of GRE in IPv6", later_v6(GRE), "tunnel"),
        ("a later piece of ICMP", later(ICMP), "ping"),
        ("OSPF to the group", ethernet(IPV4, &ospf.carrying(OSPF, &[0; 24])), "routing"),
        ("OSPF to anybody else", v4(OSPF), ""),
        ("a later piece of UDP", later(UDP), "pieces"),
        ("a later piece of UDP in IPv6", later_v6(UDP), "pieces"),
        ("a later piece of what has no service", later(50), "pieces"),
        (
            "a first piece of UDP",
            ethernet(IPV4, &Ipv4 { fragment: 0x2000, ..spoofed(1) }.carrying(UDP, &udp(8))),
            "dns",
        ),
        ("UDP", spoofed(1).udp_frame(8), "dns"),
        ("TCP", spoofed(1).tcp_frame(ACK), ""),
        ("ESP", v4(50), ""),
    ] {
        let memory = memory(PROTOCOLS);
        memory.run(&frame);
        let counted = memory.counter(number(service), Reason::Conforming, Fate::Decided).packets;
        assert_eq!(counted, 1, "{what} is for {service:?}");
    }
}

#[test]
fn limits_of_a_service_for_a_protocol_hold_in_the_kernel() {
    let mut loaded = Loaded::new(&policies::policy(PROTOCOLS));
    let ping = |number: u32| ethernet(IPV4, &spoofed(number).carrying(ICMP, &icmp(8)));
    for _ in 0..200 {
        loaded.run(&ping(1));
    }
    assert!((60..=70).contains(&loaded.count(Reason::Conforming)), "{}", loaded.count(Reason::Conforming));
    assert_eq!(loaded.outcome(&ping(2)).moved[0].0, Reason::Conforming, "another source");
    let before = loaded.count(Reason::Conforming);
    for number in 0..3_000 {
        loaded.run(&ethernet(IPV4, &spoofed(number).carrying(GRE, &[0; 24])));
    }
    let admitted = loaded.count(Reason::Conforming) - before;
    assert!((650..=750).contains(&admitted), "{admitted} of GRE");
    assert_eq!(loaded.count(Reason::ServiceTotal), 3_000 - admitted);
    let later = ethernet(IPV4, &Ipv4 { fragment: 0x0010, ..spoofed(5) }.carrying(UDP, &udp(8)));
    assert_eq!(loaded.outcome(&later).moved[0].0, Reason::Conforming, "pieces have a total of their own");
}

#[test]
fn what_has_no_ports_is_rejected_with_an_error_and_icmp_never_is() {
    let service = |name: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"{name}\" }}\nper_source = [\"3 packets/day\"]\n\
             on_limit = \"reject\"\n"
        )
    };
    let mut loaded = Loaded::new(&policies::policy(&format!(
        "[source]\nlimits = [\"1000000 packets/s\"]\n{}{}{}{}",
        service("gre"),
        service("icmp"),
        service("icmpv6"),
        service("fragments")
    )));
    let v6 = Ipv6 {
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, 0, 1),
        ..Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1))
    };
    for (what, frame, expected) in [
        ("GRE", ethernet(IPV4, &spoofed(1).carrying(GRE, &[7; 24])), Verdict::Reply),
        ("GRE in IPv6", ethernet(IPV6, &v6.carrying(GRE, &[7; 24])), Verdict::Reply),
        ("GRE too short to be repeated", ethernet(IPV4, &spoofed(2).carrying(GRE, &[7; 4])), Verdict::Drop),
        ("a question", ethernet(IPV4, &spoofed(1).carrying(ICMP, &icmp(8))), Verdict::Drop),
        ("an error", ethernet(IPV4, &spoofed(3).carrying(ICMP, &icmp(3))), Verdict::Drop),
        ("a question in IPv6", ethernet(IPV6, &v6.carrying(ICMPV6, &icmp(128))), Verdict::Drop),
        (
            "a later piece",
            ethernet(IPV4, &Ipv4 { fragment: 0x0010, ..spoofed(1) }.carrying(UDP, &udp(8))),
            Verdict::Drop,
        ),
    ] {
        for _ in 0..3 {
            assert_eq!(loaded.run(&frame), Verdict::Pass, "{what}");
        }
        assert_eq!(loaded.run(&frame), expected, "{what}");
    }
}

/// A frame of this type from this hardware address.
fn from_mac(mac: u64, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(ether_type, payload);
    frame[6..12].copy_from_slice(&mac.to_be_bytes()[2..]);
    frame
}

fn arp(mac: u64) -> Vec<u8> {
    from_mac(mac, ARP, &[0; 28])
}

/// A made-up address, another for each number.
fn forged(number: u64) -> u64 {
    0x0200_0000_0000 | (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24)
}

const ROUTER: u64 = 0x0011_2233_4455;
const PLAIN: &str = "[source]\nlimits = [\"1000000 packets/s\"]\n";

#[test]
fn a_flood_from_made_up_hardware_addresses_is_capped_and_a_router_that_was_there_loses_nothing() {
    let memory = memory(PLAIN);
    assert_eq!(reason(&memory, &arp(ROUTER)), Reason::Arp);
    let (mut passed, mut number) = (0_u64, 0);
    let seconds = 4;
    for _ in 0..seconds * 10 {
        memory.now_ns.set(memory.now_ns.get() + SECOND_NS / 10);
        for _ in 0..20_000 {
            number += 1;
            passed += u64::from(memory.run(&arp(forged(number))) == Verdict::Pass);
        }
        assert_eq!(reason(&memory, &arp(ROUTER)), Reason::Arp, "ten a second are the router's own");
    }
    assert!(passed <= 20_000 + 20_000 * seconds, "{passed} of {number}");
    assert!(passed >= 10_000 * seconds, "{passed} of {number}: what is for everybody is not withheld");
    assert!(memory.sum(Reason::LinkCap, Fate::Decided).packets >= number - passed - 1);
}

#[test]
fn one_neighbour_that_floods_does_not_keep_out_another_that_nobody_has_seen_before() {
    let memory = memory(PLAIN);
    for _ in 0..50_000 {
        memory.run(&arp(forged(1)));
    }
    assert_eq!(reason(&memory, &arp(forged(1))), Reason::LinkCap);
    assert_eq!(reason(&memory, &arp(ROUTER)), Reason::Arp, "there is a place for it");
}

#[test]
fn interfaces_and_kinds_of_frames_do_not_share_what_is_a_neighbours_own() {
    let memory = memory(PLAIN);
    let lldp = from_mac(ROUTER, LLDP, &[0; 40]);
    // Whoever forges the router's own address uses up what is the router's, of this kind and on this link.
    for _ in 0..50_000 {
        memory.run(&arp(ROUTER));
    }
    assert_eq!(reason(&memory, &arp(ROUTER)), Reason::LinkCap);
    assert_eq!(reason(&memory, &lldp), Reason::NotIp);
    memory.interface.set(2);
    assert_eq!(reason(&memory, &arp(ROUTER)), Reason::Arp);
    assert_eq!(reason(&memory, &from_mac(ROUTER, VLAN, &tag(ARP, &[0; 28]))), Reason::Arp, "tagged or not");
}

#[test]
fn a_silent_neighbour_keeps_its_place_for_an_hour() {
    for (minutes, expected) in [(59, Reason::Arp), (62, Reason::LinkCap)] {
        let memory = memory(PLAIN);
        memory.run(&arp(ROUTER));
        memory.now_ns.set(memory.now_ns.get() + minutes * 60 * SECOND_NS);
        // Enough to meet every place, and to use up what is for everybody.
        for number in 0..u64::from(LINK_NEIGHBOURS) * 100 {
            memory.run(&arp(forged(number)));
        }
        assert_eq!(reason(&memory, &arp(ROUTER)), expected, "after {minutes} minutes");
    }
}

#[test]
fn the_cap_on_frames_without_a_source_can_be_changed_and_switched_off() {
    let flood = |link: &str| {
        let memory = memory(&format!("{PLAIN}[host]\nlink = {link}\n"));
        (0..50_000).filter(|_| memory.run(&arp(ROUTER)) == Verdict::Pass).count()
    };
    assert_eq!(flood("false"), 50_000);
    let default = flood("true");
    assert!((9_800..=10_100).contains(&default), "{default}");
    let small = flood("\"1000 packets/s\"");
    assert!((480..=501).contains(&small), "{small}");
}

#[test]
fn the_cap_holds_in_the_kernel_for_every_kind_and_limits_of_sources_have_no_part_in_it() {
    let mut loaded =
        Loaded::new(&policies::policy(&format!("{PLAIN}[host]\nlink = \"100 packets/s burst 30000\"\n")));
    for number in 0..40_000 {
        let mac = forged(number);
        let router = Ipv6 { hop_limit: 255, ..Ipv6::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)) };
        let frame = match number % 3 {
            0 => arp(mac),
            1 => from_mac(mac, LLDP, &[0; 40]),
            _ => from_mac(mac, IPV6, &router.carrying(ICMPV6, &icmp(134))),
        };
        loaded.run(&frame);
    }
    let passed = 40_000 - loaded.count(Reason::LinkCap);
    // What is for everybody, one frame at least of each neighbour's own, and what a slow machine gives them meanwhile.
    assert!((14_000..=32_000).contains(&passed), "{passed} passed");
    for reason in [Reason::Arp, Reason::NotIp, Reason::NeighbourDiscovery] {
        assert!(loaded.count(reason) > 1_000, "{}", reason.name());
    }
    assert_eq!(loaded.outcome(&spoofed(1).udp_frame(8)).moved[0].0, Reason::Conforming);
}

#[test]
fn on_trial_the_cap_on_frames_without_a_source_drops_nothing() {
    let memory = memory(&format!("mode = \"monitor\"\n{PLAIN}"));
    for _ in 0..50_000 {
        assert_eq!(memory.run(&arp(ROUTER)), Verdict::Pass);
    }
    assert!(memory.sum(Reason::LinkCap, Fate::Waived).packets > 30_000);
}

#[test]
fn blocks_hold_for_neighbour_discovery_too_and_the_allow_list_is_never_capped() {
    let block = ListEntry { own_blocked_until_ns: FOREVER_NS, ..ListEntry::EMPTY };
    let allow = ListEntry { own_allowed: ALLOWED, ..ListEntry::EMPTY };
    let memory = listed(PLAIN, &[("fe80::bad/128", block), ("2001:db8::/32", block), ("fe80::1/128", allow)]);
    let solicitation = |source: Ipv6Addr| {
        let from = Ipv6 { hop_limit: 255, ..Ipv6::from(source) };
        from_mac(ROUTER, IPV6, &from.carrying(ICMPV6, &icmp(135)))
    };
    let link_local = |host: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host);
    assert_eq!(reason(&memory, &solicitation(link_local(0xbad))), Reason::Blocked);
    assert_eq!(
        reason(&memory, &solicitation(Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 1))),
        Reason::Blocked
    );
    assert_eq!(memory.told.borrow().len(), 2, "and the daemon is told of it as of every block");
    assert_eq!(reason(&memory, &solicitation(link_local(2))), Reason::NeighbourDiscovery);
    for _ in 0..50_000 {
        memory.run(&solicitation(link_local(2)));
    }
    assert_eq!(reason(&memory, &solicitation(link_local(2))), Reason::LinkCap);
    assert_eq!(reason(&memory, &solicitation(link_local(1))), Reason::NeighbourDiscovery);
}

#[test]
fn blocks_hold_for_neighbour_discovery_in_the_kernel() {
    let mut loaded = Loaded::new(&policies::policy(PLAIN));
    let block = ListEntry { own_blocked_until_ns: FOREVER_NS, ..ListEntry::EMPTY };
    loaded.set_lists([("fe80::bad/128".parse().unwrap(), block)].into());
    let solicitation = |host: u16| {
        let from = Ipv6 { hop_limit: 255, ..Ipv6::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)) };
        ethernet(IPV6, &from.carrying(ICMPV6, &icmp(135)))
    };
    assert_eq!(loaded.outcome(&solicitation(0xbad)).moved[0].0, Reason::Blocked);
    assert_eq!(loaded.outcome(&solicitation(1)).moved[0].0, Reason::NeighbourDiscovery);
}
