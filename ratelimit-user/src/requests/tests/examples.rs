//! The examples of the documents that the project began with, by name.

use super::{MINUTE, SECOND, START, World};
use crate::requests::{Outcome, Request};

#[test]
fn fifteen_requests_a_second_for_each_user() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"15/s\"]");
    let (one, other) = (Request::new("one", "api"), Request::new("other", "api"));
    assert_eq!(world.served(&one, START, 100), 15);
    assert_eq!(world.served(&other, START, 100), 15, "each for itself");
    assert_eq!(world.served(&one, START + SECOND, 100), 15);
    let refused = world.ask(&one, START + SECOND, |decision| {
        let near = decision.limit.unwrap();
        assert_eq!((near.limit.name.as_str(), near.limit.quota, near.limit.window_s), ("api", 15, 1));
        assert_eq!((near.remaining, near.reset_us), (0, SECOND));
        decision.outcome
    });
    assert_eq!(refused, Outcome::Refused { retry_us: Some(66_667) });
}

#[test]
fn three_a_minute_and_the_edge_of_the_window() {
    for (algorithm, across) in [("fixed-window", 6), ("sliding-window", 3), ("sliding-log", 3)] {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\nalgorithm = \"{algorithm}\""
        ));
        let user = Request::new("user", "api");
        let before = world.served(&user, START + 59 * SECOND, 5);
        let after = world.served(&user, START + 61 * SECOND, 5);
        assert_eq!(before + after, across, "{algorithm}");
    }
}

#[test]
fn five_hundred_an_hour_and_ten_a_minute() {
    let world = World::new(
        "[plan.gold]\nlimits = [\"500/hour sliding-window\", \"10/min sliding-window\"]\n[[user]]\nname = \"acme\"\nplan = \"gold\"\n[[api]]\nname = \"*\"\nlimits = []",
    );
    let acme = Request::new("acme", "anything");
    let mut by_minute = Vec::new();
    for minute in 0..60 {
        by_minute.push(world.served(&acme, START + minute * (MINUTE + 2 * SECOND), 30));
    }
    assert!(by_minute.iter().take(50).all(|served| *served == 10), "{by_minute:?}");
    assert_eq!(by_minute.iter().take(58).sum::<usize>(), 500, "{by_minute:?}");
    let limit = world.ask(&acme, START + 57 * (MINUTE + 2 * SECOND), |decision| {
        decision.limit.unwrap().limit.name.clone()
    });
    assert_eq!(limit, "gold-hour");
}

#[test]
fn a_hundred_an_hour_and_three_a_minute_for_each_user_and_api() {
    let world = World::new(
        "[[api]]\nname = \"create-url\"\nlimits = [\"100/hour\", \"3/min\"]\nalgorithm = \"fixed-window\"\n[[api]]\nname = \"delete-url\"\nlimits = [\"100/hour\", \"3/min\"]",
    );
    let (create, delete) = (Request::new("u", "create-url"), Request::new("u", "delete-url"));
    assert_eq!(world.served(&create, START, 10), 3);
    assert_eq!(world.served(&delete, START, 10), 3, "another API, other limits");
    let in_an_hour: usize = (0..60).map(|minute| world.served(&create, START + minute * MINUTE, 10)).sum();
    assert_eq!(in_an_hour, 97, "three went before");
}

#[test]
fn a_hundred_and_ten_of_a_hundred_with_soft_10_percent() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"100/min\"]\nalgorithm = \"fixed-window\"\nthrottle = \"soft 10%\"",
    );
    let user = Request::new("user", "api");
    let outcomes: Vec<Outcome> = (0..120).map(|_| world.outcome(&user, START)).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Allowed).count(), 100);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::InMargin).count(), 10);
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.is_served()).count(), 10);
}
