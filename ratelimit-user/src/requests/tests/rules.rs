//! Which limits a request has: those of its plan, its user and its API, all or none of them charged, and those of the policy that is in force now.

use super::{MINUTE, SECOND, START, World, policy};
use crate::requests::{Decision, Request};

#[test]
fn a_refusal_by_one_limit_charges_none() {
    let world = World::new(
        "[plan.gold]\nlimits = [\"5/hour fixed-window\"]\n[[user]]\nname = \"u\"\nplan = \"gold\"\n[[api]]\nname = \"a\"\nlimits = [\"2/min\"]\nalgorithm = \"fixed-window\"\n[[api]]\nname = \"b\"\nlimits = [\"100/min\"]",
    );
    let (a, b) = (Request::new("u", "a"), Request::new("u", "b"));
    assert_eq!(world.served(&a, START, 50), 2);
    // 48 refusals by the API took nothing from the plan.
    assert_eq!(world.served(&b, START, 50), 3);
    // And refusals by the plan took nothing from the API.
    assert_eq!(world.served(&a, START + MINUTE, 50), 0);
    assert_eq!(world.served(&a, START + 60 * MINUTE, 50), 2);
}

#[test]
fn plans_and_users_have_limits_of_their_own_and_others_the_default() {
    let world = World::new(
        "[plan.gold]\n[plan.default]\nlimits = [\"3/min fixed-window\"]\n[[user]]\nname = \"acme\"\nplan = \"gold\"\n[[user]]\nname = \"vip\"\nplan = \"gold\"\n[[api]]\nname = \"api\"\nlimits = [\"10/min\"]\nplans = { gold = [\"20/min\"] }\nusers = { vip = [\"30/min\"] }",
    );
    let served = |user| world.served(&Request::new(user, "api"), START, 100);
    assert_eq!((served("vip"), served("acme"), served("nobody")), (30, 20, 3));
}

#[test]
fn a_day_of_a_calendar_begins_at_midnight_there() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"2/day\"]\nalgorithm = \"fixed-window\"\ntime_zone = \"Asia/Tokyo\"",
    );
    let user = Request::new("u", "api");
    let midnight = START + 15 * 3_600 * SECOND;
    assert_eq!(world.served(&user, midnight - 1, 5), 2);
    assert_eq!(world.served(&user, midnight, 5), 2);
}

#[test]
fn a_change_of_numbers_keeps_what_was_counted() {
    let requests = |limit: &str| {
        format!("[[api]]\nname = \"api\"\nlimits = [\"{limit}\"]\nalgorithm = \"fixed-window\"")
    };
    let world = World::new(&requests("10/min"));
    let user = Request::new("u", "api");
    assert_eq!(world.served(&user, START, 8), 8);
    world.engine.follow(&policy(&requests("9/min")), START);
    assert_eq!(world.served(&user, START, 8), 1);
}

#[test]
fn a_handle_decides_by_the_rules_that_are_in_force_now() {
    let requests = |limit: &str| format!("[[api]]\nname = \"api\"\nlimits = [\"{limit}\"]");
    let engine = World::new(&requests("10/min")).engine;
    let (mut handle, user) = (engine.handle(), Request::new("u", "api"));
    let left = |decision: Decision<'_>| decision.limit.unwrap().remaining;
    assert_eq!(left(handle.decide(&user, START).unwrap()), 9);
    engine.follow(&policy(&requests("5/min")), START);
    assert_eq!(left(handle.decide(&user, START).unwrap()), 3, "five, one of which was taken before");
}

#[test]
fn many_threads_together_get_no_more_than_the_limit() {
    let world = World::new(
        "[plan.default]\nlimits = [\"5000/hour\"]\n[[api]]\nname = \"api\"\nlimits = [\"3000/hour\"]\nalgorithm = \"sliding-window\"",
    );
    let served: usize = std::thread::scope(|scope| {
        let ask = || world.served(&Request::new("u", "api"), START, 2_000);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(served, 3_000);
}
