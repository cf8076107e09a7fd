//! What refunds give back: what was charged and still counts, and no more.

use super::{MINUTE, SECOND, START, World, ip};
use crate::requests::{Outcome, Request};

#[test]
fn cost_peek_refund_and_reset() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"sliding-window\"");
    let (user, rules) = (Request::new("u", "api"), world.engine.rules());
    assert!(world.serves(&user.costing(7), START));
    assert_eq!(world.engine.peek(&rules, &user.costing(3), START).unwrap().outcome, Outcome::Allowed);
    assert!(!world.serves(&user.costing(4), START), "only three are left");
    assert!(world.serves(&user.costing(3), START), "peeking took nothing");
    world.engine.refund(&rules, &user.costing(2), START).unwrap();
    assert_eq!(world.served(&user, START, 10), 2);
    world.engine.reset(&rules, &user).unwrap();
    assert_eq!(world.served(&user, START, 20), 10);
    assert_eq!(world.outcome(&user.costing(11), START), Outcome::Refused { retry_us: None }, "it never fits");
}

#[test]
fn what_was_charged_in_an_earlier_window_adds_nothing_to_a_later_one() {
    for algorithm in ["fixed-window", "sliding-window-weighted", "sliding-window", "sliding-log"] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nalgorithm = \"{algorithm}\""
        ));
        let (user, rules) = (Request::new("u", "api"), world.engine.rules());
        let counters = |now_us| world.engine.counter_keys(&rules, &user, now_us).unwrap();
        let later = START + 3 * MINUTE;
        assert!(world.serves(&user.costing(5), START));
        assert!(world.serves(&user.costing(2), later));
        assert_eq!(
            world.engine.refund(&rules, &user.costing(5), later),
            Ok(false),
            "{algorithm}: two are less"
        );
        assert!(
            !world.engine.give_back(&counters(later), &user, 3 * MINUTE, later),
            "{algorithm}: that is over"
        );
        assert_eq!(world.served(&user, later, 20), 8, "{algorithm}");
        assert!(world.engine.give_back(&counters(later), &user, 1, later + 1), "{algorithm}");
        assert_eq!(world.served(&user, later + 1, 20), 1, "{algorithm}");
    }
}

#[test]
fn a_bucket_gives_back_what_has_not_come_back_by_itself() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"10/s\"]");
    let (user, rules) = (Request::new("u", "api"), world.engine.rules());
    let counters = world.engine.counter_keys(&rules, &user, START).unwrap();
    assert!(world.serves(&user.costing(10), START));
    let later = START + SECOND / 2;
    assert_eq!(world.served(&user, later, 20), 5);
    assert!(world.engine.give_back(&counters, &user.costing(10), SECOND / 2, later));
    assert_eq!(world.served(&user, later, 20), 5, "five have come back by themselves");
    assert!(!world.engine.give_back(&counters, &user.costing(10), SECOND, later), "all of them");
    assert!(!world.engine.give_back(&counters, &user.costing(11), 0, later), "more than there ever was");
}

#[test]
fn who_refunds_what_was_never_charged_gets_nothing_and_is_not_known() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_user = [\"3/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"3/hour\"]",
    );
    let rules = world.engine.rules();
    let guess = Request::new("alice", "login").from(ip("203.0.113.9"));
    assert_eq!(world.engine.refund(&rules, &guess, START), Ok(false));
    let keys = || world.engine.counter_keys(&rules, &guess, START).unwrap().iter().count();
    assert_eq!(keys(), 3, "an outsider");
    assert!(world.serves(&guess, START));
    assert_eq!(world.engine.refund(&rules, &guess, START), Ok(true));
    assert_eq!(keys(), 2, "known");
    let user = Request::new("u", "api");
    assert_eq!(world.engine.refund(&rules, &user, START), Ok(false));
    assert_eq!(world.served(&user, START, 10), 3);
}
