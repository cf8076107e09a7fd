//! The express lane in the loaded program: what it repeats, and when it is closed.

use std::net::{Ipv4Addr, Ipv6Addr};

use ratelimit_common::abi::{ListEntry, Reason, Verdict, list};
use ratelimit_tests::{
    frames::{Ipv4, Ipv6},
    loaded::Loaded,
    policies,
};
use ratelimit_user::{compile::lists::Lists, dataplane::probe};

const SOURCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const LIMITED: &str = "[source]\nladder = false\nlimits = [\"100 packets/day\"]\n";

fn blocked_entry() -> ListEntry {
    ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..ListEntry::EMPTY }
}

fn allowed() -> ListEntry {
    ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY }
}

fn listed(prefix: &str, entry: ListEntry) -> Lists {
    [(prefix.parse().unwrap(), entry)].into()
}

/// Whether the lane is open to IPv4, and to IPv6, or will be in a moment.
fn lanes(loaded: &Loaded) -> [bool; 2] {
    loaded.maps.lane_opens_ns().unwrap().map(|from| from.is_some())
}

/// Waits until the lane is open to IPv4 and floods it: the last of these packets have been refused there.
fn flood_the_lane(loaded: &mut Loaded, frame: &[u8]) {
    let [opens_ns, _] = loaded.maps.lane_opens_ns().unwrap();
    // The coarse clock is behind by a tick at most, which is 10 ms at most.
    let open_ns = opens_ns.expect("a lane") + 20_000_000;
    while probe::now_ns() < open_ns {
        loaded.run(frame);
    }
    flood(loaded, frame, 500);
}

/// Sends so many frames.
fn flood(loaded: &mut Loaded, frame: &[u8], times: u32) {
    for _ in 0..times {
        loaded.run(frame);
    }
}

#[test]
fn a_source_that_keeps_to_its_limit_is_refused_again_by_the_total_that_refused_it() {
    let policy = format!(
        "{}[[service]]\nname = \"dns\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\ntotal = [\"400 packets/day\"]\n",
        LIMITED.replace("100", "1000")
    );
    let mut loaded = Loaded::new(&policies::policy(&policy));
    flood_the_lane(&mut loaded, &Ipv4::from(SOURCE).udp_frame(8));
    let (passed, refused) = (loaded.count(Reason::Conforming), loaded.count(Reason::ServiceTotal));
    assert_eq!(
        loaded.counters().iter().map(|(_, count)| count.packets).sum::<u64>(),
        passed + refused,
        "nothing else"
    );
    assert!((300..=400).contains(&passed), "{passed}");
}

#[test]
fn who_is_let_in_while_being_refused_is_let_in_by_the_next_packet() {
    let mut loaded = Loaded::new(&policies::policy(LIMITED));
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    for _ in 0..2 {
        flood_the_lane(&mut loaded, &frame);
        assert_eq!(loaded.run(&frame), Verdict::Drop);
        loaded.set_lists(listed("203.0.113.0/24", allowed()));
        assert_eq!(loaded.run(&frame), Verdict::Pass, "allowed");
        loaded.set_lists(listed("203.0.113.7/32", blocked_entry()));
        flood_the_lane(&mut loaded, &frame);
        let blocked = loaded.count(Reason::Blocked);
        loaded.set_lists(listed("203.0.114.0/24", blocked_entry()));
        assert_eq!(loaded.run(&frame), Verdict::Drop, "over its limit");
        assert_eq!(loaded.count(Reason::Blocked), blocked, "not blocked any more");
        loaded.set_lists(Lists::new());
    }
    assert_eq!(loaded.count(Reason::Allowed), 2);
    assert!(loaded.count(Reason::Conforming) <= 100);
}

#[test]
fn a_policy_that_allows_more_is_in_force_for_the_next_packet_of_who_was_refused() {
    // A bucket is filled by time: what was spent of an hour is little of a day.
    let mut loaded = Loaded::new(&policies::limits(&["100 packets/hour"]));
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    for (generation, more) in [(2, "1000 packets/day"), (3, "7000 packets/day burst 49000")] {
        flood(&mut loaded, &frame, 2_000);
        flood_the_lane(&mut loaded, &frame);
        assert_eq!(loaded.run(&frame), Verdict::Drop);
        let before = loaded.maps.policy();
        loaded.maps.set_policy(&policies::after(&[more], generation, before.as_deref())).unwrap();
        assert_eq!(lanes(&loaded), [true, true]);
        assert_eq!(loaded.run(&frame), Verdict::Pass, "{more}");
    }
}

#[test]
fn an_address_that_is_let_in_among_others_of_its_source_is_let_in() {
    let mut loaded = Loaded::new(&policies::policy(LIMITED));
    let of_host = |host| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, host)).udp_frame(8);
    loaded.set_lists(listed("2001:db8:1:2::5/128", allowed()));
    assert_eq!(lanes(&loaded), [true, false], "closed to IPv6: one source has addresses that differ");
    flood(&mut loaded, &of_host(1), 2_000);
    assert_eq!((loaded.run(&of_host(1)), loaded.run(&of_host(5))), (Verdict::Drop, Verdict::Pass));
    loaded.set_lists(listed("2001:db8:1:2::/64", allowed()));
    assert_eq!(lanes(&loaded), [true, true]);
    assert_eq!(loaded.run(&of_host(1)), Verdict::Pass);
}

#[test]
fn where_a_refused_packet_may_pass_there_is_no_lane() {
    let on_trial = policies::policy(&format!("mode = \"monitor\"\n{LIMITED}"));
    let mut loaded = Loaded::new(&on_trial);
    assert_eq!(lanes(&loaded), [false, false]);
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    flood(&mut loaded, &frame, 500);
    assert_eq!(loaded.run(&frame), Verdict::Pass);
    loaded.maps.set_policy(&policies::after(&["100 packets/day"], 2, Some(&on_trial.policy))).unwrap();
    assert_eq!(lanes(&loaded), [true, true]);
    // What the coarse clock keeps back of a burst may be another part of it now.
    flood(&mut loaded, &frame, 5);
    assert_eq!(loaded.run(&frame), Verdict::Drop);
}
