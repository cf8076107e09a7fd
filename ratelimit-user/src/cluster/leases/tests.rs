//! Tests of what a host tells the store and the packet path about its leases.

use ratelimit_common::limit::text::parse_rate;

use super::*;
use crate::policy::Reserve;

const SECOND: u64 = 1_000_000_000;

fn leases() -> Leases {
    Leases::new(Timing::new(Duration::from_secs(1), Duration::from_millis(50)), SECOND / 20)
}

fn limit(key: &str, place: u32) -> LeasedLimit {
    let terms = Terms::of(&parse_rate("100/s").unwrap(), Reserve::new(0, 1)).unwrap();
    LeasedLimit { key: key.to_owned(), place, terms }
}

fn said(leases: &mut Leases, now_ns: u64, unmet: u64) -> usize {
    leases.observe(now_ns, |_| Spent { used: 0, unmet });
    leases.batch(now_ns).len()
}

#[test]
fn a_limit_that_moves_is_not_told_of_before_the_store_has_written_off_what_it_held() {
    let mut leases = leases();
    let nothing = |_| Spent { used: 0, unmet: 0 };
    leases.follow(vec![limit("a", 0)], SECOND, nothing);
    assert_eq!(said(&mut leases, 2 * SECOND, 5), 1, "it is wanted");
    assert_eq!(
        leases.follow(vec![limit("a", 4)], 2 * SECOND, nothing),
        [0],
        "the old place has no lease any more"
    );
    assert_eq!(said(&mut leases, 3 * SECOND, 50), 0);
    assert_eq!(said(&mut leases, 4 * SECOND, 500), 0);
    assert_eq!(said(&mut leases, 5 * SECOND, 5_000), 1, "2.25 s later");
    // A limit that leaves the policy and comes back begins with an empty holding.
    leases.follow(vec![], 6 * SECOND, nothing);
    leases.follow(vec![limit("a", 4)], 7 * SECOND, nothing);
    assert_eq!(said(&mut leases, 8 * SECOND, 5), 0);
    assert_eq!(said(&mut leases, 9 * SECOND, 50), 1);
}

#[test]
fn one_limit_of_each_group_greets_the_store() {
    let mut leases = leases();
    leases.follow((0..100).map(|n| limit(&format!("k{n}"), n)).collect(), 0, |_| Spent { used: 0, unmet: 0 });
    assert_eq!(leases.greeting(|_| ()).len(), 1);
    assert_eq!(leases.greeting(str::len).len(), 2);
}

#[test]
fn a_letter_has_an_end_and_what_was_left_out_is_in_the_next() {
    let mut leases = leases();
    let many = 2 * LINES as u32;
    leases
        .follow((0..many).map(|n| limit(&format!("k{n}"), n)).collect(), 0, |_| Spent { used: 0, unmet: 0 });
    leases.observe(SECOND, |_| Spent { used: 0, unmet: 1 });
    let first: HashSet<String> = leases.batch(SECOND).into_iter().map(|line| line.key).collect();
    assert_eq!(first.len(), LINES);
    let grant = Grant { units: 100, lifetime_us: 1_000_000, others: Others::Agree, hosts: 1 };
    first.iter().for_each(|key| leases.answer(key, &grant, SECOND, SECOND));
    let second: HashSet<String> = leases.batch(SECOND).into_iter().map(|line| line.key).collect();
    assert_eq!((second.len(), first.intersection(&second).count()), (LINES, 0));
}

/// Makes leases of one limit of 100 units a second, with demand since 1 s.
fn wanting() -> Leases {
    let mut leases = leases();
    leases.follow(vec![limit("a", 0)], 0, |_| Spent { used: 0, unmet: 0 });
    leases.observe(SECOND, |_| Spent { used: 0, unmet: 40 });
    leases
}

/// Answers the batch of 1 s with all wanted units, and returns how many were wanted.
fn granted(leases: &mut Leases, others: Others) -> u64 {
    let [line] = leases.batch(SECOND).try_into().unwrap();
    let grant = Grant { units: line.entry.wanted, lifetime_us: 1_000_000, others, hosts: 1 };
    leases.answer(&line.key, &grant, SECOND, SECOND);
    line.entry.wanted
}

