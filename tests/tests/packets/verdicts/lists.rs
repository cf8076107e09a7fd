//! The block list and the allow list.

use std::net::Ipv4Addr;

use ratelimit_common::abi::{ListEntry, Reason, list};
use ratelimit_tests::{
    frames::{ARP, ICMPV6, IPV6, Ipv4, Ipv6, ethernet, icmp},
    loaded::Loaded,
    policies,
};
use ratelimit_user::{
    compile::lists::{self, Lists, Prefix},
    dataplane::{kernel, probe},
};

use super::{GENEROUS, v6};

fn blocked_until(until_ns: u64) -> ListEntry {
    ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY }
}

const ALLOWED: ListEntry = ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY };

#[test]
fn lists_decide_by_prefix_and_the_allow_list_wins() {
    let hour_ns = 3_600_000_000_000;
    let now_ns = probe::now_ns();
    let entries = [
        ("198.51.100.0/24", blocked_until(list::FOREVER_NS)),
        ("198.51.100.7/32", ALLOWED),
        ("203.0.113.0/24", blocked_until(now_ns + hour_ns)),
        ("203.0.113.9/32", blocked_until(now_ns - 1)),
        ("100.64.0.0/10", blocked_until(now_ns - 1)),
        ("2001:db8:bad::/48", blocked_until(now_ns + hour_ns)),
        ("2001:db8:bad:1::/64", ALLOWED),
    ];
    let lists: Lists = entries.map(|(prefix, entry)| (prefix.parse().unwrap(), entry)).into();
    let mut loaded = Loaded::new(&policies::limits(&["1 packets/day"]));
    loaded.set_lists(lists);
    let from_v4 = |a: [u8; 4]| Ipv4::from(a).udp_frame(8);
    let from_v6 = |a: &str| Ipv6::from(a.parse().unwrap()).udp_frame(8);
    for (name, frame, first, second) in [
        ("blocked for good", from_v4([198, 51, 100, 6]), Reason::Blocked, Reason::Blocked),
        ("allowed inside a block", from_v4([198, 51, 100, 7]), Reason::Allowed, Reason::Allowed),
        ("blocked for an hour", from_v4([203, 0, 113, 8]), Reason::Blocked, Reason::Blocked),
        ("own block ran out inside a live one", from_v4([203, 0, 113, 9]), Reason::Blocked, Reason::Blocked),
        ("block ran out", from_v4([100, 64, 1, 1]), Reason::Conforming, Reason::LimitPackets),
        ("not listed", from_v4([192, 0, 2, 200]), Reason::Conforming, Reason::LimitPackets),
        ("blocked IPv6", from_v6("2001:db8:bad:2::1"), Reason::Blocked, Reason::Blocked),
        ("allowed IPv6 inside a block", from_v6("2001:db8:bad:1::1"), Reason::Allowed, Reason::Allowed),
        ("IPv6 beside the block", from_v6("2001:db8:bae::1"), Reason::Conforming, Reason::LimitPackets),
    ] {
        assert_eq!(loaded.outcome(&frame).moved[0].0, first, "{name}");
        assert_eq!(loaded.outcome(&frame).moved[0].0, second, "{name}, again");
    }
}

#[test]
fn neighbour_discovery_of_a_blocked_host_is_dropped_and_arp_passes() {
    let mut loaded = Loaded::new(&policies::limits(GENEROUS));
    loaded.set_lists([("::/0".parse().unwrap(), blocked_until(list::FOREVER_NS))].into());
    let discovery = ethernet(IPV6, &Ipv6 { hop_limit: 255, ..v6() }.carrying(ICMPV6, &icmp(135)));
    assert_eq!(loaded.outcome(&discovery).moved[0].0, Reason::Blocked);
    assert_eq!(loaded.outcome(&v6().udp_frame(8)).moved[0].0, Reason::Blocked);
    assert_eq!(loaded.outcome(&ethernet(ARP, &[0; 28])).moved[0].0, Reason::Arp);
}

#[test]
fn a_list_change_without_room_is_refused_at_once_and_one_that_fails_half_way_is_undone() {
    let mut loaded = Loaded::new(&policies::limits(GENEROUS));
    let blocked = blocked_until(list::FOREVER_NS);
    // Every room in the list is taken, 198.51.100.1 among them.
    let mut full: Lists = (0..list::MAX_LISTED - 1)
        .map(|n| (Prefix::masked(Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 32), blocked))
        .collect();
    full.insert("198.51.100.1/32".parse().unwrap(), blocked);
    loaded.set_lists(full);
    let observed = loaded.maps.lists().unwrap();
    assert!(observed == loaded.lists, "the kernel has what was written");
    let edits = Lists::from([("198.51.100.0/24".parse().unwrap(), ALLOWED)]);
    let changes = lists::edited(&observed, &edits);
    assert_eq!(changes.len(), 2, "the entry inside is let in first");
    // Who knows of every entry is refused before the first write; who has missed some, when the kernel says so.
    let without = |lists: &Lists| {
        let unknown: Prefix = "10.0.0.1/32".parse().unwrap();
        lists.clone().into_iter().filter(|(prefix, _)| *prefix != unknown).collect::<Lists>()
    };
    let missed = without(&observed);
    assert!(
        kernel::require_room(&observed, &changes).is_err() && kernel::require_room(&missed, &changes).is_ok()
    );
    for known in [&observed, &missed] {
        let mut lists = known.clone();
        let refused = loaded.maps.change_lists(&mut lists, &changes).unwrap_err().to_string();
        assert!(lists == *known, "what is known stays what it was");
        assert!(refused.contains("the IPv4 list is full at 1048576 prefixes"), "{refused}");
        let frame = Ipv4::from([198, 51, 100, 1]).udp_frame(8);
        assert_eq!(
            loaded.outcome(&frame).moved[0].0,
            Reason::Blocked,
            "not let in by the half of the change that worked"
        );
    }
    assert_eq!(loaded.maps.lists().unwrap().len(), missed.len());
    // A policy whose users need two more, where there is room for one: neither they nor it are there.
    let user = "[source]\nlimits = [\"7 packets/day\"]\n[[user]]\nname = \"a\"\nsources = [\"192.0.2.1\", \"192.0.2.2\"]\n";
    let generation = loaded.maps.policy().unwrap().generation;
    let mut lists = missed.clone();
    let refused = loaded.maps.enforce(&mut lists, None, &policies::policy(user)).unwrap_err().to_string();
    assert!(refused.contains("the sources of users together"), "{refused}");
    assert!(loaded.maps.lists().unwrap() == missed && lists == missed);
    let in_force = loaded.maps.policy().unwrap();
    assert_eq!((in_force.generation, in_force.user_count), (generation, 0));
}
