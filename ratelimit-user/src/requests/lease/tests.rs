//! Leases of one key, with the store's answers and the clock as arguments.

use super::*;

const SECOND: u64 = 1_000_000;
/// When a lease of the smallest portion ends: a margin before the store writes it off.
const END: u64 = 210 * SECOND;

fn told(granted: u64) -> Told {
    Told {
        spent: true,
        wait_us: 0,
        granted,
        free: 100,
        nearest: 0,
        more_us: 0,
        violated: 0,
        above: false,
        holds: 0,
        heard: 0,
    }
}

#[test]
fn an_answer_that_is_taken_in_after_a_later_one_changes_nothing() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, SECOND);
    lease.answer(&said, &Told { free: 629, heard: 1, ..told(10) }, SECOND);
    assert!(lease.spend(9, SECOND));
    let renewal = lease.renew(640, SECOND).unwrap();
    lease.answer(&renewal, &Told { free: 600, heard: 2, ..told(19) }, SECOND);
    lease.answer(&Entry::default(), &Told { free: 628, heard: 1, ..told(0) }, SECOND);
    assert_eq!(lease.left(SECOND).free, 600);
    lease.answer(&Entry::default(), &Told { free: 598, heard: 2, ..told(0) }, SECOND);
    assert_eq!(lease.left(SECOND).free, 598);
}

#[test]
fn what_is_granted_is_spent_here_until_it_runs_out() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, SECOND);
    assert_eq!(said, Entry { sequence: 1, used: 0, held: 0, wanted: 10 });
    lease.answer(&said, &told(10), SECOND + 5);
    assert!((0..10).all(|_| lease.spend(1, 2 * SECOND)));
    assert!(!lease.spend(1, 2 * SECOND), "nothing is left");
    let said = lease.ask(1, 640, 2 * SECOND);
    assert_eq!(said, Entry { sequence: 2, used: 10, held: 0, wanted: 20 }, "twice as much");
    lease.answer(&said, &told(20), 2 * SECOND);
    assert!(lease.spend(1, END / 2), "half as long: it is twice as much");
    assert!(!lease.spend(1, 2 * SECOND + END / 2), "a margin before the store writes it off");
}

/// A lease of ten units out of 640.
fn ten(now_us: u64) -> RequestLease {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, now_us);
    lease.answer(&said, &told(10), now_us);
    lease
}

#[test]
fn leases_of_one_second_are_renewed_over_half_of_their_life_while_they_last() {
    let due = |sent_us: u64| {
        let lease = ten(sent_us);
        (0..END).step_by(10_000).find(|after| lease.is_due(sent_us + after)).unwrap()
    };
    let due: Vec<u64> = (0..100).map(|n| due(SECOND + n * 9_973)).collect();
    let (first, last) = (due.iter().min().unwrap(), due.iter().max().unwrap());
    assert!(*last <= 195 * SECOND + 10_000 && *first >= 75 * SECOND, "{first} to {last}");
    assert!(last - first > 110 * SECOND, "{first} to {last}");
}

#[test]
fn a_lease_that_is_nearly_spent_is_renewed_and_goes_on_being_spent() {
    let mut lease = ten(0);
    assert!(lease.spend(8, 1));
    assert_eq!(lease.renew(640, 1), None, "two of ten are a fourth, rounded down");
    assert!(lease.spend(1, 1));
    let said = lease.renew(640, 1).unwrap();
    assert_eq!(said, Entry { sequence: 2, used: 9, held: 1, wanted: 19 }, "twice as much, with the one");
    assert_eq!(lease.renew(640, 1), None, "one at a time");
    assert!(lease.spend(1, 2), "nobody waits");
    lease.answer(&said, &told(19), 3);
    assert!(lease.spend(19, 3));
    assert!(!lease.spend(1, 3));
    assert_eq!(lease.ask(1, 640, 3).used, 20);
}

#[test]
fn the_more_is_held_the_shorter() {
    let mut lease = RequestLease::default();
    for (nth, life) in [240, 120, 60, 30, 30].into_iter().enumerate() {
        let said = lease.ask(1, 640, SECOND);
        assert_eq!(lease.life_us(), life * SECOND);
        lease.answer(&said, &told(said.wanted), SECOND);
        assert!(lease.spend(10 << nth.min(3), SECOND), "all of it");
    }
}