#[test]
fn what_is_granted_is_told_to_the_packet_path_once_and_counted() {
    let mut leases = wanting();
    assert_eq!(leases.totals(SECOND), LeaseTotals { limits: 1, held: 0, units: 0 });
    let first = leases.news();
    assert_eq!(first.len(), 1, "where unmet demand is counted to");
    assert_eq!(leases.news(), []);
    let units = granted(&mut leases, Others::Agree);
    assert!(units > 0);
    let lease = PacketLease { ceiling: units, expires_ns: SECOND + 875_000_000, ..first[0].1 };
    assert_eq!(leases.news(), [(0, lease)]);
    assert_eq!(leases.news(), []);
    assert_eq!(leases.totals(SECOND), LeaseTotals { limits: 1, held: 1, units });
    assert_eq!((leases.held_at(0, SECOND), leases.held_at(1, SECOND)), (Some(units), None));
    assert_eq!(leases.places(), [0]);
    // Two packets have been spent since.
    leases.observe(SECOND + 1_000_000, |_| Spent { used: 2, unmet: 40 });
    assert_eq!(leases.held_at(0, SECOND + 1_000_000), Some(units - 2));
    assert_eq!(leases.totals(2 * SECOND), LeaseTotals { limits: 1, held: 0, units: 0 }, "it has run out");
}

#[test]
fn an_answer_about_a_limit_that_is_not_here_is_nobody_s() {
    let mut leases = wanting();
    leases.batch(SECOND);
    leases.news();
    let grant = Grant { units: 9, lifetime_us: 1_000_000, others: Others::SayLess, hosts: 1 };
    leases.answer("b", &grant, SECOND, SECOND);
    assert_eq!((leases.news(), leases.disputed(SECOND).count()), (vec![], 0));
}

#[test]
fn that_other_hosts_have_another_limit_is_said_for_a_minute_after_it_was_heard() {
    let mut leases = wanting();
    granted(&mut leases, Others::SayLess);
    for (now_ns, count) in [(SECOND, 1), (61 * SECOND - 1, 1), (61 * SECOND, 0)] {
        assert_eq!(leases.disputed(now_ns).count(), count, "at {now_ns}");
    }
    assert_eq!(leases.disputed(SECOND).next(), Some(("a", Others::SayLess)));
    // A policy that leaves the limit unchanged keeps the dispute; a policy that changes it clears the dispute.
    let nothing = |_| Spent { used: 0, unmet: 40 };
    leases.follow(vec![limit("a", 0)], SECOND, nothing);
    assert_eq!(leases.disputed(SECOND).count(), 1);
    let terms = Terms::of(&parse_rate("200/s").unwrap(), Reserve::new(0, 1)).unwrap();
    leases.follow(vec![LeasedLimit { terms, ..limit("a", 0) }], SECOND, nothing);
    assert_eq!(leases.disputed(SECOND).count(), 0);
    assert!(leases.held_at(0, SECOND).unwrap() > 0, "what it holds it keeps");
}

#[test]
fn a_policy_keeps_what_stays_and_names_the_places_that_are_free() {
    let mut leases = wanting();
    let units = granted(&mut leases, Others::Agree);
    let nothing = |_| Spent { used: 0, unmet: 40 };
    assert_eq!(leases.follow(vec![limit("b", 4), limit("a", 0)], SECOND, nothing), [0; 0]);
    assert_eq!((leases.held_at(0, SECOND), leases.held_at(4, SECOND)), (Some(units), Some(0)));
    assert_eq!(leases.places(), [4, 0]);
    // Limit "c" now has the place of the earlier limit, so the place still has a lease.
    assert_eq!(leases.follow(vec![limit("c", 0), limit("b", 4)], SECOND, nothing), [0; 0]);
    assert_eq!(leases.held_at(0, SECOND), Some(0), "nothing is left to an outsider");
    assert_eq!(leases.follow(vec![limit("c", 0)], SECOND, nothing), [4]);
    // An answer finds its limit at the limit's new place.
    leases.observe(2 * SECOND, |_| Spent { used: 0, unmet: 90 });
    let line = leases.batch(2 * SECOND).remove(0);
    let grant = Grant { units: 1, lifetime_us: 1_000_000, others: Others::Agree, hosts: 1 };
    leases.answer(&line.key, &grant, 2 * SECOND, 2 * SECOND);
    assert_eq!((line.key.as_str(), leases.held_at(0, 2 * SECOND)), ("c", Some(1)));
}

#[test]
fn of_too_many_lines_those_go_first_that_matter_most() {
    let mut leases = leases();
    let many = LINES as u32 + 1;
    leases
        .follow((0..many).map(|n| limit(&format!("k{n}"), n)).collect(), 0, |_| Spent { used: 0, unmet: 0 });
    // All limits hold units; the lease that was granted first ends first.
    let unmet = |n: u32, at: u64| Spent { used: 0, unmet: if u64::from(n) <= at { 40 } else { 0 } };
    leases.observe(SECOND, |n| unmet(n, 0));
    let [first] = leases.batch(SECOND).try_into().unwrap();
    let grant = Grant { units: first.entry.wanted, lifetime_us: 1_000_000, others: Others::Agree, hosts: 1 };
    leases.answer(&first.key, &grant, SECOND, SECOND);
    // The other limits have demand and hold nothing.
    leases.observe(SECOND + SECOND / 2, |n| unmet(n, u64::MAX));
    let lines = leases.batch(SECOND + SECOND / 2);
    assert_eq!(lines.len(), LINES);
    assert!(lines.iter().all(|line| line.key != first.key), "who holds something can wait");
}

