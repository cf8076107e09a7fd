//! What becomes of a request above a limit whose `on_limit` is not to refuse it: it waits for its turn, or passes deprioritised.

use super::{ALGORITHMS, MINUTE, SECOND, START, World};
use crate::requests::{Outcome, Request};

#[test]
fn a_leaky_bucket_as_a_queue_lets_one_through_after_the_other() {
    let world = World::new(
        "[[api]]\nname = \"api\"\nlimits = [\"10/s burst 5\"]\nalgorithm = \"leaky-bucket\"\non_limit = \"delay 1s\"",
    );
    let user = Request::new("u", "api");
    let waits: Vec<Option<u64>> = (0..7)
        .map(|_| match world.outcome(&user, START) {
            Outcome::Allowed => Some(0),
            Outcome::Delayed { wait_us } => Some(wait_us),
            _ => None,
        })
        .collect();
    let tenth = |n: u64| Some(n * SECOND / 10);
    assert_eq!(waits, [Some(0), tenth(1), tenth(2), tenth(3), tenth(4), None, None]);
}

#[test]
fn a_token_bucket_that_delays_holds_the_place_and_no_longer_than_it_may() {
    let world = World::new("[[api]]\nname = \"api\"\nlimits = [\"1/s burst 1\"]\non_limit = \"delay 2s\"");
    let user = Request::new("u", "api");
    assert_eq!(world.outcome(&user, START), Outcome::Allowed);
    assert_eq!(world.outcome(&user, START), Outcome::Delayed { wait_us: SECOND });
    assert_eq!(world.outcome(&user, START), Outcome::Delayed { wait_us: 2 * SECOND });
    assert_eq!(world.outcome(&user, START), Outcome::Refused { retry_us: Some(3 * SECOND) });
    // While callers wait, nothing comes back: every turn, the last one too, may belong to a caller that waits.
    world.engine.refund(&world.engine.rules(), &user, START).unwrap();
    assert_eq!(world.outcome(&user, START), Outcome::Refused { retry_us: Some(3 * SECOND) });
    // When nobody waits any more, a refund gives the unit back.
    let later = START + 2 * SECOND;
    world.engine.refund(&world.engine.rules(), &user, later).unwrap();
    assert_eq!(world.outcome(&user, later), Outcome::Allowed);
}

#[test]
fn what_is_deprioritised_passes_and_does_not_count() {
    for algorithm in ALGORITHMS {
        let world = World::new(&format!(
            "[[api]]\nname = \"api\"\nlimits = [\"2/min\"]\nalgorithm = \"{algorithm}\"\non_limit = \"deprioritise\""
        ));
        let user = Request::new("u", "api");
        let outcomes: Vec<Outcome> = (0..6).map(|_| world.outcome(&user, START)).collect();
        assert_eq!(outcomes[..2], [Outcome::Allowed; 2], "{algorithm}");
        assert_eq!(outcomes[2..], [Outcome::Deprioritised; 4], "{algorithm}");
        // The four count as if they had never been asked: two of the next minute are within the limit, and what is above both is not.
        let later = START + 2 * MINUTE;
        let outcomes: Vec<Outcome> = (0..3).map(|_| world.outcome(&user, later)).collect();
        assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Deprioritised], "{algorithm}");
    }
}

#[test]
fn what_one_limit_deprioritises_is_charged_to_the_limits_that_would_refuse() {
    let world = World::new(
        "[plan.default]\nlimits = [\"4/hour fixed-window\"]\n[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\non_limit = \"deprioritise\"",
    );
    let user = Request::new("u", "api");
    let outcomes: Vec<Outcome> = (0..5).map(|_| world.outcome(&user, START)).collect();
    assert_eq!(outcomes[..4], [Outcome::Allowed, Outcome::Allowed, Outcome::Allowed, Outcome::Deprioritised]);
    assert!(!outcomes[4].is_served(), "the plan has counted all four");
    // The fourth took nothing of what comes back within twenty seconds.
    let rules = world.engine.rules();
    assert!(!world.engine.peek(&rules, &user, START + 20 * SECOND).unwrap().outcome.is_served());
    let without_plan =
        World::new("[[api]]\nname = \"api\"\nlimits = [\"3/min\"]\non_limit = \"deprioritise\"");
    assert_eq!(without_plan.served(&user, START, 10), 10);
    assert_eq!(without_plan.outcome(&user, START + 20 * SECOND), Outcome::Allowed, "one has come back");
    assert_eq!(without_plan.outcome(&user, START + 20 * SECOND), Outcome::Deprioritised);
}

#[test]
fn of_several_limits_that_refuse_or_delay_the_longest_wait_is_told_whatever_their_order() {
    let third = |limits: &str, further: &str| {
        let world = World::new(&format!("[[api]]\nname = \"api\"\nlimits = [{limits}]\n{further}"));
        let user = Request::new("u", "api");
        assert_eq!(world.served(&user, START, 2), 2);
        world.ask(&user, START + SECOND / 4, |decision| {
            let violated = decision.violated.limits().count();
            (decision.outcome, decision.limit.unwrap().limit.name.clone(), violated)
        })
    };
    for [first, second] in [["2/s", "2/min"], ["2/min", "2/s"]] {
        let limits = format!("\"{first}\", \"{second}\"");
        let longest = MINUTE - SECOND / 4;
        let (outcome, name, violated) = third(&limits, "algorithm = \"fixed-window\"");
        assert_eq!(outcome, Outcome::Refused { retry_us: Some(longest) }, "{limits}");
        assert_eq!((name.as_str(), violated), ("api-min", 2), "{limits}");
        let (outcome, ..) = third(&limits, "on_limit = \"delay 60s\"");
        assert_eq!(outcome, Outcome::Delayed { wait_us: MINUTE / 2 - SECOND / 4 }, "{limits}");
    }
}