#[test]
fn a_life_that_gets_shorter_does_so_before_the_answer_comes() {
    let mut lease = ten(0);
    assert!(lease.spend(9, 1));
    let said = lease.renew(640, 1).unwrap();
    lease.answer(&said, &told(19), 1);
    assert!(lease.spend(16, 2));
    lease.renew(640, 2).unwrap();
    assert_eq!(lease.life_us(), 60 * SECOND, "four times as much");
    assert!(lease.spend(1, 2 + END / 4 - 1));
    assert!(!lease.spend(1, 2 + END / 4), "the store may have heard of it, and writes it off after a margin");
}

#[test]
fn a_lease_that_is_renewed_for_its_age_asks_for_no_more_than_before() {
    let mut lease = ten(0);
    // A quarter of the lease is left. Less than that would be little.
    assert!(lease.spend(8, 1));
    assert_eq!(lease.renew(640, 1), None, "neither old nor low");
    let said = lease.renew(640, END - SECOND).expect("it ends soon");
    assert_eq!((said.held, said.wanted), (2, 8), "as much as before");
}

#[test]
fn what_was_granted_on_the_way_is_counted_as_held_until_its_answer_comes_and_free_is_what_the_store_said_last()
 {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, SECOND);
    assert_eq!((said.sequence, said.wanted), (1, 10));
    // Another question was answered after this one, and its answer is here first: ten units are this host's, and 500 are free beside them.
    let later = Told { free: 500, heard: 1, holds: 10, ..told(0) };
    lease.answer(&Entry::default(), &later, SECOND);
    let left = lease.left(SECOND);
    assert_eq!((left.held, left.free), (10, 500));
    lease.answer(&said, &Told { free: 510, heard: 1, holds: 10, ..told(10) }, SECOND);
    let left = lease.left(SECOND);
    assert_eq!((left.held, left.free), (10, 500), "granted, and no longer free");
}

#[test]
fn a_question_about_other_keys_takes_no_more_of_one_that_has_enough() {
    let mut lease = ten(0);
    for n in 1..100 {
        assert_eq!(lease.ask(5, 640, n), Entry::default());
    }
    assert_eq!(lease.ask(11, 640, 100).wanted, 20, "too little for this one");
}

#[test]
fn what_was_never_leased_is_not_kept_for_long() {
    let mut lease = RequestLease::default();
    assert_eq!(lease.ask(1, 15, 0), Entry::default());
    lease.deny(1, 0, (SECOND, 1), 0);
    assert!(!lease.is_idle(SECOND));
    assert!(lease.is_idle(SECOND + 1));
    let mut lease = ten(0);
    assert!(!lease.is_idle(2 * 270 * SECOND));
    assert!(lease.is_idle(2 * 270 * SECOND + 1));
    let _under_way = lease.ask(1, 640, END);
    assert!(!lease.is_idle(u64::MAX));
}

#[test]
fn a_lease_that_is_hardly_used_does_not_grow_when_it_is_renewed() {
    let mut lease = ten(0);
    for renewal in 1..10 {
        let now_us = renewal * 195 * SECOND;
        assert!(lease.spend(1, now_us), "it lasts");
        let said = lease.renew(640, now_us).unwrap();
        assert!(said.held + said.wanted <= 10, "{said:?}");
        lease.answer(&said, &told(said.wanted), now_us);
    }
}

#[test]
fn a_lease_of_which_more_than_half_is_left_when_it_gets_old_is_half_as_large_from_then_on() {
    for (spent, held, wanted) in [(9, 10, 0), (10, 10, 10)] {
        let mut lease = ten(0);
        assert!(lease.spend(9, 1));
        let said = lease.renew(640, 1).unwrap();
        lease.answer(&said, &told(19), 1);
        // The lease has twenty units. Half of them is not more than half.
        assert!(lease.spend(spent, 2));
        let said = lease.renew(640, 100 * SECOND).expect("it ends soon");
        assert_eq!((said.held, said.wanted), (held, wanted), "{spent}");
    }
    // A lease that has run out with more than half of its units left is halved, too.
    let mut lease = ten(0);
    assert!(lease.spend(9, 1));
    let said = lease.renew(640, 1).unwrap();
    lease.answer(&said, &told(19), 1);
    assert_eq!(lease.ask(1, 640, END).wanted, 10);
}

