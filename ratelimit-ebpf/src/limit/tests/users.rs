//! Limits of a user over all its addresses, and limits of a service for each source.

use ratelimit_common::abi::{
    LimitSet, ListEntry, Reason, Service,
    limit::{HAS_SOFT, SOFT},
    window::WindowKind,
};

use super::{PORT, reasons, with_service, with_user};
use crate::{
    packet::Address,
    tables::Tables as _,
    testbed::{SECOND_Q8, TestHost, WordTable, empty, limit, prefiltered, set, udp, window},
};

#[test]
fn all_addresses_of_a_user_share_its_limits_and_what_they_refuse_costs_no_source() {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/day"]);
    let mut host = TestHost::new(policy);
    with_user(&mut host, [0, 1]);
    with_user(&mut host, [0, 2]);
    host.users.push(set(&["3 packets/day", "100000 bytes/day burst 2000 bytes"]));
    let [one, other] = [1, 2].map(|last| udp([0, last], 53, 8));
    assert_eq!((host.passed(&one, 2), host.passed(&other, 9)), (2, 1));
    assert_eq!(reasons(&host, &one), [Reason::LimitUser; 3]);
    assert_eq!(host.load((WordTable::User, 0)), host.now_q8() + 86_400 * SECOND_Q8);
    assert_eq!(host.passed(&udp([0, 3], 53, 8), 20), 10, "nobody else is concerned");
    host.users[0] = LimitSet::NONE;
    assert_eq!(host.passed(&one, 20), 8, "two of ten were had");
}

#[test]
fn a_policy_without_users_asks_for_none() {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/day"]);
    let mut host = TestHost::new(policy);
    with_user(&mut host, [0, 1]);
    host.users.push(set(&["1 packets/day"]));
    host.policy.user_count = 0;
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 20), 10);
}

/// A host with a service of which one source may use three packets a day, of ten in all.
fn with_part(of_service: LimitSet) -> TestHost {
    let mut policy = empty();
    policy.source.set = set(&["10 packets/day"]);
    with_service(&mut policy, Service { per_source: of_service, ..Service::UNUSED });
    TestHost::new(policy)
}

#[test]
fn one_source_has_so_much_of_a_service_and_the_rest_elsewhere() {
    let host = with_part(set(&["3 packets/day"]));
    let (there, elsewhere) = (udp([0, 1], PORT, 8), udp([0, 1], 53, 8));
    use Reason::{Conforming as In, LimitPackets as Out};
    assert_eq!(reasons(&host, &there), [In, In, In, Out, Out]);
    assert_eq!(host.end(&there).service, 1);
    assert_eq!(host.passed(&elsewhere, 50), 7);
    assert_eq!(host.rows(WordTable::Source), 2, "one account for each");
    assert_eq!(host.passed(&udp([0, 2], PORT, 8), 50), 3);
}

#[test]
fn a_source_that_is_over_its_part_of_a_service_is_remembered_for_that_service_alone() {
    let host = with_part(prefiltered(&["8 packets/day"]));
    let there = udp([0, 1], PORT, 8);
    assert_eq!(host.passed(&there, 50), 8);
    host.evict(WordTable::Source);
    assert_eq!(host.reason(&there), Reason::LimitPackets, "without a look at the table");
    assert_eq!(host.passed(&udp([0, 1], 53, 8), 5), 5);
}

#[test]
fn an_account_at_a_service_is_paid_for_from_the_budget_of_newcomers() {
    let mut host = with_part(set(&["3 packets/day"]));
    host.policy.prefilter.new_sources = limit("3 packets/day");
    let frame = |last, port| udp([0, last], port, 8);
    assert_eq!(host.reason(&frame(1, PORT)), Reason::Conforming, "two accounts");
    assert_eq!(host.reason(&frame(2, 53)), Reason::Conforming, "and one");
    assert_eq!(host.reason(&frame(2, PORT)), Reason::NewSourceBudget);
    assert_eq!(host.reason(&frame(1, PORT)), Reason::Conforming);
}

