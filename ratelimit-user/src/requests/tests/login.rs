//! The preset for logins: nobody is locked out by what others try.

use super::{SECOND, START, World, ip};
use crate::requests::{JudgeMode, Request};

#[test]
fn an_outsider_cannot_lock_a_user_out() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_ip = [\"20/hour\"]\nper_user_and_ip = [\"5/hour\"]\nper_user = [\"100/hour\"]",
    );
    fn from(text: &str) -> Request<'static> {
        Request::new("alice", "login").from(ip(text))
    }
    // Alice has logged in from home before: the attempt is charged, and given back because it did not fail.
    let home = from("192.0.2.1");
    assert!(world.serves(&home, START));
    world.engine.refund(&world.engine.rules(), &home, START).unwrap();
    // One outsider gets five attempts, and Alice is untouched.
    assert_eq!(world.served(&from("203.0.113.9"), START, 100), 5);
    assert!(world.serves(&home, START));
    world.engine.refund(&world.engine.rules(), &home, START).unwrap();
    // Many outsiders use up what outsiders may try in all.
    let outsiders: usize = (0..200).map(|n| world.served(&from(&format!("198.51.100.{n}")), START, 5)).sum();
    assert_eq!(outsiders, 95);
    assert!(!world.serves(&from("198.51.100.222"), START), "nobody who is new gets a try");
    assert_eq!(world.served(&home, START, 10), 5, "Alice may try from home, and mistype five times");
    // One address that tries many users is stopped, too.
    let spray = |n: usize| Request { user: ["a", "b", "c", "d", "e", "f"][n % 6], ..from("203.0.113.77") };
    assert_eq!((0..60).filter(|n| world.serves(&spray(*n), START)).count(), 20);
}

#[test]
fn an_address_that_a_user_has_logged_in_from_is_known_for_as_long_as_the_policy_says() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_user = [\"3/hour\"]\nknown_for = \"7d\"",
    );
    let (rules, home) = (world.engine.rules(), Request::new("alice", "login").from(ip("192.0.2.1")));
    let keys = |now_us| world.engine.counter_keys(&rules, &home, now_us).unwrap().iter().count();
    assert!(world.serves(&home, START));
    assert_eq!((world.engine.refund(&rules, &home, START), keys(START)), (Ok(true), 2));
    let week = 7 * 86_400 * SECOND;
    assert_eq!((keys(START + week - 1), keys(START + week)), (2, 3), "then it is an outsider's again");
    // Each login begins the time anew.
    let later = START + week - SECOND;
    assert!(world.serves(&home, later));
    assert_eq!((world.engine.refund(&rules, &home, later), keys(later + week - 1)), (Ok(true), 2));
}

#[test]
fn a_login_without_one_of_its_limits_has_the_others() {
    let world = World::new(
        "[[api]]\nname = \"login\"\npreset = \"login\"\nper_ip = [\"1000/hour\"]\nper_user_and_ip = []\nper_user = [\"3/hour\"]",
    );
    let users: Vec<String> = (0..100).map(|n| format!("user-{n}")).collect();
    for user in &users {
        assert_eq!(world.served(&Request::new(user, "login").from(ip("192.0.2.1")), START, 5), 3, "{user}");
    }
}

#[test]
fn a_login_that_a_host_decides_alone_makes_nobody_known() {
    let world = World::new(
        "[cluster]\nredis = \"redis://127.0.0.1:1\"\nhosts = 1\n[[api]]\nname = \"login\"\npreset = \"login\"\n\
         algorithm = \"fixed-window\"\nwithout_store = \"local\"\nper_user = [\"3/hour\"]",
    );
    let (rules, guess) = (world.engine.rules(), Request::new("alice", "login").from(ip("203.0.113.9")));
    let counters = || world.engine.counter_keys(&rules, &guess, START).unwrap();
    assert_eq!(counters().iter().count(), 3);
    let alone = rules.alone(&counters()).expect("a host that goes on alone");
    assert!(world.engine.judge(&alone, &guess, START, JudgeMode::Take).outcome.is_served());
    assert_eq!(counters().iter().count(), 3, "it is still an outsider");
}