#[test]
fn units_come_back_to_a_lease_for_as_long_as_they_may_be_spent() {
    let spent = || {
        let mut lease = ten(0);
        assert!(lease.spend(4, 1));
        lease
    };
    assert!(spent().refund(4, END - 1));
    assert!(!spent().refund(4, END), "the store writes them off");
    assert!(!spent().refund(5, 1), "more than was spent");
}

#[test]
fn who_was_given_less_than_it_wanted_asks_again_when_it_must() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, 0);
    lease.answer(&said, &told(3), 0);
    assert!(lease.spend(3, 1));
    assert!(!lease.is_due(1));
    assert!(lease.is_due(195 * SECOND));
}

#[test]
fn a_renewal_that_had_no_answer_is_said_again_and_counts_once() {
    let mut lease = ten(0);
    assert!(lease.spend(9, 1));
    let said = lease.renew(640, 1).unwrap();
    lease.failed(&said);
    assert!(lease.spend(1, 2));
    assert_eq!(lease.renew(640, 2), Some(said), "what was spent since is told the next time");
    lease.answer(&said, &told(19), 2);
    assert_eq!(lease.ask(20, 640, 3).used, 1);
}

#[test]
fn what_has_no_answer_is_said_again_as_it_was() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, SECOND);
    assert_eq!(lease.ask(1, 640, SECOND), Entry::default(), "one at a time");
    lease.failed(&said);
    assert_eq!(lease.ask(1, 6_400, 2 * SECOND), said);
    lease.answer(&said, &told(10), 2 * SECOND);
    lease.answer(&said, &told(10), 2 * SECOND);
    assert!(lease.spend(10, 2 * SECOND));
    assert!(!lease.spend(1, 2 * SECOND), "an answer that comes twice counts once");
}

#[test]
fn what_is_said_again_lasts_no_longer_than_from_the_first_time_on() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, 0);
    lease.failed(&said);
    assert_eq!(lease.ask(1, 640, 60 * SECOND), said);
    lease.answer(&said, &told(10), 60 * SECOND);
    assert!(lease.spend(1, END - 1));
    assert!(!lease.spend(1, END), "the store writes it off a margin later");
}

#[test]
fn units_that_the_store_is_being_told_of_are_not_taken_back() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, 0);
    lease.answer(&said, &told(10), 0);
    assert!(lease.spend(4, 1));
    let said = lease.ask(7, 640, 1);
    assert_eq!((said.used, said.held), (4, 6));
    lease.unspend(4);
    lease.answer(&said, &told(0), 1);
    assert!(lease.spend(6, 1));
    assert!(!lease.spend(1, 1), "the four are charged");
}

#[test]
fn units_that_are_taken_back_are_held_again_and_not_reported() {
    let mut lease = RequestLease::default();
    let said = lease.ask(1, 640, 0);
    lease.answer(&said, &told(10), 0);
    assert!(lease.spend(4, 1));
    lease.unspend(4);
    assert!(lease.spend(10, 1));
    assert_eq!(lease.ask(1, 640, 1).used, 10);
}

#[test]
fn a_key_of_few_units_is_never_held_beforehand() {
    let mut lease = RequestLease::default();
    assert_eq!(lease.ask(1, 63, SECOND), Entry::default());
    assert_eq!(lease.ask(1, 64, SECOND).wanted, 1);
}

#[test]
fn a_refusal_is_believed_for_those_who_need_as_much_and_not_for_long() {
    let mut lease = RequestLease::default();
    lease.deny(5, 7, (300_000, 1), SECOND);
    assert_eq!(lease.denies(5, 7, SECOND + 100_000), Some((200_000, 1)));
    assert_eq!(lease.denies(5, 8, SECOND + 100_000), None, "under other limits it may fit");
    assert_eq!(lease.denies(4, 7, SECOND + 100_000), None, "less may fit");
    assert_eq!(lease.denies(5, 7, SECOND + 300_000), None);
    lease.deny(1, 7, (3_600 * SECOND, 1), SECOND);
    assert_eq!(lease.denies(1, 7, 2 * SECOND - 1), Some((3_599 * SECOND + 1, 1)), "how long it really takes");
    assert_eq!(lease.denies(1, 7, 2 * SECOND), None, "somebody may have given something back");
}