#[test]
fn windows_of_sources_services_and_users_are_counted_apart() {
    let mut host = with_part(LimitSet { windows: [2, 0, 0, 0, 0, 0, 0, 0], ..LimitSet::NONE });
    host.policy.window_count = 3;
    for (place, rate) in ["9 packets/day", "3 packets/day", "5 packets/day"].iter().enumerate() {
        host.policy.windows[place] = window(&std::format!("{rate} fixed-window"), WindowKind::Fixed);
        host.policy.windows[place].name = (place as u64 + 1) << 32;
    }
    host.policy.source.set.windows[0] = 1;
    let (there, elsewhere) = (udp([0, 1], PORT, 8), udp([0, 1], 53, 8));
    assert_eq!((host.passed(&there, 50), host.reason(&there)), (3, Reason::LimitPackets));
    assert_eq!((host.passed(&elsewhere, 50), host.reason(&elsewhere)), (6, Reason::LimitPackets));
    with_user(&mut host, [0, 2]);
    host.users.push(LimitSet { windows: [3, 0, 0, 0, 0, 0, 0, 0], ..LimitSet::NONE });
    assert_eq!(host.passed(&udp([0, 2], 53, 8), 50), 5);
    assert_eq!(host.reason(&udp([0, 2], 53, 8)), Reason::LimitUser);
    assert_ne!(host.load((WordTable::UserWindow, 0)), 0, "the first place of the first user");
    // The second window of a second user, which the first user does not share.
    let address = Address::v4(u32::from_ne_bytes([10, 0, 0, 3]));
    host.list(address.key, ListEntry { user: 2, ..ListEntry::EMPTY });
    host.policy.user_count = 2;
    host.users.push(LimitSet { windows: [1, 3, 0, 0, 0, 0, 0, 0], ..LimitSet::NONE });
    assert_eq!(host.passed(&udp([0, 3], 53, 8), 50), 5);
    for (index, is_used) in [(1, false), (2, false), (3, false), (4, true), (5, true), (6, false)] {
        assert_eq!(host.user_window(index).is_some_and(|word| host.load(word) != 0), is_used, "{index}");
    }
}

extern crate std;

#[test]
fn what_one_limit_lets_pass_above_itself_is_named_so_whatever_the_others_say() {
    let soft = |rates: &[&str]| {
        let mut set = set(rates);
        set.limits[0].frac_bits |= SOFT;
        set.adds |= HAS_SOFT;
        set
    };
    let plain = || set(&["1000 packets/day"]);
    for above in 0..3 {
        let part = |number| if number == above { soft(&["1 packets/day", "5 packets/day"]) } else { plain() };
        let mut host = with_part(part(1));
        host.policy.source.set = part(0);
        host.policy.window_count = 1;
        host.policy.windows[0] = window("1000 packets/day fixed-window", WindowKind::Fixed);
        host.policy.source.set.windows[0] = 1;
        with_user(&mut host, [0, 1]);
        host.users.push(part(2));
        let last = if above == 2 { Reason::LimitUser } else { Reason::LimitPackets };
        use Reason::{Conforming, SoftMargin};
        let frame = udp([0, 1], PORT, 8);
        assert_eq!(
            reasons(&host, &frame),
            [Conforming, SoftMargin, SoftMargin, SoftMargin, SoftMargin, last],
            "{above}"
        );
    }
}

#[test]
fn what_a_window_refuses_costs_no_bucket_whatever_kind_of_window_it_is() {
    for (kind, name) in [(WindowKind::Sliding, "sliding-window"), (WindowKind::Fixed, "fixed-window")] {
        let mut host = with_part(LimitSet::NONE);
        host.policy.window_count = 1;
        host.policy.windows[0] = window(&std::format!("3 packets/day {name}"), kind);
        host.policy.source.set.windows[0] = 1;
        assert_eq!(host.passed(&udp([0, 1], 53, 8), 50), 3, "{name}");
        let spent = host.load((WordTable::Source, 0)) - host.now_q8();
        assert_eq!(spent / host.policy.source.set.limits[0].cost_fp, 3, "{name}");
    }
}
