//! What `explain` says of the limits that an address has to itself: what is left of each, and what its cell, its entry and its windows know.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::Reason;
use ratelimit_tests::{
    frames::{ACK, Ipv4, Ipv6, SYN},
    memory::Memory,
    policies,
};
use ratelimit_user::compile::lists::Lists;

use super::{Site, hold_to, left, smallest};

#[test]
fn an_address_never_seen_is_told_what_would_apply() {
    let site = Site::new(
        r#"
[source]
limits = ["1000 packets/s burst 8000", "100 syns/s burst 800"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["200 packets/s burst 400"]
total = ["5000 packets/s"]
[[service]]
name = "idle"
match = { protocol = "udp", ports = [99] }
"#,
        Lists::new(),
    );
    let fresh = site.explain([192, 0, 2, 7]);
    assert_eq!((fresh.verdict.as_str(), fresh.reason.as_str()), ("pass", "conforming"));
    assert_eq!((fresh.source.as_str(), fresh.at.as_str()), ("192.0.2.7/32", "2023-11-14T22:13:20Z"));
    assert!(fresh.refusals.is_empty() && fresh.user.is_none() && fresh.blocked_by.is_empty());
    assert_eq!(fresh.own.state, "cell");
    let cell = fresh.own.cell.as_ref().unwrap();
    assert!(!cell.is_tracked && cell.left == cell.capacity && cell.left > 900, "{cell:?}");
    // Twelve milliseconds are kept back for the clock, and four of each for two CPUs.
    assert_eq!(left(&fresh.own.limits), [(7984, 7984), (794, 794)]);
    assert_eq!(fresh.own.limits[0].rate, "1000 packets/s burst 8000");
    assert!(fresh.own.limits.iter().all(|limit| limit.full_in_ms == 0 && limit.refused_for_ms.is_none()));
    let prefixes: Vec<_> = fresh.prefixes.iter().map(|one| (one.prefix.as_str(), one.multiple)).collect();
    assert_eq!(prefixes, [("192.0.2.0/24", 32), ("192.0.0.0/20", 256)]);
    assert_eq!(fresh.services.len(), 1, "a service without limits has nothing to say");
    assert_eq!(fresh.services[0].service, "dns");
    let dns = fresh.services[0].per_source.as_ref().unwrap();
    assert_eq!((dns.state.as_str(), dns.limits[0].burst), ("cell", 400));
    assert_eq!(fresh.services[0].totals[0].left, fresh.services[0].totals[0].capacity);
}

#[test]
fn what_is_left_falls_with_every_packet_and_comes_back_with_time() {
    let site = Site::new("[source]\nlimits = [\"10 packets/s burst 100\"]\ngate = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(site.explain(source).own.state, "none", "there is no prefilter");
    let capacity = site.explain(source).own.limits[0].capacity;
    for sent in 1..=capacity {
        assert_eq!(site.drop_reason(&smallest(source)), None);
        assert_eq!(site.explain(source).own.limits[0].left, capacity - sent);
    }
    let spent = site.explain(source);
    assert_eq!((spent.verdict.as_str(), spent.reason.as_str()), ("drop", "limit_packets"));
    assert_eq!(spent.own.state, "entry");
    let wait = spent.own.limits[0].refused_for_ms.unwrap();
    site.wait_ms(wait);
    assert_eq!(site.explain(source).own.limits[0].left, 1);
    site.wait_ms(spent.own.limits[0].full_in_ms - wait);
    assert_eq!(left(&site.explain(source).own.limits), [(capacity, capacity)]);
}

#[test]
fn a_negative_entry_is_told_with_its_reason_and_ends_when_it_says() {
    let site = Site::new("[source]\nlimits = [\"1 packets/s burst 80\"]\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    while site.drop_reason(&smallest(source)).is_none() {}
    let refused = site.explain(source);
    let denied = refused.own.denied.as_ref().unwrap();
    assert_eq!(denied.reason, "limit_packets");
    assert!(refused.own.cell.as_ref().unwrap().is_tracked);
    assert_eq!(
        refused.refusals.len(),
        1,
        "the negative entry stands for the limit behind it: {:?}",
        refused.refusals
    );
    site.wait_ms(denied.for_ms);
    assert!(site.explain(source).own.denied.is_none());
}

#[test]
fn an_entry_at_rest_has_what_is_left_once_its_cell_may_have_served_it() {
    let site = Site::new("[source]\nlimits = [\"10 packets/s burst 80\"]\nladder = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    while site.drop_reason(&smallest(source)).is_none() {}
    let capacity = site.explain(source).own.limits[0].capacity;
    site.wait_ms(site.explain(source).own.limits[0].full_in_ms);
    let rested = site.explain(source).own;
    assert_eq!((rested.state.as_str(), rested.limits[0].full_in_ms), ("entry", 0));
    let left = rested.limits[0].left;
    assert!(left < capacity, "{rested:?}");
    let admitted = (0..capacity).filter(|_| site.drop_reason(&smallest(source)).is_none()).count() as u64;
    assert_eq!(admitted, left);
}

#[test]
fn addresses_of_one_slash_64_are_one_source_and_a_mapped_address_is_the_ipv4_address() {
    let site = Site::new("[source]\nlimits = [\"50 packets/day\"]\ngate = false\n", Lists::new());
    let one = Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 1);
    for _ in 0..20 {
        site.memory.run(&Ipv6::from(one).udp_frame(8));
    }
    let other = site.explain(Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 7, 7, 7, 7));
    assert_eq!(other.source, "2001:db8:1:1::/64");
    assert_eq!(left(&other.own.limits), [(30, 50)]);
    assert_eq!(left(&site.explain(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 1)).own.limits), [(50, 50)]);
    let mapped = site.explain(Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped());
    assert_eq!((mapped.address.as_str(), mapped.source.as_str()), ("192.0.2.7", "192.0.2.7/32"));
}

#[test]
fn limits_that_count_only_some_packets_refuse_only_those() {
    let site =
        Site::new("[source]\nlimits = [\"50 syns/day\"]\ngate = false\nladder = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let syn = Ipv4::from(source).tcp_frame(SYN);
    while site.drop_reason(&syn).is_none() {}
    let spent = site.explain(source);
    assert_eq!((spent.verdict.as_str(), spent.reason.as_str()), ("pass", "conforming"));
    let refusal = &spent.refusals[0];
    assert_eq!((refusal.reason.as_str(), refusal.applies_to.as_str()), ("limit_syns", "syns"));
    assert_eq!(site.drop_reason(&Ipv4::from(source).tcp_frame(ACK)), None);
}

#[test]
fn on_trial_what_would_be_refused_is_told_as_that() {
    let text = "[source]\nlimits = [\"50 packets/day\"]\ngate = false\n";
    let site = Site::new(&format!("mode = \"monitor\"\n{text}"), Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..60 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    let trial = site.explain(source);
    assert_eq!((trial.mode.as_str(), trial.verdict.as_str()), ("monitor", "would_drop"));
    assert_eq!(trial.reason, "limit_packets");
    assert!(trial.refusals[0].waived);
}

#[test]
fn limits_are_told_by_their_own_buckets_whatever_place_those_have() {
    // The kernel keeps places over changes: packets stay where SYNs pushed them to, and a second limit takes what is free.
    let before = policies::after(&["5 syns/s", "1000 packets/s"], 1, None);
    let text = "[source]\nladder = false\ngate = false\nlimits = [\"100 packets/s\", \"5000 packets/day burst 10000\"]\n";
    let mut site = Site::new(text, Lists::new());
    let names = ratelimit_user::compile::Names::default();
    let before = ratelimit_user::compile::Before {
        policy: &before.policy,
        names: &names,
        users: &[],
        desired: None,
        now_q8: 0,
    };
    site.desired = ratelimit_user::compile::desired(&site.policy, &policies::FACTS, 2, Some(before));
    site.memory = Memory::new(&site.desired, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..40 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    site.wait_ms(1_000);
    let limits = site.explain(source).own.limits;
    assert_eq!(limits[0].left, limits[0].capacity, "refilled within a second: {limits:?}");
    let spent = limits[1].capacity - limits[1].left;
    assert!((39..=40).contains(&spent), "a second refills a seventeenth of one: {limits:?}");
}

#[test]
fn windows_are_told_with_what_is_left_of_them() {
    let text = r#"
[source]
ladder = false
limits = ["10 packets/min fixed-window", "20 packets/hour sliding-window"]
[[user]]
name = "acme"
sources = ["192.0.2.0/24"]
network = ["30 packets/hour fixed-window soft 10%"]
"#;
    let site = Site::new(text, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..6 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    let told = site.explain([192, 0, 2, 7]);
    assert_eq!(left(&told.own.limits), [(4, 10), (14, 20)], "{told:?}");
    assert!(told.own.limits[0].full_in_ms <= 60_000 && told.own.limits[0].refused_for_ms.is_none());
    assert_eq!(left(&told.user.unwrap().limits), [(24, 30)]);
    for _ in 0..4 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    assert_eq!(site.drop_reason(&smallest(source)), Some(Reason::LimitPackets));
    assert!(site.explain([192, 0, 2, 7]).own.limits[0].refused_for_ms.is_some());
}

#[test]
fn a_window_that_is_spent_tells_when_a_packet_passes_which_is_before_it_is_empty() {
    for algorithm in ["fixed-window", "sliding-window", "sliding-window-weighted"] {
        for (limits, reason) in [
            ("[source]\nladder = false\nlimits = [LIMIT]\n", Reason::LimitPackets),
            (
                "[source]\nladder = false\nlimits = [\"1000 packets/s\"]\n[[user]]\nname = \"acme\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [LIMIT]\n",
                Reason::LimitUser,
            ),
        ] {
            let text = limits.replace("LIMIT", &format!("\"20 packets/hour {algorithm}\""));
            let site = Site::new(&text, Lists::new());
            let frame = smallest(Ipv4Addr::new(192, 0, 2, 7));
            // Half of it now and half of it later, so that what was counted first goes first.
            assert!((0..10).all(|_| site.drop_reason(&frame).is_none()), "{text}");
            site.wait_ms(1_000_000);
            while site.drop_reason(&frame).is_none() {}
            let told = site.explain([192, 0, 2, 7]);
            let limit = told.user.map_or(told.own.limits, |user| user.limits).remove(0);
            let wait = limit.refused_for_ms.unwrap();
            assert_eq!(wait < limit.full_in_ms, algorithm != "fixed-window", "{limit:?}");
            hold_to(&site, wait, &frame, reason);
        }
    }
}

#[test]
fn a_soft_limit_refuses_nothing_before_its_margin_is_spent_and_then_tells_when_a_packet_passes() {
    for limit in ["100 packets/hour soft 10%", "100 packets/hour fixed-window soft 10%"] {
        let text = format!("[source]\nladder = false\ngate = false\nlimits = [\"{limit}\"]\n");
        let site = Site::new(&text, Lists::new());
        let frame = smallest(Ipv4Addr::new(192, 0, 2, 7));
        let told = || site.explain([192, 0, 2, 7]).own.limits.remove(0);
        while told().left > 0 {
            assert_eq!(site.drop_reason(&frame), None, "{limit}");
        }
        let mut above = 0;
        while told().refused_for_ms.is_none() {
            assert_eq!(site.drop_reason(&frame), None, "{limit}: within its margin");
            above += 1;
        }
        assert!((8..=11).contains(&above), "{limit}: {above} packets above it");
        hold_to(&site, told().refused_for_ms.unwrap(), &frame, Reason::LimitPackets);
    }
}

#[test]
fn of_two_limits_in_packets_each_tells_its_own_wait_and_a_packet_passes_after_the_longer() {
    let text =
        "[source]\nladder = false\nlimits = [\"10 packets/s burst 80\", \"100 packets/hour burst 100\"]\n";
    let site = Site::new(text, Lists::new());
    let frame = smallest(Ipv4Addr::new(192, 0, 2, 7));
    let told = || site.explain([192, 0, 2, 7]).own;
    for _ in 0..1_000 {
        if told().limits.iter().all(|limit| limit.refused_for_ms.is_some()) {
            break;
        }
        site.drop_reason(&frame);
        if told().limits[1].refused_for_ms.is_none() {
            site.wait_ms(10);
        }
    }
    let [fast, slow] = [0, 1].map(|place| told().limits[place].refused_for_ms.unwrap());
    assert!(fast <= 100 && slow > 10_000, "{fast} and {slow} ms");
    hold_to(&site, slow, &frame, Reason::LimitPackets);
}
