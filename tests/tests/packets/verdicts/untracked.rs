//! Sources without state: the prefilter in front of the table, and totals.

use std::net::Ipv4Addr;

use ratelimit_common::abi::Reason;
use ratelimit_tests::{
    frames::{IPV4, Ipv4, SYN, UDP, ethernet, udp},
    loaded::Loaded,
    policies,
};
use ratelimit_user::dataplane::probe;

use super::v4;

#[test]
fn a_source_within_its_cells_share_needs_no_entry_and_one_beyond_it_gets_one() {
    let mut loaded = Loaded::new(&policies::limits(&["800 packets/day"]));
    let entries = |loaded: &Loaded| loaded.maps.table().usage(probe::now_ns()).unwrap().entries;
    // An eighth of the burst comes from the cell. The coarse clock's lag costs one packet, there and in all; room for two
    // CPUs to add at once costs four.
    for _ in 0..98 {
        assert_eq!(loaded.outcome(&v4().udp_frame(8)).moved[0].0, Reason::Conforming);
    }
    assert_eq!(entries(&loaded), 0);
    for _ in 0..900 {
        loaded.run(&v4().udp_frame(8));
    }
    assert_eq!(entries(&loaded), 1);
    let admitted = loaded.count(Reason::Conforming);
    assert!((795..=796).contains(&admitted), "{admitted} admitted of 800");
}

#[test]
fn spoofed_sources_cost_no_entry() {
    let mut loaded = Loaded::new(&policies::limits(&["800 packets/day"]));
    for source in 0..20_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(source.wrapping_mul(0x9e37_79b9))).udp_frame(8));
    }
    assert_eq!(loaded.count(Reason::Conforming), 20_000);
    assert_eq!(loaded.maps.table().usage(probe::now_ns()).unwrap().entries, 0);
}

#[test]
fn new_sources_beyond_the_budget_are_refused_and_those_with_an_entry_are_not() {
    // So small a limit that every source needs an entry; ten new ones a second, one at once.
    let mut loaded =
        Loaded::new(&policies::source("limits = [\"3 packets/day\"]\nnew_sources_per_cpu = 10\n"));
    let known = v4().udp_frame(8);
    assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    for host in 0..2_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    assert!(loaded.count(Reason::NewSourceBudget) > 1_900);
    assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming, "it has an entry");
    assert!(loaded.maps.table().usage(probe::now_ns()).unwrap().entries < 100);
}

#[test]
fn the_total_of_a_service_holds_for_all_sources_together_and_for_nobody_else() {
    let mut loaded = Loaded::new(&policies::policy(
        "[source]\nlimits = [\"1000000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
         match = { protocol = \"udp\", ports = [53] }\ntotal = [\"1000 packets/day\"]\n",
    ));
    for host in 0..3_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    let admitted = loaded.count(Reason::Conforming);
    // Untracked sources stop at three quarters, and CPUs may hold a sixteenth unspent.
    assert!((650..=750).contains(&admitted), "{admitted} admitted");
    assert_eq!(loaded.count(Reason::ServiceTotal), 3_000 - admitted);
    assert_eq!(loaded.outcome(&v4().tcp_frame(SYN)).moved[0].0, Reason::Conforming, "another service");
    let fragment = ethernet(IPV4, &Ipv4 { fragment: 0x0010, ..v4() }.carrying(UDP, &udp(8)));
    assert_eq!(
        loaded.outcome(&fragment).moved[0].0,
        Reason::Conforming,
        "ports of a later fragment are payload"
    );
}

#[test]
fn tracked_sources_still_find_tokens_when_untracked_sources_have_used_their_part_of_a_total() {
    let mut loaded = Loaded::new(&policies::policy(
        "[source]\nlimits = [\"160 packets/day\"]\n[[service]]\nname = \"dns\"\n\
         match = { protocol = \"udp\", ports = [53] }\ntotal = [\"4000 packets/day\"]\n",
    ));
    // Beyond its cell's share, so it has an entry from here on.
    let known = v4().udp_frame(8);
    for _ in 0..30 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
    for host in 0..10_000_u32 {
        loaded.run(&Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + host)).udp_frame(8));
    }
    let untracked = Ipv4::from([172, 16, 0, 1]).udp_frame(8);
    assert_eq!(loaded.outcome(&untracked).moved[0].0, Reason::ServiceTotal);
    for _ in 0..100 {
        assert_eq!(loaded.outcome(&known).moved[0].0, Reason::Conforming);
    }
}