#[test]
fn answers_that_take_long_are_reckoned_with() {
    let mut leases = leases();
    assert_eq!(leases.timing().recent_us, 200_000, "four ticks");
    leases.set_round_trip(Duration::from_millis(10));
    assert_eq!(leases.timing().recent_us, 200_000);
    leases.set_round_trip(Duration::from_millis(80));
    assert_eq!(leases.timing().recent_us, 320_000, "four answers");
    let wanted = |trip_ms| {
        let mut leases = self::leases();
        leases.set_round_trip(Duration::from_millis(trip_ms));
        leases.follow(vec![limit("a", 0)], 0, |_| Spent { used: 0, unmet: 0 });
        leases.observe(SECOND, |_| Spent { used: 0, unmet: 40 });
        leases.batch(SECOND)[0].entry.wanted
    };
    assert_eq!((wanted(0), wanted(50)), (4, 8), "40 in a second are 2 in a tick; two exchanges ahead");
}

#[test]
fn what_a_host_held_that_stood_still_is_gone_and_what_it_lets_go_is_given_back() {
    for lets_go in [Leases::lapse, Leases::give_up] {
        let mut leases = wanting();
        let units = granted(&mut leases, Others::Agree);
        leases.news();
        lets_go(&mut leases, SECOND + 1);
        let [(0, lease)] = leases.news()[..] else { panic!("the packet path is told") };
        assert_eq!((lease.ceiling, leases.held_at(0, SECOND + 1)), (0, Some(0)));
        // No packet can have read the old ceiling any more.
        leases.observe(SECOND + SECOND / 10, |_| Spent { used: 0, unmet: 40 });
        let [line] = leases.batch(SECOND + SECOND / 10).try_into().unwrap();
        assert_eq!((line.entry.used, line.entry.held), (0, 0), "{units} are given back");
    }
}

/// Makes leases of a limit of which 5 units were spent in each tick, for two seconds.
fn busy() -> Leases {
    let mut leases = leases();
    leases.follow(vec![limit("a", 0)], 0, |_| Spent { used: 0, unmet: 0 });
    for tick in 1..=40 {
        leases.observe(tick * SECOND / 20, |_| Spent { used: 5 * tick, unmet: 0 });
    }
    leases
}

#[test]
fn without_the_store_a_host_goes_on_at_its_pace_for_three_ticks() {
    let mut leases = busy();
    leases.news();
    leases.go_on(2 * SECOND);
    let [(0, lease)] = leases.news()[..] else { panic!("the packet path is told") };
    assert_eq!(lease.expires_ns, 2 * SECOND + 3 * SECOND / 20);
    assert_eq!(lease.ceiling, 200 + 5, "what it spends in a tick");
}

#[test]
fn the_share_of_a_host_is_what_it_spends_of_what_there_is() {
    let leases = busy();
    assert_eq!(leases.share_at(1), None);
    let share = leases.share_at(0).unwrap();
    assert!((90..=100).contains(&share), "{share} % of 100 a second");
    let mut slow = self::leases();
    let minute = Terms::of(&parse_rate("60000/min burst 100").unwrap(), Reserve::new(0, 1)).unwrap();
    slow.follow(vec![LeasedLimit { terms: minute, ..limit("a", 0) }], 0, |_| Spent { used: 0, unmet: 0 });
    for tick in 1..=40 {
        slow.observe(tick * SECOND / 20, |_| Spent { used: 5 * tick, unmet: 0 });
    }
    assert_eq!(slow.share_at(0), Some(share / 10), "1000 a second");
    // Spending more than the limit counts as 100 %.
    let mut fast = self::leases();
    fast.follow(vec![limit("a", 0)], 0, |_| Spent { used: 0, unmet: 0 });
    for tick in 1..=40 {
        fast.observe(tick * SECOND / 20, |_| Spent { used: 500 * tick, unmet: 0 });
    }
    assert_eq!(fast.share_at(0), Some(100));
}

#[test]
fn a_greeting_asks_for_nothing() {
    let [line] = wanting().greeting(|_| ()).try_into().unwrap();
    assert_eq!((line.key.as_str(), line.entry.is_empty(), line.entry.sequence), ("a", true, 0));
}
